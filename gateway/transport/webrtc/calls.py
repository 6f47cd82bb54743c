"""The HTTP side of WebRTC, as in the Realtime API.

POST /v1/realtime/calls               an SDP offer, raw or multipart with a session. 201: the answer
                                      in the body and the call's address in Location. With a
                                      token in the header `headstart-resume`, the call resumes
                                      the session of that token
POST /v1/realtime/calls/{id}/hangup   end a call
POST, PUT or PATCH /v1/realtime/calls/{id}  405: a call is not renegotiated
POST /v1/realtime/client_secrets      a short-lived key for a browser, with session settings

"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headstart.gateway.auth.access import Admitted, key_of
from headstart.gateway.auth.client_secrets import LIFETIME_S, LIFETIME_S_DEFAULT, ClientSecrets
from headstart.gateway.auth.middleware import admitted_of
from headstart.gateway.connection.interfaces import Connection, Player, SessionCore
from headstart.gateway.connection.registry import SessionEntry, SessionRegistry
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.errors import FatalProtocolError, ProtocolError
from headstart.gateway.protocol.headers import RESUME_HEADER, RESUME_LAST_EVENT
from headstart.gateway.protocol.parse import decode_json, parse_session
from headstart.gateway.protocol.session_config import SessionUpdate
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.clocks import since_boot_s
from headstart.gateway.settings import Settings
from headstart.gateway.transport.webrtc import aiortc_hooks, steady_time
from headstart.gateway.transport.webrtc.call import AnswerTooSlow, Call, describe_ice
from headstart.gateway.transport.webrtc.call_metrics import CallEnd, CallMetrics
from headstart.gateway.transport.webrtc.offer import BadOffer, Offer, checked
from headstart.gateway.transport.webrtc.renegotiation import AnsweredOffers

log = logging.getLogger("headstart.rtc")

SDP_BYTES_MAX = 64 * 1024
SESSION_BYTES_MAX = 1024 * 1024
BODY_BYTES_MAX = SDP_BYTES_MAX + SESSION_BYTES_MAX + 16 * 1024
HANGUP_WAIT_S = 5.0
SDP_TYPE = "application/sdp"


@dataclass(frozen=True, slots=True)
class _CallRequest:
    """A request for a call."""

    offer: Offer
    sessions: tuple[SessionUpdate, ...]
    """Settings to apply in order: the secret's, then the request's own."""


class Sessions(Protocol):
    """What calls need of the gateway (`headstart.gateway.server.app.Gateway`)."""

    settings: Settings
    secrets: ClientSecrets
    registry: SessionRegistry

    def refuse_http(self, admitted: Admitted, sockets: int = 0) -> Response | None:
        """The error response if no session can be opened; None if one can."""

    def new_session(self) -> tuple[str, SessionCore]:
        """The id and core of a new session."""

    def new_entry(
        self, link: Connection, key_id: str, player: Player | None = None
    ) -> SessionEntry:
        """A new session over `link` for the holder of a key; it has not begun."""

    def registered(self, entry: SessionEntry) -> AbstractContextManager[None]:
        """While the context is open, the session counts towards the limit."""


class Calls:
    """The calls of one gateway. Call `end_all` before the loop ends."""

    def __init__(self, gateway: Sessions, metrics: CallMetrics) -> None:
        steady_time.install()
        aiortc_hooks.refuse_broken_stun()
        self._gateway = gateway
        self.metrics = metrics
        self._ice_servers = describe_ice(
            gateway.settings.ice_servers,
            gateway.settings.turn_username,
            gateway.settings.turn_credential,
        )
        if "turn" in gateway.settings.ice_servers:
            aiortc_hooks.log_relay_failures()
        self._calls: dict[str, Call] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._owners: dict[str, Admitted] = {}
        self._carrying: dict[str, Call] = {}  # by session
        self._offers = AnsweredOffers()

    def __len__(self) -> int:
        return len(self._calls)

    def state_of(self, session_id: str) -> dict[str, float | None] | None:
        """Of the call that carries a session; None: none does."""
        call = self._carrying.get(session_id)
        return None if call is None else call.state(time.monotonic_ns())

    def routes(self) -> list[Route]:
        paths = []
        for prefix in ("/v1/realtime", "/realtime"):
            paths += [
                Route(f"{prefix}/calls", self.create, methods=["POST"]),
                Route(f"{prefix}/calls/{{call_id}}/hangup", self.hangup, methods=["POST"]),
                Route(f"{prefix}/calls/{{call_id}}", self.change, methods=["POST", "PUT", "PATCH"]),
                Route(f"{prefix}/client_secrets", self.client_secret, methods=["POST"]),
            ]
        return paths

    async def end_all(self) -> None:
        """Hang up every call and wait until all have ended."""
        for call in list(self._calls.values()):
            call.hang_up(CallEnd.SERVER)
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    # --- requests --------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        token = request.headers.get(RESUME_HEADER)
        owner = admitted_of(request.scope)
        refused = self._gateway.refuse_http(owner) if token is None else None
        if refused is not None:
            return refused
        try:
            call_request = await self._parse(request)
            if self._offers.changes_a_call(call_request.offer.sdp):
                return _failed(409, errors.no_renegotiation())
            if token is not None:
                return await self._resume(call_request, token, owner, request)
            # The last slot may have been taken while the body arrived.
            sockets = aiortc_hooks.sockets_of(call_request.offer.transports, self._ice_servers)
            refused = self._gateway.refuse_http(owner, sockets)
            return refused if refused is not None else await self._answer(call_request, owner)
        except FatalProtocolError as error:  # about the token
            return _failed(409 if error.code == errors.RESUME_IN_USE else 404, error)
        except ProtocolError as error:
            return _failed(400, error)
        except BadOffer as error:
            return _failed(400, ProtocolError("invalid_offer", str(error), param="sdp"))
        except AnswerTooSlow:
            message = "The server is too busy to answer a call in time. Try again later."
            return _failed(503, ProtocolError("server_overloaded", message, type="server_error"))

    async def hangup(self, request: Request) -> Response:
        call = self._calls.get(request.path_params["call_id"])
        # The call of another key is reported as unknown.
        if call is None or not admitted_of(request.scope).owns(self._owners[call.call_id]):
            message = "No session found for the provided call_id"
            return _failed(404, ProtocolError("call_id_not_found", message, param=""))
        call.hang_up()
        await asyncio.wait({self._running[call.call_id]}, timeout=HANGUP_WAIT_S)
        return Response(status_code=200)

    async def change(self, _request: Request) -> Response:
        return _failed(405, errors.no_renegotiation())

    async def client_secret(self, request: Request) -> Response:
        try:
            body = decode_json((await _body(request)).decode(errors="replace") or "{}")
            if not isinstance(body, dict):
                raise errors.invalid_type("body", "an object", body)
            session = body.get("session")
            core = self._gateway.new_session()[1]
            if session is not None:
                core.preset(parse_session(session), time.monotonic_ns())
            lifetime_s = _lifetime_s(body.get("expires_after"))
        except ProtocolError as error:
            return _failed(400, error)
        expires_at = int(time.time()) + lifetime_s  # wall-clock time, only for the client
        key_id = admitted_of(request.scope).key_id
        value = self._gateway.secrets.issue(session, lifetime_s, since_boot_s(), key_id)
        effective = core.describe() | {"expires_at": 0}
        return JSONResponse({"value": value, "expires_at": expires_at, "session": effective})

    # --- a call's life ---------------------------------------------------------------------------

    async def _parse(self, request: Request) -> _CallRequest:
        """Parse the request. Raises `ProtocolError` and `BadOffer`."""
        sessions = self._secrets_session(request)
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            offer, session = await _multipart(request)
            if session is not None:
                sessions = (*sessions, parse_session(decode_json(session)))
        else:
            offer = (await _body(request)).decode(errors="replace")
        if not offer.lstrip().startswith("v="):
            raise errors.invalid_value("sdp", "an SDP offer", offer)
        if len(offer) > SDP_BYTES_MAX:
            raise errors.event_too_large(len(offer), SDP_BYTES_MAX, "bytes of SDP")
        looked_through = checked(offer, self._gateway.settings.ice_private_candidates)
        if looked_through.dropped:
            log.info("an offer named %d candidates that are not called", looked_through.dropped)
        return _CallRequest(looked_through, sessions)

    def _secrets_session(self, request: Request) -> tuple[SessionUpdate, ...]:
        grant = self._gateway.secrets.find(key_of(request.headers), since_boot_s())
        if grant is None or grant.session is None:
            return ()
        return (parse_session(grant.session),)

    async def _answer(self, call_request: _CallRequest, owner: Admitted) -> Response:
        """Open a session and a call for it. Raises `ProtocolError` and `BadOffer`."""
        gateway = self._gateway
        call = self._call(call_request)
        entry = gateway.new_entry(call.channel, owner.key_id, call.outgoing)
        for session in call_request.sessions:
            entry.core.preset(session, time.monotonic_ns())
        with contextlib.ExitStack() as stack:
            stack.enter_context(gateway.registered(entry))
            answer = await call.answer()
            gateway.registry.begin(entry, stack.pop_all())
        return self._begin(call, entry, answer, owner)

    async def _resume(
        self, call_request: _CallRequest, token: str, owner: Admitted, request: Request
    ) -> Response:
        """A call that resumes a session. Raises `FatalProtocolError` and `BadOffer`."""
        registry = self._gateway.registry
        async with registry.claimed(token, owner.key_id) as entry:
            call = self._call(call_request)
            answer = await call.answer()
            last_event_id = request.query_params.get(RESUME_LAST_EVENT)
            try:
                registry.resume(entry, call.channel, last_event_id, call.outgoing)
            except FatalProtocolError:
                await call.close()
                raise
        return self._begin(call, entry, answer, owner)

    def _call(self, call_request: _CallRequest) -> Call:
        # The gateway's name, for a load balancer to find it again by.
        name = self._gateway.settings.gateway_name
        call_id = "_".join(filter(None, ("rtc", name, secrets.token_hex(12))))
        return Call(call_id, self._ice_servers, self.metrics, call_request.offer.sdp)

    def _begin(self, call: Call, entry: SessionEntry, answer: str, owner: Admitted) -> Response:
        """Start the call; returns the response to its peer."""
        self._calls[call.call_id], self._owners[call.call_id] = call, owner
        self._carrying[entry.session_id] = call
        self._running[call.call_id] = tasks.own(self._run(call, entry), "call", entry.runner.fail)
        log.info("call %s is session %s", call.call_id, entry.session_id)
        headers = {
            "Location": f"/v1/realtime/calls/{call.call_id}",
            "Access-Control-Expose-Headers": "Location",
        }
        return Response(answer, status_code=201, media_type=SDP_TYPE, headers=headers)

    async def _run(self, call: Call, entry: SessionEntry) -> None:
        offer = call.answered = self._offers.answered(call.offer)
        try:
            await call.run(entry.runner, entry.resume_channel)
            if entry.resume_channel.is_over:
                await entry.over.wait()
        finally:
            self._offers.ended(offer)
            for of_call in (self._calls, self._running, self._owners):
                del of_call[call.call_id]
            if self._carrying.get(entry.session_id) is call:
                del self._carrying[entry.session_id]


async def _limited(request: Request) -> AsyncGenerator[bytes, None]:
    """The body in pieces. Raises `ProtocolError` if it is too large."""
    size_bytes = 0
    async for piece in request.stream():
        size_bytes += len(piece)
        if size_bytes > BODY_BYTES_MAX:
            raise errors.event_too_large(size_bytes, BODY_BYTES_MAX, "bytes")
        yield piece


async def _body(request: Request) -> bytes:
    return b"".join([piece async for piece in _limited(request)])


async def _multipart(request: Request) -> tuple[str, str | None]:
    """The parts `sdp` and `session`, with or without a content type and a file name."""
    parser = MultiPartParser(
        request.headers, _limited(request), max_fields=8, max_part_size=SESSION_BYTES_MAX
    )
    parser.spool_max_size = BODY_BYTES_MAX  # otherwise a long part would be written to disk
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        raise errors.invalid_value("body", f"multipart form data ({error})", "") from error
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(form.close)
        parts: dict[str, str] = {}
        for name in ("sdp", "session"):
            part = form.get(name)
            if part is not None:
                data = part if isinstance(part, str) else await part.read(SESSION_BYTES_MAX)
                parts[name] = data if isinstance(data, str) else data.decode(errors="replace")
    if "sdp" not in parts:
        raise errors.missing_parameter("sdp")
    return parts["sdp"], parts.get("session")


def _lifetime_s(expires_after: Any) -> int:
    """Raises `ProtocolError`."""
    if expires_after is None:
        return LIFETIME_S_DEFAULT
    if not isinstance(expires_after, dict):
        raise errors.invalid_type("expires_after", "an object", expires_after)
    seconds = expires_after.get("seconds", LIFETIME_S_DEFAULT)
    whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not whole or not LIFETIME_S.holds(seconds):
        allowed = f"a whole number from {LIFETIME_S.least} to {LIFETIME_S.most}"
        raise errors.invalid_value("expires_after.seconds", allowed, seconds)
    return int(seconds)


def _failed(status: int, error: ProtocolError) -> Response:
    body = {
        "type": error.type,
        "code": error.code,
        "message": error.message,
        "param": error.param,
    }
    return JSONResponse({"error": body}, status_code=status)
