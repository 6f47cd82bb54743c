"""Metrics of WebRTC calls, for `/metrics`."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge

from headstart.gateway.audio.clock import BYTES_PER_SAMPLE, client_samples_to_exact_ms
from headstart.gateway.transport.webrtc.receive_buffer import RTP_SAMPLES_PER_MS, BufferCounters

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
        self.calls_open = Gauge("headstart_calls_open", "WebRTC calls open now", registry=registry)
        self.calls = Counter(
            "headstart_calls", "WebRTC calls ended, by reason", ["end"], registry=registry
        )
        self.packets = Counter(
            "headstart_rtp_audio_packets", "Audio packets, by fate", ["fate"], registry=registry
        )
        self.sound_ms = Counter(
            "headstart_rtp_audio_ms",
            "Sound of audio tracks, by where it came from",
            ["kind"],
            registry=registry,
        )
        self.pauses = Counter(
            "headstart_rtp_audio_pauses",
            "Pauses in audio tracks: dtx left out by the sender, stall nothing came",
            ["kind"],
            registry=registry,
        )

        self.sound_dropped_ms = Counter(
            "headstart_rtp_audio_dropped_ms",
            "Sound of audio tracks that nobody heard, as the engine was too far behind",
            registry=registry,
        )
        self.over_share = Counter(
            "headstart_rtp_over_share",
            "RTP and RTCP packets dropped unread: their call had its share of the event loop",
            registry=registry,
        )

    def dropped(self, size_bytes: int) -> None:
        """Count dropped audio: bytes of s16 mono at 24 kHz."""
        self.sound_dropped_ms.inc(client_samples_to_exact_ms(size_bytes // BYTES_PER_SAMPLE))

    def track(self, before: BufferCounters, now: BufferCounters) -> None:
        """Count what a track has counted since `before`."""
        was, has = asdict(before), asdict(now)
        for fate in PACKET_FATES:
            self.packets.labels(fate).inc(has[fate] - was[fate])
        for kind in SOUND_KINDS:
            samples = has[f"{kind}_samples"] - was[f"{kind}_samples"]
            self.sound_ms.labels(kind).inc(samples / RTP_SAMPLES_PER_MS)
        self.pauses.labels("dtx").inc(has["dtx"] - was["dtx"])
        self.pauses.labels("stall").inc(has["stalls"] - was["stalls"])
