"""Metrics of WebRTC calls, for `/metrics`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from prometheus_client import CollectorRegistry

from headstart.gateway.audio.clock import BYTES_PER_SAMPLE, client_samples_to_exact_ms
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.metrics import by_label
from headstart.gateway.transport.webrtc.receive_buffer import RTP_RATE_HZ, BufferCounters

PACKET_FATES = (
    "received",
    "lost",
    "late",
    "duplicate",
    "reordered",
    "bad",
    "foreign",
    "soundless",
)
SOUND_KINDS = ("audio", "concealed", "silence")


class CallEnd(StrEnum):
    """Why a call ended."""

    HANGUP = "hangup"  # the client asked for it
    GONE = "gone"  # the peer closed the connection
    VANISHED = "vanished"  # it no longer responds
    NEVER_CONNECTED = "never_connected"
    SERVER = "server"  # shed, drained, expired or an internal error


class CallMetrics:
    """Registered once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls_open = names.CALLS_OPEN.gauge(registry)
        self.calls = names.CALLS.counter(registry)
        self.packets = names.RTP_PACKETS.counter(registry)
        self.sound_s = names.RTP_SECONDS.counter(registry)
        self.pauses = names.RTP_PAUSES.counter(registry)
        self.sound_dropped_s = names.RTP_DROPPED.counter(registry)
        self.over_share = names.RTP_OVER_SHARE.counter(registry)
        self.jitter_s = names.RTP_JITTER.histogram(registry)
        self.round_trip_s = names.RTP_ROUND_TRIP.histogram(registry)
        # Each call asks for all of them twice a second.
        self._fates = {fate: self.packets.labels(fate) for fate in PACKET_FATES}
        self._kinds = {f"{kind}_samples": self.sound_s.labels(kind) for kind in SOUND_KINDS}
        self._pauses = {"dtx": self.pauses.labels("dtx"), "stalls": self.pauses.labels("stall")}

    def dropped(self, size_bytes: int) -> None:
        """Count dropped audio: bytes of s16 mono at 24 kHz."""
        if size_bytes:
            self.sound_dropped_s.inc(
                client_samples_to_exact_ms(size_bytes // BYTES_PER_SAMPLE) / 1000
            )

    def totals(self) -> dict[str, Any]:
        """Packets by fate and sound that was filled in, since the start. `played`: of those that
        came, all but what was too late or there already."""
        packets, sound_ms = by_label(self.packets), by_label(self.sound_s, 1000)
        late, again = packets.get("late", 0.0), packets.get("duplicate", 0.0)
        return {
            "packets": {
                "played": packets.get("received", 0.0) - late - again,
                "late": late,
                "lost": packets.get("lost", 0.0),
                "duplicate": again,
            },
            "concealed_ms": sound_ms.get("concealed", 0.0),
            "silence_ms": sound_ms.get("silence", 0.0),
        }

    def track(self, before: BufferCounters, now: BufferCounters) -> None:
        """Count what a track has counted since `before`."""
        for counters, scale in ((self._fates, 1), (self._kinds, RTP_RATE_HZ), (self._pauses, 1)):
            for name, counter in counters.items():
                if more := getattr(now, name) - getattr(before, name):
                    counter.inc(more / scale)

    def path(self, jitter_ms: float, round_trip_ms: float | None) -> None:
        """How a call's network does; twice a second. None: not known yet."""
        self.jitter_s.observe(jitter_ms / 1000)
        if round_trip_ms is not None:
            self.round_trip_s.observe(round_trip_ms / 1000)
