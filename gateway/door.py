"""The door in front of the HTTP and WebSocket application: `gateway.access` for every request."""

from __future__ import annotations

import contextlib
import logging
import secrets

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.access import ANY, Access, Refused
from gateway.clocks import since_boot_s
from gateway.protocol import errors
from gateway.protocol.errors import FatalProtocolError
from gateway.protocol.headers import RESUME_HEADER

log = logging.getLogger("headstart.door")

SUBPROTOCOL = "realtime"
_HOLDER = "headstart.holder"


def holder_of(scope: Scope) -> str:
    """Whose key a request came with (`Admitted.holder`)."""
    holder: str = scope.get(_HOLDER, "")
    return holder


class Door:
    """ASGI middleware. A request that may not come in is answered here.

    A socket with a wrong key is told so after the handshake, since one client tries again for ever
    if that fails; one from a wrong page gets no handshake.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        verdict = self._access.judge(
            scope["path"], Headers(scope=scope), since_boot_s(), scope.get("subprotocols", ())
        )
        if not isinstance(verdict, Refused):
            await self._app({**scope, _HOLDER: verdict.holder}, receive, send)
            return
        log.warning("refused %s: %s", scope["path"], verdict.code)
        if scope["type"] == "http":
            await _response(verdict)(scope, receive, send)
        elif verdict.status == 401:
            await turn_away(WebSocket(scope, receive, send), errors.invalid_api_key())
        else:
            socket = WebSocket(scope, receive, send)
            await socket.send_denial_response(_response(verdict))


def guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """`app` behind the door, and readable for the pages that are allowed."""
    door: ASGIApp = Door(app, access)
    if not access.origins:
        return door
    return CORSMiddleware(
        door,
        allow_origins=[ANY] if ANY in access.origins else sorted(access.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "OpenAI-Beta", RESUME_HEADER],
        expose_headers=["Location", "Retry-After"],
    )


def _response(refused: Refused) -> JSONResponse:
    kind = "invalid_request_error"
    error = {"type": kind, "code": refused.code, "message": refused.message, "param": None}
    headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    return JSONResponse({"error": error}, status_code=refused.status, headers=headers)


def offered(socket: WebSocket, prefix: str) -> str | None:
    """What stands behind `prefix` in the name of an offered subprotocol."""
    names: list[str] = socket.scope.get("subprotocols", [])
    return next((name.removeprefix(prefix) for name in names if name.startswith(prefix)), None)


async def turn_away(socket: WebSocket, error: FatalProtocolError) -> None:
    """Shake hands, say why not, and close."""
    names = socket.scope.get("subprotocols", [])
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in names else None)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_json(error.to_event(f"event_{secrets.token_hex(12)}"))
        await socket.close(error.close_code, error.close_reason)
