"""A server of the dashboard and its feed, with no gateway behind it: what is sent, and when it
is cut, tests say."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from headstart.gateway.auth.access import key_of
from headstart.gateway.auth.middleware import HEADERS, policy_for
from headstart.gateway.server.app import PROJECT_WEB_DIR
from tests.web_demo.dashboard.feed_fixtures import Json, Server
from tests.web_demo.threaded_server import ThreadedServer

SCREENS = ("sessions", "percentiles", "turn", "keeping-up", "engine", "kv", "rtc", "errors")
"""Of what is live; `compare` is of recordings."""


class FakeFeed(ThreadedServer):
    """One server on a free port. `say` sends to everybody who watches."""

    server: Server
    key: str | None  # needed to watch; None: none
    status: int  # of /status
    is_open: bool  # whether the feed takes anybody
    without_charts: bool  # whether the chart library is missing
    watched: list[Json]  # what watchers have sent
    said: list[Any]  # what was sent to them, beside the ring

    def __init__(self) -> None:
        self._watchers: list[tuple[WebSocket, asyncio.Queue[str | None]]] = []
        self.reset()
        app = Starlette(
            routes=[
                Route("/status", self._status),
                WebSocketRoute("/v1/dashboard", self._watch),
                Mount("/", StaticFiles(directory=PROJECT_WEB_DIR, html=True)),
            ]
        )
        super().__init__(self._guard(app))
        self._loop: asyncio.AbstractEventLoop | None = None

    def reset(self) -> None:
        """As new: a server that has just started, and nobody watches."""
        self.cut()
        self.server = Server()
        self.key = None
        self.status = 200
        self.is_open = True
        self.without_charts = False
        self.watched = []
        self.said = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/dashboard/"

    def stop(self) -> None:
        self.cut()
        super().stop()

    # --- what tests do ---------------------------------------------------------------------------

    def say(self, *messages: Any) -> None:
        """Sends messages, or texts as they are, to all who watch now."""
        for message in messages:
            self.said.append(message)
            text = message if isinstance(message, str) else json.dumps(message)
            self._to_all(text)

    def run(self, seconds: int, turns_per_min: float = 60.0) -> None:
        """So many seconds of the server's time, at once."""
        for _ in range(seconds):
            for message in self.server.second(turns_per_min):
                self.say(message)

    def cut(self) -> None:
        """Everybody's feed breaks off."""
        self._to_all(None)

    def _to_all(self, text: str | None) -> None:
        for _, queue in list(self._watchers):
            assert self._loop is not None
            self._loop.call_soon_threadsafe(queue.put_nowait, text)

    # --- the server ------------------------------------------------------------------------------

    def _guard(self, app: ASGIApp) -> ASGIApp:
        """The policies that the gateway's answers carry, and the chart library hidden if wanted."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    host = dict(scope["headers"]).get(b"host", b"").decode()
                    said = (b"content-security-policy", policy_for(host).encode())
                    uncached = (b"cache-control", b"no-store")
                    more = [*message.get("headers", ()), *HEADERS, said, uncached]
                    message = {**message, "headers": more}
                await send(message)

            if self.without_charts and scope.get("path", "").startswith("/vendor/"):
                scope = {**scope, "path": "/not-there"}
            await app(scope, receive, sending if scope["type"] == "http" else send)

        return guarded

    async def _status(self, _: Request) -> Response:
        return JSONResponse({}, status_code=self.status)

    async def _watch(self, ws: WebSocket) -> None:
        self._loop = asyncio.get_running_loop()
        self.connections += 1
        offered = ws.scope.get("subprotocols", [])
        if not self.is_open:
            await ws.send_denial_response(JSONResponse({}, status_code=self.status))
            return
        await ws.accept("realtime" if "realtime" in offered else None)
        if self.key is not None and key_of(ws.headers, offered) != self.key:
            error = {"code": "invalid_api_key", "message": "Incorrect API key provided."}
            await ws.send_json({"type": "error", "error": error})
            await ws.close(3000, "invalid_request_error.invalid_api_key")
            return
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        for message in (self.server.hello(), *self.server.kept, self.server.live()):
            queue.put_nowait(json.dumps(message))
        self._watchers.append((ws, queue))
        await self._serve(ws, queue)

    async def _serve(self, ws: WebSocket, queue: asyncio.Queue[str | None]) -> None:
        async def read() -> None:
            while True:
                self.watched.append(await ws.receive_json())

        async def write() -> None:
            while (text := await queue.get()) is not None:
                await ws.send_text(text)
            await ws.close(1012)

        halves: list[Callable[[], Awaitable[None]]] = [read, write]
        tasks = [asyncio.ensure_future(half()) for half in halves]
        with contextlib.suppress(WebSocketDisconnect):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._watchers = [entry for entry in self._watchers if entry[0] is not ws]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
