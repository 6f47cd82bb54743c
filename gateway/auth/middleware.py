"""Authentication middleware for the HTTP and WebSocket application: applies `gateway.auth.access`
to every request.

It also keeps requests of untrusted clients from ending in an exception: a peer that leaves while
its request is read, or a server that shuts down, is neither an error nor logged as one.

"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headstart.gateway.auth.access import ANY, Access, Admitted, Refused
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.errors import FatalProtocolError
from headstart.gateway.protocol.headers import RESUME_HEADER
from headstart.gateway.runtime.clocks import since_boot_s

log = logging.getLogger("headstart.auth")

SUBPROTOCOL = "realtime"
SOCKET_PATHS = ("/v1/realtime", "/realtime", "/v1/dashboard")
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self' blob:; connect-src 'self'{sockets}; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Allows the page's files and this server, nothing else. Sent with every response, which does no
harm."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(self), microphone=(self), geolocation=()"),
    # Not `same-origin`: that would detach the tab in which the dashboard opens Perfetto from its
    # page.
    (b"cross-origin-opener-policy", b"same-origin-allow-popups"),
)
_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ADMITTED = "headstart.admitted"


def admitted_of(scope: Scope) -> Admitted:
    """What a request was admitted with."""
    admitted: Admitted = scope.get(_ADMITTED, Admitted())
    return admitted


def key_id_of(scope: Scope) -> str:
    """The id of a request's key (`Admitted.key_id`)."""
    return admitted_of(scope).key_id


def policy_for(host: str) -> str:
    """The page's Content-Security-Policy. Some browsers do not treat a WebSocket to the page's own
    host as 'self', so the host is named too, if it could be a browser's."""
    named = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) is not None else ""
    return PAGE_POLICY.format(sockets=named)


class AuthMiddleware:
    """ASGI middleware. Answers requests that are refused.

    A WebSocket with a wrong key is refused after the handshake, because one client retries a failed
    handshake without end; one from a forbidden page gets no handshake.

    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            await self._admit(scope, receive, send)
        except (ClientDisconnect, WebSocketDisconnect):
            log.debug("a client left before it was answered")
        except asyncio.CancelledError:
            # Nothing else cancels a request: the server is shutting down, and has closed the
            # connection.
            log.debug("a request was given up at the end of the server")

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        verdict = _path_verdict(scope) or self._access.judge(
            scope["path"], headers, since_boot_s(), scope.get("subprotocols", ())
        )
        if scope["type"] == "http":
            send = _with_policies(send, policy_for(headers.get("host", "")))
        if not isinstance(verdict, Refused):
            await self._app({**scope, _ADMITTED: verdict}, receive, send)
            return
        log.warning("refused %s: %s", scope["path"], verdict.code)
        if scope["type"] == "http":
            await _response(verdict)(scope, receive, send)
        elif verdict.status == 401:
            await reject_websocket(WebSocket(scope, receive, send), errors.invalid_api_key())
        else:
            socket = WebSocket(scope, receive, send)
            await socket.send_denial_response(_response(verdict))


def _path_verdict(scope: Scope) -> Refused | None:
    """Refuses an invalid path, before authentication."""
    path: str = scope["path"]
    if _CONTROL.search(path) is not None:
        return Refused(400, "invalid_path", "A path may not contain control characters.")
    if scope["type"] == "websocket" and path not in SOCKET_PATHS:
        known = f"{SOCKET_PATHS[0]} and {SOCKET_PATHS[-1]}"
        return Refused(404, "unknown_path", f"There is no WebSocket but at {known}.")
    return None


def _with_policies(send: Send, policy: str) -> Send:
    """`send`, adding the security headers for browsers."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = (b"content-security-policy", policy.encode())
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS, said]}
        await send(message)

    return sending


def guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """`app` behind authentication, and readable for allowed pages."""
    middleware: ASGIApp = AuthMiddleware(app, access)
    if not access.origins:
        return middleware
    return CORSMiddleware(
        middleware,
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
    """The rest of an offered subprotocol's name after `prefix`."""
    names: list[str] = socket.scope.get("subprotocols", [])
    return next((name.removeprefix(prefix) for name in names if name.startswith(prefix)), None)


async def reject_websocket(socket: WebSocket, error: FatalProtocolError) -> None:
    """Complete the handshake if needed, send the error, and close."""
    names = socket.scope.get("subprotocols", [])
    if socket.application_state is WebSocketState.CONNECTING:
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in names else None)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_json(error.to_event(f"event_{secrets.token_hex(12)}"))
        await socket.close(error.close_code, error.close_reason)
