"""Where the messages come from: a server's feed, connected again whenever it breaks, or a file."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from headstart.client_key import VARIABLE
from headstart.gateway.errors import GatewayError, ServerRefused, ServerUnreachable
from headstart.recordings.pace import Pace
from headstart.recordings.reader import Recording

HANDSHAKE_WAIT_S = 20.0
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""The last one again and again."""
RECORDING_ENDINGS = (".gz", ".jsonl", ".ndjson")
KEYS_FAULT = "invalid_api_key"

Say = Callable[[str], None]
"""Told how the connection does, in words."""


class Source(Protocol):
    """Messages, as they come."""

    def messages(self, say: Say, /) -> AsyncGenerator[Any, None]:
        """Ends where nothing more can come. Whoever stops earlier closes it. Raises
        `GatewayError`s."""


class RecordedFeed:
    """A file's messages in virtual time. `speed`: see `Pace`."""

    def __init__(self, recording: Recording, speed: float | None) -> None:
        self._recording = recording
        self._speed = speed

    async def messages(self, say: Say) -> AsyncGenerator[Any, None]:
        pace = Pace(self._speed)
        say("a recording")
        for _, message in self._recording.messages():
            await pace.until(message)
            yield message
        say("; ".join(["the recording is over", *self._recording.remarks]))


class LiveFeed:
    """A server's feed. A connection that is lost is made again; the first one has to succeed."""

    def __init__(self, url: str, api_key: str, *, once: bool = False) -> None:
        """Raises `ServerUnreachable` for what is no address."""
        self._url = dashboard_url(url)
        self._name = urlsplit(self._url).netloc
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._once = once
        self._failures = 0
        self._was_greeted = False

    async def messages(self, say: Say) -> AsyncGenerator[Any, None]:
        while True:
            say("connecting")
            try:
                async with aclosing(self._connection(say)) as messages:
                    async for message in messages:
                        yield message
            except _Lost as lost:
                if self._once or not (self._was_greeted or lost.may_pass):
                    raise lost.error from lost
                wait_s = BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
                self._failures += 1
                say(f"trying again in {max(1, round(wait_s))} s: {lost.error}")
                await asyncio.sleep(wait_s * random.uniform(0.75, 1.25))

    async def _connection(self, say: Say) -> AsyncGenerator[Any, None]:
        """From handshake to loss. Raises `_Lost`, and `ServerRefused` for what does not pass."""
        greeted = False
        try:
            async with connect(
                self._url,
                additional_headers=self._headers,
                max_size=MESSAGE_BYTES_MAX,
                compression=None,
                open_timeout=HANDSHAKE_WAIT_S,
            ) as socket:
                async for text in socket:
                    message = _parsed(text)
                    if not greeted:
                        self._check(message)
                        greeted = self._was_greeted = True
                        self._failures = 0
                        say("live")
                    yield message
                raise _Lost(ServerUnreachable(f"{self._name} ended the feed"))
        except ConnectionClosed as closed:
            # The reason comes from the server; who shows it makes it harmless.
            why = closed.rcvd.reason if closed.rcvd and closed.rcvd.reason else "it broke off"
            raise _Lost(ServerUnreachable(f"the feed was cut: {why}")) from closed
        except InvalidStatus as error:
            raise self._refused(error) from error
        except (OSError, TimeoutError, EOFError) as error:
            asked = "is the server running, and is there no file of that name?"
            raise _Lost(
                ServerUnreachable(f"nobody answers at {self._name} ({error}): {asked}")
            ) from error
        # `ValueError`: a host that has no such name, perhaps one that the server sends us to.
        except (InvalidHandshake, InvalidURI, ValueError) as error:
            raise ServerRefused(
                f"{self._url} does not speak this protocol ({error}): expected the address of a "
                f"server that was started with `headstart serve`"
            ) from error

    def _check(self, first: Any) -> None:
        """The first message greets, or says why there is no feed."""
        said = first.get("error") if isinstance(first, dict) else None
        if isinstance(said, dict):
            error = ServerRefused(
                f"{self._name} refuses: {said.get('message') or said.get('code')}"
            )
            if said.get("code") == KEYS_FAULT:
                raise ServerRefused(f"{error} Give one with --key or in {VARIABLE}")
            raise _Lost(error, may_pass=True)
        if not isinstance(first, dict) or first.get("type") != "hello":
            raise ServerRefused(f"{self._url} is no dashboard feed: its first message is no hello")
        if first.get("version") != 1:
            raise ServerRefused(
                f"{self._url} speaks version {first.get('version')!r} of the feed, this headstart "
                f"version 1: use the server's own headstart"
            )

    def _refused(self, error: InvalidStatus) -> Exception:
        status = error.response.status_code
        if status >= 500:
            refused = ServerRefused(f"{self._name} answered {status}")
            return _Lost(refused, may_pass=False)
        hint = {
            401: f"give a key with --key or in {VARIABLE}",
            403: "this key may not look at the dashboard; give an API key",
            404: "it has no dashboard; is it a headstart of this version?",
        }.get(status, error.response.reason_phrase)
        return ServerRefused(f"{self._name} answered {status}: {hint}")


class _Lost(Exception):
    """The connection ended for a reason that may go away. `may_pass`: even if it never stood."""

    def __init__(self, error: GatewayError, may_pass: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.may_pass = may_pass


def _parsed(text: str | bytes) -> Any:
    """None for what is no JSON: the state counts it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def dashboard_url(url: str) -> str:
    """The feed's address behind what a person would type. Raises `ServerUnreachable`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ServerUnreachable(f"{url!r} is no server's address: expected http://HOST:PORT")
    path = parts.path.rstrip("/").removesuffix("/dashboard").removesuffix("/v1")
    return urlunsplit((scheme, parts.netloc, f"{path}/v1/dashboard", "", ""))


def source_of(where: str, api_key: str, speed: float | None, once: bool) -> Source:
    """A recording if `where` is a file or named like one, else a server."""
    path = Path(where)
    if path.is_file() or ("://" not in where and where.endswith(RECORDING_ENDINGS)):
        return RecordedFeed(Recording(path), None if once else speed)
    return LiveFeed(where, api_key, once=once)
