"""Opus: packet durations, libopus's decoder and encoder, and the decoding of a receive buffer's
timeline.

The decoder is called directly, because FFmpeg's wrapper lacks three things. It decodes at 24 kHz,
which avoids resampling from 48 kHz. It recovers a lost packet from the next one's copy (in-band
FEC, RFC 6716 §2.1.7). It conceals gaps of any length at once. The encoder has the same bits as
FFmpeg's wrapper, without a frame object for each packet. The library is the one in PyAV's wheel, or
the system's.

"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from headstart.gateway.transport.webrtc.receive_buffer import (
    RTP_RATE_HZ,
    BufferCounters,
    Piece,
    PieceKind,
)

Samples = npt.NDArray[np.int16]

LONGEST_MS = 120  # of one packet: RFC 6716 §3.2.5
STEP_MS = 2.5
"""Concealed and recovered lengths are multiples of this."""
STEREO_BIT = 4  # of a packet's first byte: RFC 6716 §3.1
CANCELS_BELOW = 0.02
"""A mean with less than this share of a channel's power is what is left of two that are each
other's inverse: a microphone wired the wrong way round."""
APPLICATION_VOIP = 2048
PACKET_BYTES_MAX = 1275  # of one frame: RFC 6716 §3.4
POWER_KEPT = 0.95  # of the packets before


class OpusError(Exception):
    """A payload that libopus cannot decode, or a frame that it cannot encode."""


@functools.cache
def _library() -> ctypes.CDLL:
    """Load libopus. Raises `OSError` if there is none."""
    folder = Path(av.__file__).parent
    bundled = [p for place in (folder.parent / "av.libs", folder) for p in place.rglob("*opus*")]
    libraries = [str(path) for path in bundled if {".so", ".dylib", ".dll"} & set(path.suffixes)]
    name = next(iter(sorted(libraries)), None) or ctypes.util.find_library("opus")
    if name is None:
        raise OSError("there is no libopus, neither in PyAV's wheel nor on this system")
    library = ctypes.CDLL(name)
    library.opus_decoder_create.restype = ctypes.c_void_p
    library.opus_decoder_create.argtypes = [ctypes.c_int32, ctypes.c_int, ctypes.c_void_p]
    library.opus_decoder_destroy.restype = None
    library.opus_decoder_destroy.argtypes = [ctypes.c_void_p]
    library.opus_decode.restype = ctypes.c_int  # no argument types: see `OpusDecoder`
    library.opus_encoder_create.restype = ctypes.c_void_p
    library.opus_encoder_create.argtypes = [
        ctypes.c_int32,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
    ]
    library.opus_encoder_destroy.restype = None
    library.opus_encoder_destroy.argtypes = [ctypes.c_void_p]
    library.opus_encoder_ctl.restype = ctypes.c_int
    library.opus_encoder_ctl.argtypes = [ctypes.c_void_p, ctypes.c_int]  # and one more, variadic
    library.opus_encode.restype = ctypes.c_int
    library.opus_encode.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int32,
    ]
    return library


class Control(IntEnum):
    """Settings of an encoder, by their numbers in opus_defines.h."""

    BIT_RATE = 4002
    VARIABLE_RATE = 4006
    COMPLEXITY = 4010
    FEC = 4012
    PACKET_LOSS = 4014
    CONSTRAINED_RATE = 4020


class OpusEncoder:
    """One mono stream at 8, 12, 16, 24 or 48 kHz, for speech."""

    def __init__(self, rate_hz: int, settings: Mapping[Control, int]) -> None:
        self._library = _library()
        problem = ctypes.c_int(0)
        self._state = self._library.opus_encoder_create(
            rate_hz, 1, APPLICATION_VOIP, ctypes.byref(problem)
        )
        assert problem.value == 0, f"libopus refused {rate_hz} Hz: {problem.value}"
        for control, value in settings.items():
            status = self._library.opus_encoder_ctl(self._state, control, ctypes.c_int(value))
            assert status == 0, f"libopus refused {control.name} {value}: {status}"
        self._out = ctypes.create_string_buffer(PACKET_BYTES_MAX)
        self._out_at = ctypes.addressof(self._out)

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            self._library.opus_encoder_destroy(self._state)

    def encode(self, pcm: bytes) -> bytes:
        """A packet's payload. `pcm`: s16 of a length that Opus has (2.5 to 60 ms). Raises
        `OpusError`."""
        done: int = self._library.opus_encode(
            self._state, pcm, len(pcm) // 2, self._out_at, PACKET_BYTES_MAX
        )
        if done < 0:
            raise OpusError(f"libopus error {done}")
        return self._out.raw[:done]


