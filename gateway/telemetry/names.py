"""Names, labels, buckets and help of all that `/metrics` shows: no metric is named elsewhere.

Units are Prometheus's base units: seconds, bytes, and ratios from 0 to 1. Buckets are fixed, so
that servers with different settings can be added up. No label is a session, a turn or a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from headstart.engine import api

SECONDS = api.STEP_SECONDS_LE
HEADROOM = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `name` lacks the `_total` or `_info` of its samples."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: Sequence[float] = SECONDS

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may ask for."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name + {"counter": "_total", "info": "_info"}.get(self.kind, ""),)

    def counter(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.help, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.help, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        return Histogram(self.name, self.help, self.labels, buckets=self.buckets, registry=registry)

    def counts(self) -> CounterMetricFamily:
        """For collectors, which are asked each time the page is read."""
        return CounterMetricFamily(self.name, self.help, labels=self.labels)

    def values(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)

    def distributions(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.help, labels=self.labels)

    def info(self) -> InfoMetricFamily:
        return InfoMetricFamily(self.name, self.help, labels=self.labels)


# --- the server ----------------------------------------------------------------------------------

BUILD = Family(
    "headstart_build", "info", "Version and model that run; always 1", ("version", "model")
)
SESSIONS_OPEN = Family("headstart_sessions_open", "gauge", "Sessions open now")
SESSIONS = Family("headstart_sessions", "counter", "Sessions opened")
SESSIONS_REFUSED = Family(
    "headstart_sessions_refused",
    "counter",
    "Sessions refused, by the part that had no room: gateway or engine",
    ("by",),
)
SESSIONS_DETACHED = Family(
    "headstart_sessions_detached", "gauge", "Sessions that wait for their client"
)
SESSIONS_STUCK = Family(
    "headstart_sessions_stuck",
    "counter",
    "Sessions ended because a message of theirs was not read: a fault of the server",
)
RESUMES = Family(
    "headstart_resumes",
    "counter",
    "Sessions whose connection broke, by outcome: resumed, unknown, in_use or expired",
    ("outcome",),
)
CONNECTIONS_CUT = Family(
    "headstart_connections_cut",
    "counter",
    "Connections cut that were no session, or none any more, by the stage whose time was over: "
    "handshake, head, exchange, upgrade or closing; crowded: there were too many",
    ("reason",),
)
ERRORS = Family("headstart_errors", "counter", "Errors, by code", ("code",))
LOOP_LAG = Family(
    "headstart_loop_lag_seconds", "histogram", "How late the gateway's event loop ran a timer"
)
TASK_FAILURES = Family(
    "headstart_task_failures",
    "counter",
    "Tasks and callbacks of the gateway that ended in an exception, by task",
    ("task",),
)
CHILD_RESTARTS = Family(
    "headstart_child_restarts",
    "counter",
    "Times a child process was started again, by child: engine, voice or decoder",
    ("child",),
)

# --- turns ---------------------------------------------------------------------------------------

TURNS = Family(
    "headstart_turns",
    "counter",
    "Turns answered, by their end: stop, length, cancelled, failed or disconnected (its client "
    "left)",
    ("reason",),
)
FIRST_TOKEN = Family(
    "headstart_turn_first_token_seconds",
    "histogram",
    "From the turn's anchor (captured, departed, received or requested) to its first token sent; "
    "turns in real time, not interrupted",
    ("anchor",),
)
FIRST_SOUND = Family(
    "headstart_turn_first_sound_seconds",
    "histogram",
    "From the turn's anchor to its first sound sent; turns in real time, not interrupted",
    ("anchor",),
)
TURN_STAGE = Family(
    "headstart_turn_stage_seconds",
    "histogram",
    "A stage's share of a turn's wait; turns in real time, not interrupted",
    ("stage",),
)
HIDDEN_WORK = Family(
    "headstart_turn_hidden_work_seconds",
    "histogram",
    "A stage's work for a turn that was done before the end of speech was known",
    ("stage",),
)
OVER_BUDGET = Family(
    "headstart_turns_over_budget", "counter", "Turns slower than the latency budget"
)
INTERRUPTIONS = Family(
    "headstart_interruptions",
    "counter",
    "Answers cut by the user: answer (while it was made) or playout (only its sound)",
    ("kind",),
)
REVOCATIONS = Family(
    "headstart_turns_revoked", "counter", "Answers taken back because the speaker went on"
)
REVOKED_SOUND = Family(
    "headstart_revoked_sound_seconds",
    "counter",
    "Sound of answers that was played before they were taken back",
)
TOKENS = Family(
    "headstart_tokens",
    "counter",
    "Tokens of turns, by kind: input_text, input_audio, input_image, cached (of the input), "
    "output, speculated, or wasted (prefilled or decoded, then rolled back)",
    ("kind",),
)

# --- input ---------------------------------------------------------------------------------------

CHUNK_LATENCY = Family(
    "headstart_chunk_latency_seconds",
    "histogram",
    "From a chunk's receipt to its words in the KV cache",
)
CHUNK_HEADROOM = Family(
    "headstart_chunk_headroom_ratio",
    "histogram",
    "Share of the time until the next chunk that a chunk's work left over; 0: none, or less",
    buckets=HEADROOM,
)
CHUNK_OVERRUNS = Family(
    "headstart_chunk_overruns", "counter", "Chunks that were not done when the next one was there"
)
ROLLED_BACK = Family(
    "headstart_rolled_back_tokens",
    "counter",
    "Tokens taken out of the KV cache because a chunk changed the words",
)
AUDIO = Family(
    "headstart_audio_seconds",
    "counter",
    "Audio received, by fate: received, inserted, dropped or late",
    ("fate",),
)
FRAME_FATES = (
    *("kept", "too_soon", "unchanged", "blurred", "enough", "refused"),
    *("replaced", "broken", "unsent"),
)
FRAMES = Family(
    "headstart_frames",
    "counter",
    f"Camera frames, by fate: {', '.join(FRAME_FATES[:-1])} or {FRAME_FATES[-1]}",
    ("fate",),
)
RUNGS = ("full", "fps_75", "fps_50", "size_336", "size_224", "pooled", "refused")
FRAME_RUNGS = Family(
    "headstart_frame_rungs",
    "counter",
    f"Camera frames, by the rung of the load-shedding ladder they found: {', '.join(RUNGS)}",
    ("rung",),
)

# --- engine and KV cache -------------------------------------------------------------------------

ENGINE_UP = Family("headstart_engine_up", "gauge", "1 while the engine takes work")
ENGINE_RESTARTS = Family("headstart_engine_restarts", "counter", "Times engines were started again")
ENGINE_STATE = Family(
    "headstart_engine_state",
    "gauge",
    "1 for the state that an engine is in, by engine and state: ready, draining, refused, loading, "
    "lost, waiting or drained",
    ("engine", "state"),
)
ENGINE_SESSIONS = Family(
    "headstart_engine_sessions", "gauge", "Sessions that an engine holds, by engine", ("engine",)
)
ENGINE_KV_USED = Family(
    "headstart_engine_kv_used_ratio", "gauge", "Share of an engine's KV cache in use", ("engine",)
)
ENGINE_LOSSES = Family(
    "headstart_engine_losses", "counter", "Times an engine was lost, by engine", ("engine",)
)
SESSIONS_MOVED = Family(
    "headstart_sessions_moved", "counter", "Sessions that went on at another engine"
)
ENGINE_RSS = Family("headstart_engine_rss_bytes", "gauge", "Memory of the engine's process")
ENGINE_STEP = Family(
    "headstart_engine_step_seconds",
    "histogram",
    "Duration of a step, by what was in it: prefill, decode, mixed or other (sound, pictures)",
    ("phase",),
)
ENGINE_STEP_TOKENS = Family(
    "headstart_engine_step_tokens",
    "histogram",
    "Tokens of a step that had any, by phase: prefill or decode",
    ("phase",),
    api.STEP_TOKENS_LE,
)
ENGINE_STEP_SESSIONS = Family(
    "headstart_engine_step_sessions",
    "histogram",
    "Sessions that a step worked for",
    buckets=api.STEP_SESSIONS_LE,
)
KV_BLOCKS = Family(
    "headstart_kv_blocks", "gauge", "Blocks of the paged KV cache: used, cached or free", ("state",)
)
KV_TOKENS = Family(
    "headstart_kv_tokens",
    "gauge",
    "Tokens of all sessions, by modality: text, audio, image or generated; a shared one counts "
    "for each",
    ("modality",),
)
KV_LEVEL = Family(
    "headstart_kv_level",
    "gauge",
    "0 calm, 1 fewer frames, 2 idle sessions offloaded, 3 new sessions refused",
)
KV_EVICTED = Family(
    "headstart_kv_evicted_tokens", "counter", "Tokens that sessions forgot to stay within context"
)
KV_OFFLOADS = Family("headstart_kv_offloads", "counter", "Sessions offloaded to host memory")
KV_RETURNS = Family("headstart_kv_returns", "counter", "Sessions restored from host memory")
KV_OFFLOADED_BYTES = Family(
    "headstart_kv_offloaded_bytes", "gauge", "Host memory that offloaded sessions take"
)
SESSIONS_OFFLOADED = Family(
    "headstart_sessions_offloaded", "gauge", "Idle sessions whose K/V are in host memory"
)
SPECULATED = Family(
    "headstart_speculated_tokens",
    "counter",
    "Tokens decoded before the end of speech was known, by fate: kept or wasted",
    ("fate",),
)

# --- LLM server (none of these has a sample with our own decoder) ---------------------------------

LLM_REQUESTS = Family(
    "headstart_llm_requests",
    "counter",
    "Requests sent to the LLM server, by kind: warm_up (a prompt sent ahead), answer or end_probe "
    "(how likely the message ends)",
    ("kind",),
)
LLM_CANCELLED = Family(
    "headstart_llm_requests_cancelled",
    "counter",
    "Requests to the LLM server that were given up before their end, by kind",
    ("kind",),
)
LLM_PROMPT_TOKENS = Family(
    "headstart_llm_prompt_tokens",
    "counter",
    "Tokens of prompts sent to the LLM server, by kind, and by fate: computed, cached, or unknown "
    "(the server did not tell, or the request was cancelled)",
    ("kind", "fate"),
)
LLM_RETRIES = Family(
    "headstart_llm_retries", "counter", "Requests sent to the LLM server again after a failure"
)
LLM_FAILURES = Family(
    "headstart_llm_failures",
    "counter",
    "Requests to the LLM server that failed, by code; those that were sent again too",
    ("code",),
)

# --- calls ---------------------------------------------------------------------------------------

CALLS_OPEN = Family("headstart_calls_open", "gauge", "WebRTC calls open now")
CALLS = Family(
    "headstart_calls",
    "counter",
    "WebRTC calls ended, by reason: hangup, gone, vanished, never_connected or server",
    ("end",),
)
RTP_PACKETS = Family(
    "headstart_rtp_audio_packets",
    "counter",
    "Audio packets, by fate: received, lost, late, duplicate, reordered, bad, foreign or soundless",
    ("fate",),
)
RTP_SECONDS = Family(
    "headstart_rtp_audio_seconds",
    "counter",
    "Sound of audio tracks, by where it came from: audio, concealed or silence",
    ("kind",),
)
RTP_PAUSES = Family(
    "headstart_rtp_audio_pauses",
    "counter",
    "Pauses in audio tracks: dtx (left out by the sender) or stall (nothing came)",
    ("kind",),
)
RTP_DROPPED = Family(
    "headstart_rtp_audio_dropped_seconds",
    "counter",
    "Sound of audio tracks that nobody heard, as the engine was too far behind",
)
RTP_OVER_SHARE = Family(
    "headstart_rtp_over_share",
    "counter",
    "RTP and RTCP packets dropped unread: their call had its share of the event loop",
)
RTP_JITTER = Family(
    "headstart_rtp_jitter_seconds", "histogram", "Jitter of each call's audio, twice a second"
)
RTP_ROUND_TRIP = Family(
    "headstart_rtp_round_trip_seconds", "histogram", "Round trip of each call, twice a second"
)

FAMILIES: dict[str, Family] = {
    family.name: family for family in list(vars().values()) if isinstance(family, Family)
}
