"""One audio track's way in: RTP packets to the session's 24 kHz sound. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.media.timebase import WIRE_RATE_HZ
from gateway.rtc.opus import OpusTimeline, packet_samples
from gateway.rtc.receive_buffer import (
    BufferCounters,
    BufferSettings,
    Packet,
    PieceKind,
    ReceiveBuffer,
)


@dataclass(frozen=True, slots=True)
class Sound:
    """s16 mono at 24 kHz. `received_ns` and `timestamp` (RTP, unwrapped) of the packet that brought
    it; None for filling."""

    pcm24k: bytes
    kind: PieceKind
    received_ns: int | None
    timestamp: int | None


class AudioIntake:
    """Receive buffer and decoder of one track. The sound of `pull` is as long as the
    timeline: what was lost or left out is in it."""

    def __init__(self, settings: BufferSettings | None = None) -> None:
        self._buffer = ReceiveBuffer(settings)
        self._opus = OpusTimeline(self._buffer.counters, WIRE_RATE_HZ)
        self._source: int | None = None

    @property
    def counters(self) -> BufferCounters:
        return self._buffer.counters

    @property
    def due_ns(self) -> int | None:
        """When to `pull` if no packet comes until then."""
        return self._buffer.due_ns

    def push(self, source: int, sequence: int, timestamp: int, payload: bytes, now_ns: int) -> None:
        """One RTP packet; `source` is its SSRC, whose change begins another stream."""
        samples = packet_samples(payload)
        if samples is None:
            self.counters.bad += 1
            return
        if source != self._source:
            if self._source is not None:
                self._buffer.restart()
            self._source = source
        self._buffer.push(Packet(sequence, timestamp, payload, samples), now_ns)

    def pull(self, now_ns: int) -> list[Sound]:
        """All sound that is due."""
        sounds = []
        for piece in self._buffer.pull(now_ns):
            pcm = self._opus.decode(piece).tobytes()
            received_ns = piece.received_ns if piece.kind is PieceKind.AUDIO else None
            if pcm:
                sounds.append(Sound(pcm, piece.kind, received_ns, piece.timestamp))
        return sounds