class OpusDecoder:
    """One stream at 8, 12, 16, 24 or 48 kHz, made mono: by libopus, or from `channels` 2 as their
    mean; while that cancels, it is the first of them."""

    def __init__(self, rate_hz: int, channels: int = 1) -> None:
        self.channels = channels
        self._library = _library()
        problem = ctypes.c_int(0)
        self._state = self._library.opus_decoder_create(rate_hz, channels, ctypes.byref(problem))
        assert problem.value == 0, f"libopus refused {rate_hz} Hz: {problem.value}"
        self._longest = rate_hz * LONGEST_MS // 1000
        self._step = round(rate_hz * STEP_MS / 1000)
        self._powers = np.zeros(2)  # of the first channel and of the mean
        self._out = np.empty((self._longest, channels), np.int16)
        self._mono = self._out[:, 0]
        # Without argument types a ctypes call takes less. This one is made for every packet.
        self._decode = self._library.opus_decode
        self._state_at = ctypes.c_void_p(self._state)
        self._out_at = self._out.ctypes.data_as(ctypes.c_void_p)

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            self._library.opus_decoder_destroy(self._state)

    def decode(self, payload: bytes | None, samples: int | None = None, fec: int = 0) -> Samples:
        """int16[n]: a packet's audio. `samples` are concealed if it is None, or recovered from it
        with `fec` 1. Raises `OpusError`."""
        size_bytes = len(payload) if payload is not None else 0
        wanted = self._longest if samples is None else samples
        done: int = self._decode(self._state_at, payload, size_bytes, self._out_at, wanted, fec)
        if done < 0:
            raise OpusError(f"libopus error {done}")
        if self.channels == 1:
            return self._mono[:done].copy()
        return self._mixed(self._out[:done].astype(np.int32))

    def fill(self, samples: int, behind: bytes = b"") -> Samples:
        """int16[samples] for lost packets. `behind`: the packet after them, whose copy of the last
        lost one is used if it has one; that packet still has to be decoded itself."""
        wanted = -(-samples // self._step) * self._step
        parts, left = [], wanted
        while left > self._longest:
            parts.append(self.decode(None))
            left -= self._longest
        try:
            parts.append(self.decode(behind or None, left, fec=int(bool(behind))))
        except OpusError:  # caused by the next packet; without it this cannot fail
            parts.append(self.decode(None, left))
        # The end of it joins the audio that follows.
        return np.concatenate(parts)[wanted - samples :]

    def _mixed(self, sound: npt.NDArray[np.int32]) -> Samples:
        """int32[samples, 2] to int16[samples]."""
        first, mean = sound[:, 0], sound.sum(axis=1) // 2
        powers = [np.square(part, dtype=np.float64).sum() for part in (first, mean)]
        self._powers = POWER_KEPT * self._powers + powers
        cancels = self._powers[1] < CANCELS_BELOW * self._powers[0]
        return np.asarray(first if cancels else mean, np.int16)


MAX_PACKET_SAMPLES = RTP_RATE_HZ * 120 // 1000
# Samples at 48 kHz in one frame, by the five configuration bits: RFC 6716 §3.1, table 2.
_SILK, _HYBRID, _CELT = (480, 960, 1920, 2880), (480, 960), (120, 240, 480, 960)
_FRAME_SAMPLES = _SILK * 3 + _HYBRID * 2 + _CELT * 4


# And in a whole packet, by its first byte; 0: its second byte says how many frames.
_PACKET_SAMPLES = tuple(_FRAME_SAMPLES[toc >> 3] * (1, 2, 2, 0)[toc & 3] for toc in range(256))


def frame_samples(toc: int) -> int:
    """Samples at 48 kHz in each frame of a packet whose first byte is `toc`."""
    return _FRAME_SAMPLES[toc >> 3]


def packet_samples(payload: bytes) -> int | None:
    """A packet's duration in samples at 48 kHz; None: this cannot be an Opus packet."""
    if not payload:
        return None
    samples = _PACKET_SAMPLES[payload[0]]
    if not samples and len(payload) > 1:
        samples = (payload[1] & 0x3F) * frame_samples(payload[0])
    return samples if 0 < samples <= MAX_PACKET_SAMPLES else None


class OpusTimeline:
    """Pieces of one stream in, mono audio at `rate_hz` out. Each piece yields exactly its
    `piece.samples` (48 kHz), so that an invalid packet cannot shift later audio. What cannot be
    decoded is concealed and counted as `bad` in `counters`."""

    def __init__(self, counters: BufferCounters, rate_hz: int = RTP_RATE_HZ) -> None:
        self._counters = counters
        self._rate_hz = rate_hz
        self._decoder = OpusDecoder(rate_hz)  # of two channels from the first stereo packet on
        self._decoded = False  # whether anything was: before that, nothing can be concealed
        self._end = 0  # of the timeline, in samples at 48 kHz

    def decode(self, piece: Piece) -> Samples:
        """int16[n], as long as the piece."""
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
        if self._decoder.channels == 1 and payload and payload[0] & STEREO_BIT:
            self._decoder = OpusDecoder(self._rate_hz, 2)
        try:
            sound = self._decoder.decode(payload)
        except OpusError:
            self._counters.bad += 1
            return self._concealed(samples, b"")
        self._decoded = True
        if len(sound) < samples:  # the packet's frames do not match its first byte
            self._counters.bad += 1
            return np.pad(sound, (0, samples - len(sound)))
        return sound if len(sound) == samples else sound[:samples]

    def _concealed(self, samples: int, behind: bytes) -> Samples:
        if not self._decoded:
            return np.zeros(samples, np.int16)
        return self._decoder.fill(samples, behind)
