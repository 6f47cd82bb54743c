"""A WebSocket as a talk's connection."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
)

from headstart.gateway.errors import (
    ConnectionLost,
    ResumeRefused,
    ServerFailed,
    ServerRefused,
    ServerUnreachable,
)
from headstart.gateway.protocol.headers import RESUME_HEADER, RESUME_LAST_EVENT
from headstart.talk.connection.refusals import UNAUTHORISED, error_message, refused_key
from headstart.talk.connection.resumption import ResumeTicket

HANDSHAKE_WAIT_S = 20.0
FRAME_BYTES_MAX = 64 * 1024 * 1024


class SocketConnection:
    """An open socket. `first`: a message that was already received."""

    def __init__(self, socket: ClientConnection, first: str | bytes | None = None) -> None:
        self._socket = socket
        self._first = first

    async def send(self, text: str, /) -> None:
        try:
            await self._socket.send(text)
        except ConnectionClosed as closed:
            raise _ended(closed) from closed

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        if self._first is not None:
            yield self._first
        try:
            while True:
                yield await self._socket.recv()
        except ConnectionClosed as closed:
            raise _ended(closed) from closed


@contextlib.asynccontextmanager
async def open_socket(
    url: str, api_key: str, ticket: ResumeTicket | None = None
) -> AsyncIterator[SocketConnection]:
    """Open a session at a `client.realtime_url`, or resume the one of the ticket. Raises
    `TalkError`s."""
    headers = {"Authorization": f"Bearer {api_key}"}
    if ticket is not None:
        headers[RESUME_HEADER] = ticket.token
        url += f"{'&' if '?' in url else '?'}{RESUME_LAST_EVENT}={quote(ticket.last_event_id)}"
    socket = await _connected(url, headers)
    try:
        yield SocketConnection(socket, None if ticket is None else await _welcome(socket))
    finally:
        await socket.close()


async def _connected(url: str, headers: dict[str, str]) -> ClientConnection:
    try:
        return await connect(
            url,
            additional_headers=headers,
            max_size=FRAME_BYTES_MAX,
            compression=None,
            open_timeout=HANDSHAKE_WAIT_S,
        )
    except InvalidStatus as error:
        body = error.response.body or b""
        if error.response.status_code == UNAUTHORISED:
            raise refused_key(url) from error
        raise ServerRefused(
            f"{url} answered {error.response.status_code} instead of opening a session: "
            f"{error_message(body) or error.response.reason_phrase}"
        ) from error
    except (OSError, TimeoutError, EOFError) as error:
        raise ServerUnreachable(
            f"nobody answers at {url} ({error}): start a server with `headstart serve`, check the "
            f"address, or leave out --url to have one started"
        ) from error
    # `ValueError`: a host that has no such name, perhaps one that the server sends us to.
    except (InvalidHandshake, InvalidURI, ValueError) as error:
        raise ServerRefused(
            f"{url} does not speak this protocol ({error}): expected the address of a server that "
            f"was started with `headstart serve`, or of another one with OpenAI's Realtime protocol"
        ) from error


async def _welcome(socket: ClientConnection) -> str | bytes:
    """The server's first message to a resuming client. Raises `ResumeRefused` if it refuses, and
    `ServerFailed` if that cannot be read."""
    try:
        first = await socket.recv()
    except ConnectionClosed as closed:
        raise _ended(closed) from closed
    try:
        event = json.loads(first)
        error = event["error"] if event.get("type") == "error" else {}
        if str(error.get("code")).startswith("resume_"):
            raise ResumeRefused(error["code"], error["message"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as wrong:
        raise ServerFailed(f"the server broke the protocol: {wrong!r}") from wrong
    return first


def _ended(closed: ConnectionClosed) -> ServerFailed:
    """A close frame means that the server ended the session on purpose."""
    if closed.rcvd is None:
        return ConnectionLost(f"the connection to the server was lost: {closed}")
    return ServerFailed(f"the server ended the session: {closed}")
