"""The HTTP and WebSocket front of the gateway.

GET /v1/realtime, /realtime   the conversation (WebSocket); 503 before the upgrade when full
POST /v1/realtime/calls, …     the same over WebRTC; see `headstart.gateway.transport.webrtc.calls`
GET /v1/models                the one model, as OpenAI's API lists them
GET /healthz                  200 when gateway and engine can serve, else 503
GET /ready                    for load balancers: 200 if it takes new sessions, 404 if it retires,
                              503 if it cannot serve now
GET /status                   for people and pages: what the engine is doing, sessions, model
GET /metrics                  Prometheus text, or OpenMetrics for who asks for it
GET /v1/dashboard             the latency dashboard's feed (WebSocket), `gateway.dashboard`
GET /                         the web demo's files
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from headstart.engine import api
from headstart.gateway.auth.access import Access, Admitted, key_of
from headstart.gateway.auth.client_secrets import ClientSecrets
from headstart.gateway.auth.middleware import (
    SUBPROTOCOL,
    admitted_of,
    guarded,
    key_id_of,
    offered,
    reject_websocket,
)
from headstart.gateway.auth.share_domains import ShareDomains
from headstart.gateway.connection.interfaces import Connection, Player, SessionCore
from headstart.gateway.connection.outbound import Bounds
from headstart.gateway.connection.pending import DroppedConnections
from headstart.gateway.connection.registry import (
    ResumeMetrics,
    SessionEntry,
    SessionRegistry,
    new_token,
)
from headstart.gateway.connection.resume import ResumableChannel
from headstart.gateway.connection.runner import CLOSE_SERVICE_RESTART, TICK_S, SessionRunner
from headstart.gateway.dashboard.dashboard import Dashboard
from headstart.gateway.dashboard.feed import feed
from headstart.gateway.dashboard.hub import Hub
from headstart.gateway.engines.engines import Engines
from headstart.gateway.protocol import frames
from headstart.gateway.protocol.errors import FatalProtocolError
from headstart.gateway.protocol.headers import RESUME_HEADER, RESUME_LAST_EVENT, RESUME_SUBPROTOCOL
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.clocks import since_boot_s
from headstart.gateway.runtime.threads import METRICS
from headstart.gateway.runtime.ticker import Ticker
from headstart.gateway.server import handshake
from headstart.gateway.server.descriptors import Descriptors
from headstart.gateway.server.elsewhere import HANDLERS
from headstart.gateway.server.overview import Overview
from headstart.gateway.session.actions import Hangup
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.footprint import footprint
from headstart.gateway.telemetry.loop_lag import LoopLag
from headstart.gateway.telemetry.metrics import Metrics, MetricsPage
from headstart.gateway.transport.websocket.channel import WebSocketChannel
from headstart.gateway.tts.link import VoiceLink
from headstart.gateway.tts.messages import VoiceCommand

if TYPE_CHECKING:  # aiortc takes half a second to import
    from headstart.gateway.transport.webrtc.calls import Calls

log = logging.getLogger("headstart.gateway")

RETRY_AFTER_S = 5
DRAIN_POLL_S = 0.05
PROJECT_WEB_DIR = Path(__file__).resolve().parents[2] / "web-demo"
"""Next to `gateway/`, both in the project's folder and in an installed `headstart/`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no session can be opened. `is_yours`: the limit of this key, not of the server."""

    reason: str
    is_yours: bool = False


class SessionMaker(Protocol):
    """Makes the sans-I/O core of one new session."""

    def __call__(self, session_id: str, engine_ready: bool, model_name: str) -> SessionCore: ...


