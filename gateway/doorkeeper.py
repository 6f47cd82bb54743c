"""Who may come in: an ASGI layer in front of every route.

    origin not allowed        403, before the upgrade
    no valid key, HTTP        401
    no valid key, WebSocket   accepted, one `error` event, closed with 3000: some clients try again
                              for ever when the handshake fails
    too many sessions of one key   429 with Retry-After, before the upgrade

The API's paths want a key where keys are set; the page, /healthz, /status and /metrics never do.
Whose request it is stands in `HOLDER` for whatever is done for it: `gateway.app.Gateway.seated`
counts sessions by it. Cross-origin requests that are allowed get their CORS headers here.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.api_keys import ApiKeys
from gateway.client_secrets import PREFIX, ClientSecrets
from gateway.origins import Origins
from gateway.protocol import errors

log = logging.getLogger("headstart.door")

HOLDER: ContextVar[str | None] = ContextVar("holder", default=None)
"""Whose request is being served; None: the server is open."""

KEY_SUBPROTOCOL = "openai-insecure-api-key."
SUBPROTOCOL = "realtime"
RETRY_AFTER_S = 5
API_PREFIXES = ("/v1/", "/realtime", "/models")
CORS_MAX_AGE_S = 600


class Seating:
    """How many sessions each holder has. Bound: as many names as there are keys."""

    def __init__(self, most: int) -> None:
        """`most` sessions of one holder; 0: no limit."""
        self._most = most
        self._now: Counter[str] = Counter()

    def is_full(self, holder: str | None) -> bool:
        return holder is not None and 0 < self._most <= self._now[holder]

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """A session of the request being served, as long as it lasts."""
        holder = HOLDER.get()
        if holder is None:
            yield
            return
        self._now[holder] += 1
        try:
            yield
        finally:
            self._now[holder] -= 1


class Doorkeeper:
    """The layer around `app`."""

    def __init__(
        self,
        app: ASGIApp,
        keys: ApiKeys,
        client_secrets: ClientSecrets,
        origins: Origins,
        seating: Seating,
    ) -> None:
        self._app = app
        self._keys = keys
        self._secrets = client_secrets
        self._origins = origins
        self._seating = seating

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if not scope["path"].startswith(API_PREFIXES):
            await self._app(scope, receive, send)
        elif not self._origins.allows(origin, headers.get("host", "")):
            log.warning("refused a page of %.100r", origin)
            await _refuse(scope, receive, send, _forbidden())
        elif scope["type"] == "http" and origin is not None:
            await self._admit(scope, receive, _with_cors(send, origin))
        else:
            await self._admit(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        if is_http and scope["method"] == "OPTIONS":  # a preflight carries no key
            await Response(status_code=204)(scope, receive, send)
            return
        holder = self._holder(scope)
        if len(self._keys) and holder is None:
            refused = _unauthorised()
            if is_http:
                await refused(scope, receive, send)
            else:
                await turn_away(WebSocket(scope, receive, send))
            return
        begins = not is_http or scope["path"].endswith("/calls")
        if begins and self._seating.is_full(holder):
            log.warning("refused a session: %s has all of its own in use", holder)
            await _refuse(scope, receive, send, _too_many())
            return
        token = HOLDER.set(holder)
        try:
            await self._app(scope, receive, send)
        finally:
            HOLDER.reset(token)

    def _holder(self, scope: Scope) -> str | None:
        """Whose key came with the request. A secret is its issuer's, and makes no more secrets."""
        if not len(self._keys):
            return None
        key = key_of(scope)
        if not key.startswith(PREFIX):
            return self._keys.holder_of(key)
        grant = self._secrets.find(key, time.time())
        if grant is None or scope["path"].endswith("/client_secrets"):
            return None
        return grant.holder


def key_of(scope: Scope) -> str:
    """The client's key, from the header or, as browsers have to, from a subprotocol's name; empty
    where there is none."""
    for offered in scope.get("subprotocols", []):
        if offered.startswith(KEY_SUBPROTOCOL):
            return str(offered).removeprefix(KEY_SUBPROTOCOL)
    return Headers(scope=scope).get("authorization", "").removeprefix("Bearer ").strip()


async def turn_away(socket: WebSocket) -> None:
    """An unauthorised client, after the handshake."""
    error = errors.invalid_api_key()
    offered = socket.scope.get("subprotocols", [])
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        await socket.send_json(error.to_event(f"event_{secrets.token_hex(12)}"))
        await socket.close(error.close_code, error.close_reason)


async def _refuse(scope: Scope, receive: Receive, send: Send, response: Response) -> None:
    """Before the upgrade, where one was asked for."""
    if scope["type"] == "http":
        await response(scope, receive, send)
    else:
        await WebSocket(scope, receive, send).send_denial_response(response)


def _with_cors(send: Send, origin: str) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS"
            headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
            headers["Access-Control-Expose-Headers"] = "Location, Retry-After"
            headers["Access-Control-Max-Age"] = str(CORS_MAX_AGE_S)
            headers.add_vary_header("Origin")
        await send(message)

    return answer


def _forbidden() -> Response:
    message = "Pages of this origin may not use this server; see its setting allowed_origins."
    return _error(403, "invalid_request_error", "origin_not_allowed", message)


def _unauthorised() -> Response:
    error = errors.invalid_api_key()
    response = _error(401, error.type, error.code, error.message)
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _too_many() -> Response:
    message = f"This key has as many sessions as it may have. Try again in {RETRY_AFTER_S} s."
    response = _error(429, "rate_limit_error", "rate_limit_exceeded", message)
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _error(status: int, type_: str, code: str | None, message: str) -> Response:
    error = {"type": type_, "code": code, "message": message, "param": None}
    return JSONResponse({"error": error}, status_code=status)
