"""What the dashboard is told of the whole server: its facts once, and a snapshot each second that
somebody looks. Only reads what others count anyway."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from headstart.engine import api
from headstart.gateway.connection.registry import SessionEntry, SessionRegistry
from headstart.gateway.connection.runner import SessionRunner
from headstart.gateway.dashboard.hub import Hub, SessionView
from headstart.gateway.engines.engines import Engines
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.loop_lag import LoopLag
from headstart.gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:  # aiortc takes half a second to import
    from headstart.gateway.transport.webrtc.calls import Calls

Json = dict[str, Any]

FACTS = (
    "latency_budget_ms",
    "max_sessions",
    "silence_ms",
    "hush_ms",
    "chunk_ms",
    "endpointing",
    "interruption",
    "vad_threshold",
    "pre_roll_ms",
    "voice",
    "weights",
    "threads",
    "kv_pool_mib",
    "kv_dtype",
    "kv_vision_dtype",
    "max_output_tokens",
    "max_sentences",
    "temperature",
    "video_sampler",
    "video_fps",
    "engine",
)
"""Settings that own a wait or explain a number. None of them is a path, a key or an address."""


class Watched(Protocol):
    """What an overview needs of the gateway (`headstart.gateway.server.app.Gateway`)."""

    settings: Settings
    engines: Engines
    runners: dict[str, SessionRunner]
    registry: SessionRegistry
    loop_lag: LoopLag
    calls: Calls | None
    sessions_refused: int
    sessions_shed: int
    sessions_stuck: int

    @property
    def model_name(self) -> str:
        """What the engine calls its model."""

    @property
    def engine_restarts(self) -> int:
        """Since this process started."""


class Overview:
    """One server's. `look` is to be called once a second: shares are of the time in between."""

    def __init__(
        self,
        gateway: Watched,
        hub: Hub,
        metrics: Metrics,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._gateway = gateway
        self._hub = hub
        self._metrics = metrics
        self._now_ns = now_ns
        self._process = psutil.Process()
        self._looked_ns = now_ns()
        self._computed_s = time.process_time()

    def facts(self) -> Json:
        """For the greeting."""
        settings = self._gateway.settings
        facts = {name: getattr(settings, name) for name in FACTS}
        return {
            "headstart": importlib.metadata.version("headstart"),
            "model": self._gateway.model_name,
            "content": settings.dashboard_content,
            "settings": facts | {"silence_duration_ms": settings.silence_ms},
        }

    def look(self) -> Json:
        """A snapshot's fields."""
        lag = self._gateway.loop_lag.summary()
        counters = self._metrics.totals()
        return {
            "sessions": self._sessions(),
            "rows": [self._row(entry) for entry in self._gateway.registry],
            "engine": self._engine(),
            "engines": self._gateway.engines.body(),
            "kv": self._kv(),
            "loop_lag": {
                "p50_ms": lag.p50_ms,
                "p99_ms": lag.p99_ms,
                "max_ms": lag.max_ms,
                "other_ms": round(max(0.0, lag.p99_ms - lag.own_p99_ms), 3),
            },
            "rtc": self._rtc(),
            **counters,
            "errors": {"total": self._hub.errors, "last_minute": self._hub.errors_last_minute},
            "process": self._own(),
        }

    # --- sessions --------------------------------------------------------------------------------

    def _sessions(self) -> Json:
        gateway = self._gateway
        return {
            "open": len(gateway.runners),
            "max": gateway.settings.max_sessions,
            "detached": sum(entry.resume_channel.is_detached for entry in gateway.registry),
            "refused": gateway.sessions_refused,
            "shed": gateway.sessions_shed,
            "stuck": gateway.sessions_stuck,
            "watchers": self._hub.watchers,
        }

    def _row(self, entry: SessionEntry) -> Json:
        now_ms = self._hub.now_ms()
        view = self._hub.sessions.get(entry.session_id) or SessionView("websocket", now_ms)
        headroom = view.headroom_percent
        return {
            "id": entry.session_id,
            "transport": view.transport,
            "engine": self._gateway.engines.engine_of(entry.session_id),
            "state": entry.core.state(self._now_ns()),
            "age_s": round((now_ms - view.opened_ms) / 1000, 3),
            "turns": view.turns,
            "last_turn": view.last_turn,
            "kv": view.kv,
            "camera_rung": entry.core.camera_rung,
            "headroom_percent": None if headroom is None else round(headroom, 3),
            "overruns": view.overruns,
            "rtc": self._hub.rtc_of(entry.session_id),
        }

    def _rtc(self) -> Json:
        calls = self._gateway.calls
        if calls is None:
            return {"packets": {}, "concealed_ms": 0.0, "silence_ms": 0.0}
        return calls.metrics.totals()

    # --- engine ----------------------------------------------------------------------------------

    def _engine(self) -> Json:
        engines = self._gateway.engines
        stats = engines.stats
        return {
            "state": engines.state,
            "restarts": self._gateway.engine_restarts,
            "rss_bytes": None if stats is None else stats.rss_bytes,
            "sessions": None if stats is None else stats.sessions,
            "pending_prefill_tokens": None if stats is None else stats.pending_prefill_tokens,
            "steps": None if stats is None else _steps(stats.recent_steps),
            "speculation": {
                "kept_tokens": None if stats is None else stats.speculated_kept,
                "wasted_tokens": None if stats is None else stats.speculated_wasted,
            },
        }

    def _kv(self) -> Json | None:
        stats = self._gateway.engines.stats
        if stats is None:
            return None
        return {
            "blocks_used": stats.kv_blocks_used,
            "blocks_cached": stats.kv_blocks_cached,
            "blocks_total": stats.kv_blocks_total,
            "level": stats.level.name.lower(),
            "tokens": stats.kv_tokens,
            "evicted_tokens": stats.evicted_tokens,
            "offloads": stats.offloads,
            "returns": stats.returns,
            "offloaded_sessions": stats.sessions_offloaded,
            "refused": stats.sessions_refused,
        }

    def _own(self) -> Json:
        now_ns, computed_s = self._now_ns(), time.process_time()
        spent_s, wall_s = computed_s - self._computed_s, (now_ns - self._looked_ns) / 1e9
        self._looked_ns, self._computed_s = now_ns, computed_s
        return {
            "gateway_rss_bytes": self._process.memory_info().rss,
            "gateway_cpu_share": round(spent_s / wall_s, 4) if wall_s > 0 else None,
        }


def _steps(steps: api.StepStats) -> Mapping[str, Any]:
    mean = steps.sessions_mean
    return {
        "count": steps.count,
        "busy_ms": steps.busy_ms,
        "p50_ms": steps.p50_ms,
        "p95_ms": steps.p95_ms,
        "max_ms": steps.max_ms,
        "prefill_tokens": steps.prefill_tokens,
        "decode_tokens": steps.decode_tokens,
        "sessions_mean": None if mean is None else round(mean, 3),
        "queue_max": steps.queue_max,
    }
