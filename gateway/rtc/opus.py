"""Opus packets: how long they last, and the timeline of a receive buffer as sound."""

from __future__ import annotations

import numpy as np

from gateway.rtc.libopus import OpusDecoder, OpusError, Samples
from gateway.rtc.receive_buffer import RTP_RATE_HZ, BufferCounters, Piece, PieceKind

MAX_PACKET_SAMPLES = RTP_RATE_HZ * 120 // 1000
# Samples at 48 kHz in one frame, by the five configuration bits: RFC 6716 §3.1, table 2.
_SILK, _HYBRID, _CELT = (480, 960, 1920, 2880), (480, 960), (120, 240, 480, 960)
_FRAME_SAMPLES = _SILK * 3 + _HYBRID * 2 + _CELT * 4


def frame_samples(toc: int) -> int:
    """Samples at 48 kHz in each frame of a packet whose first byte is `toc`."""
    return _FRAME_SAMPLES[toc >> 3]


def packet_samples(payload: bytes) -> int | None:
    """How long a packet lasts, in samples at 48 kHz; None: this cannot be an Opus packet."""
    if not payload:
        return None
    code = payload[0] & 3
    frames = (1, 2, 2, 0)[code]
    if code == 3:
        frames = payload[1] & 0x3F if len(payload) > 1 else 0
    samples = frames * frame_samples(payload[0])
    return samples if 0 < samples <= MAX_PACKET_SAMPLES else None


class OpusTimeline:
    """Pieces of one stream in, mono sound at `rate_hz` out: for each exactly what `piece.samples`
    at 48 kHz are there, so that nothing a peer sends moves what comes after it. What cannot be
    decoded is concealed and counted as `bad` in `counters`."""

    def __init__(self, counters: BufferCounters, rate_hz: int = RTP_RATE_HZ) -> None:
        self._counters = counters
        self._rate_hz = rate_hz
        self._decoder = OpusDecoder(rate_hz)
        self._decoded = False  # anything yet: nothing can be drawn out before
        self._end = 0  # of the timeline, in samples at 48 kHz

    def decode(self, piece: Piece) -> Samples:
        """int16, as long as the piece."""
        start = self._end * self._rate_hz // RTP_RATE_HZ
        self._end += piece.samples
        samples = self._end * self._rate_hz // RTP_RATE_HZ - start
        match piece.kind:
            case PieceKind.AUDIO:
                return self._audio(piece.payload, samples)
            case PieceKind.CONCEALED:
                return self._concealed(samples, piece.payload)
            case PieceKind.SILENCE:
                return np.zeros(samples, np.int16)

    def _audio(self, payload: bytes, samples: int) -> Samples:
        try:
            sound = self._decoder.decode(payload)
        except OpusError:
            self._counters.bad += 1
            return self._concealed(samples, b"")
        self._decoded = True
        if len(sound) < samples:  # its frames are not what its first byte says
            self._counters.bad += 1
            return np.pad(sound, (0, samples - len(sound)))
        return sound[:samples]

    def _concealed(self, samples: int, behind: bytes) -> Samples:
        if not self._decoded:
            return np.zeros(samples, np.int16)
        return self._decoder.fill(samples, behind)
