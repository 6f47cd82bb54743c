"""Builds the gateway with everything that it needs, and the settings of its HTTP server.

`main` imports this once the engine is being started: the protocol's types, the media libraries and
the web server take a second or two of a core.
"""

from __future__ import annotations

import time

import uvicorn
from prometheus_client import CollectorRegistry

from headstart.gateway.audio.native import native_audio
from headstart.gateway.connection.pending import PendingLimits
from headstart.gateway.connection.registry import ResumeMetrics
from headstart.gateway.dashboard.hub import Hub
from headstart.gateway.dashboard.recorder import Recorder
from headstart.gateway.engines.engines import Engines
from headstart.gateway.engines.metrics import EnginesCollector
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.parse import prepare
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import restarts
from headstart.gateway.server.app import Gateway, build_app
from headstart.gateway.server.http_server import GatewayServer
from headstart.gateway.session.session import Session
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.collectors import BuildCollector, CountsCollector, LagCollector
from headstart.gateway.telemetry.metrics import Metrics, MetricsPage
from headstart.gateway.telemetry.observer import Observers
from headstart.gateway.tracing.traces import Traces
from headstart.gateway.transport.webrtc.call_metrics import CallMetrics
from headstart.gateway.transport.webrtc.calls import Calls
from headstart.gateway.transport.websocket.channel import RealtimeProtocol
from headstart.gateway.tts.link import VoiceLink
from headstart.gateway.video.decode_pool import DECODERS

__all__ = ["DECODERS", "Recorder", "make_gateway", "make_server", "native_audio", "uvicorn_config"]

PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 40.0
GRACEFUL_SHUTDOWN_S = 3


def make_gateway(
    settings: Settings,
    engines: Engines,
    voice: VoiceLink | None = None,
    traces: Traces | None = None,
) -> Gateway:
    """The gateway with real sessions, and one set of metrics for all of them."""
    prepare()  # otherwise the first event of each type would pay for it on the loop
    metrics = Metrics(settings.latency_budget_ms, legacy=settings.legacy_metrics)
    hub = Hub()
    ids = IdMaker()
    restarts_counted = 0

    def make_session(session_id: str, engine_ready: bool, model_name: str) -> Session:
        return Session(
            session_id,
            settings,
            ids,
            metrics,
            engine_ready=engine_ready,
            model_name=model_name,
            now_ns=time.monotonic_ns(),
            wall_s=time.time(),
            stopwatch=time.perf_counter_ns,
            speaks=voice is not None and voice.status.speaks,
            model=None if engines.ready is None else engines.ready.model,
            batch=lambda: engines.batch_of(session_id),
            observer=hub if traces is None else Observers(hub, traces),
        )

    def page() -> MetricsPage:
        nonlocal restarts_counted
        metrics.engine_up.set(engines.is_ready)
        metrics.engine_restarts.inc(engines.restarts - restarts_counted)
        restarts_counted = engines.restarts
        if (stats := engines.stats) is not None:
            metrics.engine(stats)
        return metrics.page()

    resumes = ResumeMetrics(metrics.registry)
    gateway = Gateway(settings, engines, make_session, page, voice, resumes, hub, metrics)
    register(metrics.registry, gateway)
    gateway.calls = Calls(gateway, CallMetrics(metrics.registry))
    return gateway


def register(registry: CollectorRegistry, gateway: Gateway) -> None:
    """What others count anyway, for `/metrics` to show."""

    def refused() -> dict[str, float]:
        stats = gateway.engines.stats
        by_engine = 0 if stats is None else stats.sessions_refused
        return {"gateway": gateway.sessions_refused, "engine": by_engine}

    for family, look in (
        (names.CONNECTIONS_CUT, lambda: gateway.dropped_connections),
        (names.SESSIONS_STUCK, lambda: {"": gateway.sessions_stuck}),
        (names.SESSIONS_REFUSED, refused),
        (names.TASK_FAILURES, lambda: tasks.failures),
        (names.CHILD_RESTARTS, lambda: restarts),
    ):
        registry.register(CountsCollector(family, look))
    registry.register(LagCollector(gateway.loop_lag))
    registry.register(EnginesCollector(gateway.engines))
    registry.register(BuildCollector(lambda: gateway.model_name))


def make_server(settings: Settings, gateway: Gateway) -> GatewayServer:
    """Its HTTP server, not yet listening."""
    assert gateway.descriptors is not None
    limits = PendingLimits(pending_max=gateway.descriptors.pending_max)
    return GatewayServer(uvicorn_config(settings, gateway), gateway, limits)


def uvicorn_config(settings: Settings, gateway: Gateway) -> uvicorn.Config:
    """How uvicorn serves `gateway`; what it lacks is in `gateway.transport.uvicorn_hooks`."""
    return uvicorn.Config(
        build_app(gateway),
        ws=RealtimeProtocol,
        ws_max_size=settings.max_message_bytes,
        ws_ping_interval=PING_INTERVAL_S,
        ws_ping_timeout=PING_TIMEOUT_S,
        # Compression costs CPU time and latency, and base64 audio hardly shrinks.
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
