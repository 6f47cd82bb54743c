"""Opus packets: how long they last, and the timeline of a receive buffer as sound.

Concealment is libopus's own, with all the decoder's state behind it. FFmpeg has no call for it, but
the codec has: a frame without content (RFC 6716 §3.2.1 and §4.4) asks the decoder to go on by
itself, so one byte, the last packet's table of contents, draws the sound out for one frame.
"""

from __future__ import annotations

from collections.abc import Iterator

import av
import numpy as np
import numpy.typing as npt

from gateway.rtc.receive_buffer import RTP_RATE_HZ, BufferCounters, Piece, PieceKind

Samples = npt.NDArray[np.int16]

MAX_PACKET_SAMPLES = RTP_RATE_HZ * 120 // 1000
# Samples at 48 kHz in one frame, by the five configuration bits: RFC 6716 §3.1, table 2.
_SILK, _HYBRID, _CELT = (480, 960, 1920, 2880), (480, 960), (120, 240, 480, 960)
_FRAME_SAMPLES = _SILK * 3 + _HYBRID * 2 + _CELT * 4
_CODE_OF_ONE_FRAME = 0xFC  # clears the two bits that count a packet's frames


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
    """Pieces of one stream in, mono sound at 48 kHz out: exactly `piece.samples` for each, so that
    nothing a peer sends moves what comes after it. What cannot be decoded is concealed and counted
    as `bad` in `counters`."""

    def __init__(self, counters: BufferCounters) -> None:
        self._counters = counters
        self._codec = av.CodecContext.create("libopus", "r")
        self._codec.format = "s16"
        self._codec.layout = "mono"
        self._codec.sample_rate = RTP_RATE_HZ
        self._toc: int | None = None  # of the last packet that could be decoded

    def decode(self, piece: Piece) -> Samples:
        """int16[piece.samples]."""
        match piece.kind:
            case PieceKind.AUDIO:
                return self._audio(piece)
            case PieceKind.CONCEALED:
                return self._concealed(piece.samples)
            case PieceKind.SILENCE:
                return np.zeros(piece.samples, np.int16)

    def _audio(self, piece: Piece) -> Samples:
        try:
            sound = self._decode(piece.payload)
        except av.error.FFmpegError:
            self._counters.bad += 1
            return self._concealed(piece.samples)
        if len(sound) < piece.samples:  # its frames are not what its first byte says
            self._counters.bad += 1
            return _padded(sound, piece.samples)
        self._toc = piece.payload[0] & _CODE_OF_ONE_FRAME
        return sound[: piece.samples]

    def _concealed(self, samples: int) -> Samples:
        if self._toc is None:
            return np.zeros(samples, np.int16)
        frames = -(-samples // frame_samples(self._toc))
        try:
            sound = [self._decode(bytes([self._toc])) for _ in range(frames)]
        except av.error.FFmpegError:
            return np.zeros(samples, np.int16)
        return _padded(np.concatenate(sound), samples)

    def _decode(self, payload: bytes) -> Samples:
        # Not `to_ndarray`: it costs half as much again as the decoding itself.
        planes = [
            np.frombuffer(memoryview(frame.planes[0]), np.int16, frame.samples)
            for frame in self._frames(payload)
        ]
        if len(planes) == 1:
            return planes[0]
        return np.concatenate([np.empty(0, np.int16), *planes])

    def _frames(self, payload: bytes) -> Iterator[av.AudioFrame]:
        for frame in self._codec.decode(av.Packet(payload)):
            assert isinstance(frame, av.AudioFrame)
            yield frame


def _padded(sound: Samples, samples: int) -> Samples:
    """The first `samples` of the sound, with zeros behind where there are not so many."""
    out = np.zeros(samples, np.int16)
    out[: len(sound)] = sound[:samples]
    return out