class Gateway:
    """The sessions of this process, the link to the engine, and the session limits."""

    def __init__(
        self,
        settings: Settings,
        engines: Engines,
        make_session: SessionMaker,
        metrics_page: Callable[[], MetricsPage],
        voice: VoiceLink | None = None,
        resume_metrics: ResumeMetrics | None = None,
        hub: Hub | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.settings = settings
        self.engines = engines
        self.runners: dict[str, SessionRunner] = {}
        self.registry = SessionRegistry(resume_metrics)
        self._share_domains = ShareDomains(between_keys=settings.share_between_keys)
        self.secrets = ClientSecrets(settings.gateway_name or "")
        self.calls: Calls | None = None
        self.descriptors: Descriptors | None = None
        self.voice = voice
        self.draining = False
        self._retired: Callable[[], None] | None = None
        self._grace_over = False
        self.loop_lag = LoopLag()
        self._ticker = Ticker(TICK_S)
        self.sessions_refused = 0
        self.sessions_shed = 0
        self.sessions_stuck = 0
        self.dropped_connections = DroppedConnections()
        self.access = Access.from_settings(settings, self.secrets)
        self._sessions_of: Counter[str] = Counter()  # by key id
        self._make_session = make_session
        self._metrics_page = metrics_page
        self._started_s = time.monotonic()
        self.hub = hub or Hub()
        self.hub.rtc_of = self._rtc_of
        self.registry.on_resumed = self._resumed
        overview = Overview(self, self.hub, metrics or Metrics())
        self.dashboard = Dashboard(self.hub, overview.facts, overview.look)

    @property
    def model_name(self) -> str:
        """The engine's name for its model; until it is known, the name in the settings."""
        ready = self.engines.ready
        return ready.model.name if ready is not None else self.settings.model

    @property
    def retiring(self) -> bool:
        """It asks for no new sessions, keeps those that it has, and ends with the last one."""
        return self._retired is not None

    def retire(self, retired: Callable[[], None]) -> None:
        """Tell load balancers (`/ready`) that there should be no new sessions. After
        `retire_grace_s` take no more, but for client secrets that were issued here, and call
        `retired` when the last session is gone. Only the first call counts."""
        if self._retired is not None:
            return
        log.info("retiring: %d sessions are left", len(self.runners))
        self._retired = retired
        over = tasks.guard(self._retire_now, "drain", tasks.nothing_depends_on_it)
        asyncio.get_running_loop().call_later(self.settings.retire_grace_s, over)

    def _retire_now(self) -> None:
        self._grace_over = True
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._retired is not None and self._grace_over and not self.runners:
            log.info("the last session is gone")
            self._retired()

    def refusal(
        self, key_id: str = "", sockets: int = 0, *, has_secret: bool = False
    ) -> Refusal | None:
        """Why the holder of a key cannot open a session now, one that needs `sockets` descriptors
        besides its connection; None if it can. `has_secret`: it was promised one, by a client
        secret."""
        limit, limit_per_key = self.settings.max_sessions, self.settings.max_sessions_per_key
        if self.draining or (self._grace_over and not has_secret):
            return Refusal("the server is shutting down")
        if len(self.runners) >= limit:
            return Refusal(f"all {limit} sessions of this server are in use")
        if key_id and limit_per_key and self._sessions_of[key_id] >= limit_per_key:
            return Refusal(f"this key has {limit_per_key} sessions already", is_yours=True)
        if self.descriptors is not None and not self.descriptors.has_room(
            len(self.runners), sockets
        ):
            return Refusal("this server has no file descriptors left for another one")
        if not self.engines.has_room:
            return Refusal("no engine has room for another one")
        return None

    def refuse_http(self, admitted: Admitted, sockets: int = 0) -> Response | None:
        """The error response if no session can be opened; None if one can."""
        refusal = self.refusal(admitted.key_id, sockets, has_secret=admitted.secret != "")
        if refusal is None:
            return None
        self.sessions_refused += 1
        log.warning("refused a session: %s", refusal.reason)
        return _refused(refusal)

    def new_session(self) -> tuple[str, SessionCore]:
        """The id and core of a new session."""
        session_id = f"sess_{secrets.token_hex(12)}"
        return session_id, self._make_session(session_id, self.engines.is_ready, self.model_name)

    def new_entry(
        self, link: Connection, key_id: str, player: Player | None = None
    ) -> SessionEntry:
        """A new session over `link` for the holder of a key; it has not begun."""
        session_id, core = self.new_session()
        keep_s = self.settings.resume_s
        resume_channel = ResumableChannel(
            link,
            lambda: core.resumable,
            keep_s,
            self.registry.expired,
            lambda: self.hub.detached(session_id),
        )
        settings = self.settings
        frame_bytes = frames.FRAME_BYTES_MAX if player is None else frames.CHANNEL_BYTES_MAX
        bounds = Bounds(
            settings.outbound_events, settings.outbound_bytes, settings.idle_s, frame_bytes
        )
        runner = SessionRunner(
            session_id,
            resume_channel,
            core,
            self._share_domains.within_domain(key_id, self.engines.send),
            bounds,
            send_to_tts=self.send_to_tts,
            player=player,
            ticker=self._ticker,
        )
        token = new_token(self.settings.gateway_name or "")
        if keep_s > 0:
            core.offer_resume(token, round(keep_s * 1000))
        return SessionEntry(session_id, core, resume_channel, runner, token, key_id)

    @contextlib.contextmanager
    def registered(self, entry: SessionEntry) -> Iterator[None]:
        """Count the session towards `max_sessions`, and route the engine's events to its runner."""
        session_id, runner, key_id = entry.session_id, entry.runner, entry.key_id
        self.runners[session_id] = runner
        self._sessions_of[key_id] += 1
        self.engines.attach(session_id, runner)
        self.hub.opened(session_id, transport_of(runner.player))
        if self.voice is not None:
            self.voice.attach(session_id, runner)
        try:
            yield
        finally:
            self.engines.detach(session_id)
            self.hub.closed(session_id)
            if self.voice is not None:
                self.voice.detach(session_id)
            del self.runners[session_id]
            self._sessions_of[key_id] -= 1
            if not self._sessions_of[key_id]:
                del self._sessions_of[key_id]
            self.sessions_shed += runner.shed
            self.sessions_stuck += runner.stuck
            self._end_if_empty()

    def send_to_tts(self, command: VoiceCommand) -> bool:
        """Send to the TTS worker. False: there is none."""
        return self.voice is not None and self.voice.send(command)

    def _resumed(self, entry: SessionEntry, player: Player | None) -> None:
        self.hub.resumed(entry.session_id, transport_of(player))

    def _rtc_of(self, session_id: str) -> dict[str, float | None] | None:
        return None if self.calls is None else self.calls.state_of(session_id)

    @property
    def engine_restarts(self) -> int:
        """Since this process started."""
        return self.engines.restarts

    def engine_lost(self, why: str) -> None:
        """Tell who watches; at the end of the server it is meant to go."""
        if not self.draining:
            self.hub.error("engine_lost", f"The engine was lost: {why}.", None)

    async def watch(self, socket: WebSocket) -> None:
        """The dashboard's feed."""
        names = socket.scope.get("subprotocols", [])
        channel = WebSocketChannel(socket)
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in names else None)
        channel.registered()
        if self.draining:
            code, reason = CLOSE_SERVICE_RESTART, "the server is shutting down"
        else:
            code, reason = await feed(self.dashboard, channel)
        await channel.close(Hangup(code, reason))

    async def converse(self, socket: WebSocket) -> None:
        """The WebSocket endpoint: opens a session, or resumes one, until the socket closes."""
        admitted = admitted_of(socket.scope)
        key_id = admitted.key_id
        token = offered(socket, RESUME_SUBPROTOCOL) or socket.headers.get(RESUME_HEADER)
        refused = self.refuse_http(admitted) if token is None else None
        if refused is not None:
            await socket.send_denial_response(refused)
            return
        subprotocols = socket.scope.get("subprotocols", [])
        error = handshake.refused(socket.query_params, socket.headers, subprotocols)
        if error is not None:
            await reject_websocket(socket, error)
            return
        channel = WebSocketChannel(socket)
        if token is not None:
            await self._go_on(socket, channel, token)
            return
        entry = self.new_entry(channel, key_id)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.registered(entry))  # before the first await
            await socket.accept(SUBPROTOCOL if SUBPROTOCOL in subprotocols else None)
            only = socket.query_params.get("intent") == handshake.TRANSCRIPTION
            self._preset(entry.core, key_of(socket.headers, subprotocols), only_transcribes=only)
            self.registry.begin(entry, stack.pop_all())
        channel.registered()
        await entry.resume_channel.carry(channel)

    async def _go_on(self, socket: WebSocket, channel: WebSocketChannel, token: str) -> None:
        """Resume the session of a token, whose connection broke."""
        subprotocols = socket.scope.get("subprotocols", [])
        try:
            async with self.registry.claimed(token, key_id_of(socket.scope)) as entry:
                await socket.accept(SUBPROTOCOL if SUBPROTOCOL in subprotocols else None)
                self.registry.resume(entry, channel, socket.query_params.get(RESUME_LAST_EVENT))
        except FatalProtocolError as error:
            await reject_websocket(socket, error)
            return
        channel.registered()
        await entry.resume_channel.carry(channel)

    def _preset(self, core: SessionCore, key: str, *, only_transcribes: bool) -> None:
        """Apply the settings of the client's secret, if it has one, and the requested session type,
        to a new session."""
        grant = self.secrets.find(key, since_boot_s())
        wanted = [] if grant is None or grant.session is None else [grant.session]
        wanted += [{"type": "transcription"}] if only_transcribes else []
        for session in wanted:
            from headstart.gateway.protocol.parse import (
                parse_session,  # the schema is loaded while the engine loads
            )

            core.preset(parse_session(session), time.monotonic_ns())

    async def drain(self) -> None:
        """Open no more sessions, wait up to `drain_s` for running responses, then hang up."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_s):
                await self._answers_done()
        self.registry.hang_up(Hangup(CLOSE_SERVICE_RESTART, "the server is shutting down"))
        # Let the writers run once, so that clients that read get the reason.
        await asyncio.sleep(DRAIN_POLL_S)
        self.hub.end(CLOSE_SERVICE_RESTART, "the server is shutting down")
        if self.calls is not None:
            await self.calls.end_all()

    async def _answers_done(self) -> None:
        while any(runner.answering > 0 for runner in self.runners.values()):
            await asyncio.sleep(DRAIN_POLL_S)

    # --- HTTP ------------------------------------------------------------------------------------

    async def healthz(self, _: Request) -> Response:
        well = self.engines.is_ready and not self.draining
        body = {
            "gateway": "draining" if self.draining else "retiring" if self.retiring else "ok",
            "engine": str(self.engines.state),
            "reason": self.engines.reason,
        }
        return JSONResponse(body, status_code=200 if well else 503)

    async def ready(self, _: Request) -> Response:
        """404 is what load balancers take for "no new sessions, and leave those that are there"
        (HAProxy: `http-check disable-on-404`)."""
        if self.retiring or self.draining:
            return PlainTextResponse("no new sessions\n", status_code=404)
        if not self.engines.is_ready:
            return PlainTextResponse(f"no engine: {self.engines.reason}\n", status_code=503)
        refusal = self.refusal()
        if refusal is not None:
            return PlainTextResponse(f"{refusal.reason}\n", status_code=503)
        return PlainTextResponse("ready\n")

    async def status(self, _: Request) -> Response:
        return JSONResponse(self.status_body(), headers={"Cache-Control": "no-store"})

    def status_body(self) -> dict[str, Any]:
        """`loading` is null unless the engine is loading; its `total` 0 means unknown."""
        engines = self.engines
        loading, stats, ready = engines.loading, engines.stats, engines.ready
        model = ready.model if ready is not None else None
        return {
            "engine": {
                "state": engines.state,
                "reason": engines.reason,
                "loading": loading
                and {"what": loading.what, "done": loading.done, "total": loading.total},
                "restarts": engines.restarts,
                "rss_bytes": stats.rss_bytes if stats else None,
                "kv_blocks_used": stats.kv_blocks_used if stats else None,
                "kv_blocks_total": stats.kv_blocks_total if stats else None,
                "kv_blocks_cached": stats.kv_blocks_cached if stats else None,
                "sessions": stats.sessions if stats else None,
                "pending_prefill_tokens": stats.pending_prefill_tokens if stats else None,
                "memory": stats and _memory_body(stats),
                "llm_servers": msgspec.to_builtins(stats.llm_servers) if stats else None,
            },
            "engines": engines.body(),
            "gateway": footprint() | {"name": self.settings.gateway_name},
            "model": {
                "name": self.model_name,
                "context_tokens": model.context_tokens if model else None,
                "weights_bytes": model.weights_bytes if model else None,
                "load_s": model.load_s if model else None,
                "load_stages_s": (model.load_stages_s or None) if model else None,
                "kv_bytes_per_token": model.kv_bytes_per_token if model else None,
                "kv_pool_bytes": model.kv_pool_bytes if model else None,
                "device": (model.device or None) if model else None,
                "device_reason": (model.device_reason or None) if model else None,
                "ears": (model.ears or None) if model else None,
                "ears_reason": (model.ears_reason or None) if model else None,
                "ears_device": (model.ears_device or None) if model else None,
                "llm_server": (model.llm_server or None) if model else None,
            },
            "voice": self._voice_body(),
            "sessions": {
                "now": len(self.runners),
                "max": self.settings.max_sessions,
                "detached": sum(entry.resume_channel.is_detached for entry in self.registry),
                "refused": self.sessions_refused,
                "shed": self.sessions_shed,
                "stuck": self.sessions_stuck,
            },
            "camera_rungs": camera_rungs(self.registry),
            "connections_cut": dict(self.dropped_connections),
            "webrtc": self.calls is not None,
            "draining": self.draining,
            "retiring": self.retiring,
            "loop_lag": self.loop_lag.summary()._asdict(),
            "uptime_s": round(time.monotonic() - self._started_s, 3),
        }

    def _voice_body(self) -> dict[str, Any]:
        if self.voice is None:
            return {"state": "off", "name": "", "reason": "this server was started without one"}
        status = self.voice.status
        return {"state": status.state, "name": status.voice, "reason": status.reason}

    async def models(self, _: Request) -> Response:
        entry = {"id": self.model_name, "object": "model", "created": 0, "owned_by": "headstart"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        page, content_type = await METRICS.run(self._metrics_page().render, accept)
        return Response(page, headers={"Content-Type": content_type})


def build_app(gateway: Gateway) -> ASGIApp:
    """The ASGI application over one `Gateway`, with authentication in front."""
    routes: list[BaseRoute] = [
        WebSocketRoute("/v1/realtime", gateway.converse),
        WebSocketRoute("/realtime", gateway.converse),
        WebSocketRoute("/v1/dashboard", gateway.watch),
        Route("/v1/models", gateway.models),
        Route("/models", gateway.models),
        Route("/healthz", gateway.healthz),
        Route("/ready", gateway.ready),
        Route("/status", gateway.status),
        Route("/metrics", gateway.metrics),
        *(gateway.calls.routes() if gateway.calls is not None else ()),
        _web_demo(gateway.settings.web_dir or PROJECT_WEB_DIR),
    ]
    return guarded(Starlette(routes=routes, exception_handlers=HANDLERS), gateway.access)


def transport_of(player: Player | None) -> str:
    """By which way a session with this playout is carried: a call has one of its own."""
    return "websocket" if player is None else "webrtc"


def camera_rungs(registry: SessionRegistry) -> dict[str, int]:
    """Sessions with a camera on each rung of the load-shedding ladder that has any."""
    rungs = Counter(entry.core.camera_rung for entry in registry)
    return {rung: count for rung, count in rungs.items() if rung is not None}


def _memory_body(stats: api.Stats) -> dict[str, Any]:
    """How full the engine's KV cache is, and what it does about that."""
    return {
        "level": stats.level.name.lower(),
        "tokens": stats.kv_tokens,
        "sessions_offloaded": stats.sessions_offloaded,
        "offloaded_bytes": stats.offloaded_bytes,
        "offloads": stats.offloads,
        "returns": stats.returns,
        "sessions_refused": stats.sessions_refused,
    }


def _web_demo(folder: Path) -> BaseRoute:
    if (folder / "index.html").is_file():
        return Mount("/", StaticFiles(directory=folder, html=True))
    text = (
        f"headstart is running. There is no web page in {folder.name}/ on this installation;\n"
        f"connect an OpenAI Realtime client to /v1/realtime, or see /status.\n"
    )

    async def nothing_here(_: Request) -> Response:
        return PlainTextResponse(text)

    return Route("/", nothing_here)


def _refused(refusal: Refusal) -> Response:
    error = {
        "type": "rate_limit_error" if refusal.is_yours else "server_error",
        "code": "too_many_sessions" if refusal.is_yours else "server_overloaded",
        "message": f"No session could be opened: {refusal.reason}. Try again in {RETRY_AFTER_S} s.",
        "param": None,
    }
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    status = 429 if refusal.is_yours else 503
    return JSONResponse({"error": error}, status_code=status, headers=headers)
