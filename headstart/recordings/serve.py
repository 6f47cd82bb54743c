"""`headstart replay FILE --serve`: the dashboard's page over a recorded feed.

Every watcher gets the file from its start on, at its own pace; the connection then stays open, as
that of a server at which nothing happens. The file may hold what people said, so that pages of
other sites are kept out as the gateway keeps them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from headstart.gateway.auth.access import Access
from headstart.gateway.auth.middleware import SUBPROTOCOL, guarded
from headstart.gateway.errors import PortInUse
from headstart.gateway.runtime import tasks
from headstart.recordings.errors import RecordingError
from headstart.recordings.pace import Pace
from headstart.recordings.reader import Recording

HOST = "127.0.0.1"
WEB_DIR = Path(__file__).resolve().parents[1] / "web-demo"
WATCHERS_MAX = 16
WATCH_CHARS_MAX = 256
CLOSE_POLICY, CLOSE_ERROR, CLOSE_TRY_AGAIN_LATER = 1008, 1011, 1013
GRACE_S = 1


class _Replayed:
    """The feed's endpoint. `speed`: see `Pace`."""

    def __init__(self, path: Path, speed: float | None) -> None:
        self._path = path
        self._speed = speed
        self._watchers = 0

    async def watch(self, ws: WebSocket) -> None:
        offered = ws.scope.get("subprotocols", [])
        await ws.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        if self._watchers >= WATCHERS_MAX:
            await ws.close(CLOSE_TRY_AGAIN_LATER, "too_many_watchers")
            return
        self._watchers += 1
        asked = {"chunks": False}
        halves = [
            tasks.awaited(self._read(ws, asked), "replay reads"),
            tasks.awaited(self._write(ws, asked), "replay writes"),
        ]
        try:
            done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
            code, reason = done.pop().result()
            await ws.close(code, reason)
        except (WebSocketDisconnect, RuntimeError):
            pass  # it has gone
        finally:
            self._watchers -= 1
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)

    async def _read(self, ws: WebSocket, asked: dict[str, bool]) -> tuple[int, str]:
        """A watcher may say one thing."""
        while True:
            said = await ws.receive()
            if said["type"] != "websocket.receive":
                raise WebSocketDisconnect
            text = said.get("text")
            try:
                wanted = msgspec.json.decode((text or "")[:WATCH_CHARS_MAX])
            except msgspec.DecodeError:
                wanted = None
            if not isinstance(wanted, dict) or wanted.get("type") != "watch":
                return CLOSE_POLICY, 'nothing was expected but {"type":"watch","chunks":true|false}'
            asked["chunks"] = wanted.get("chunks") is True

    async def _write(self, ws: WebSocket, asked: dict[str, bool]) -> tuple[int, str]:
        pace = Pace(self._speed)
        try:
            for line, message in Recording(self._path).messages():
                await pace.until(message)
                if message["type"] != "chunk" or asked["chunks"]:
                    await ws.send_text(line.decode())
        except RecordingError as error:
            print(f"headstart: {error}", file=sys.stderr, flush=True)
            return CLOSE_ERROR, "the recording cannot be read any further"
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


def app(path: Path, speed: float | None, web_dir: Path = WEB_DIR) -> ASGIApp:
    """The page and the feed of one file."""
    feed = _Replayed(path, speed)
    routes = [
        WebSocketRoute("/v1/dashboard", feed.watch),
        Mount("/", StaticFiles(directory=web_dir, html=True)),
    ]
    return guarded(Starlette(routes=routes), Access(hosts=["localhost", HOST]))


def serve(
    recording: Recording, speed: float | None, port: int, ready: Callable[[str], None]
) -> None:
    """Until Ctrl-C. `ready` is told the page's address. Raises `RecordingError`s and `PortInUse`
    before that."""
    next(recording.messages())
    listener = _listener(port)
    config = uvicorn.Config(
        app(recording.path, speed), log_level="error", timeout_graceful_shutdown=GRACE_S
    )
    ready(f"http://{HOST}:{listener.getsockname()[1]}/dashboard/")
    with contextlib.suppress(KeyboardInterrupt), listener:
        uvicorn.Server(config).run(sockets=[listener])


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(HOST, port) from error
        raise
