"""Decodes a file's audio to 24 kHz mono, whatever its rate, layout and timestamps.

    pieces(...) ─▶ float32 [1 or 2 channels, samples] at 24 kHz, in one line of time
    Heard       ─▶ what all of it turned out to be: `mixing`
    Mixing      ─▶ one channel, about zero

NaN and infinite samples become silence, and are counted.

"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.audio.resampler import AudioResampler

from headstart.talk.media.container import UNDECODABLE, Tally, decoded
from headstart.talk.media.gaps import Gaps

SAMPLE_RATE_HZ = 24_000
BYTES_PER_SAMPLE = 2
RATE_MIN_HZ, RATE_MAX_HZ = 1_000, 768_000
"""Valid sample rates; a frame with another one is damaged, and would become hours of audio."""
CANCELS_BELOW = 0.02
"""If the mean has less than this fraction of the louder channel's power, the channels are each
other's inverse; for unrelated channels it is at least a quarter."""
LOUDEST = 4.0
"""Floats beyond this are clipped before they are resampled; all is clipped to 1 at the end."""
SCALED_SHARE = 0.05
"""Of samples beyond that: more, and they are not of full scale 1 (16-bit values as floats, say)."""
OFFSET_MIN = 0.1
"""A constant offset of so much of full scale is taken away."""
AT_FULL_SCALE = 0.999
PIECE_SAMPLES = SAMPLE_RATE_HZ
_PCM_SCALE = 32768.0

Wave = npt.NDArray[np.float32]


class Mix(StrEnum):
    """How two channels become one."""

    MEAN = "mean"
    LEFT = "left"
    RIGHT = "right"

    def apply(self, wave: Wave) -> Wave:
        """[channels, samples] to [samples]. Where the mean cancels in this piece alone (another
        link of a chain), it is the left: the two are alike then."""
        if len(wave) == 1:
            return np.asarray(wave[0])
        if self is not Mix.MEAN:
            return np.asarray(wave[0 if self is Mix.LEFT else 1])
        mean = np.asarray(wave.mean(axis=0), np.float32)
        powers = [float(part.astype(np.float64) @ part) for part in (*wave, mean)]
        cancels = powers[2] < CANCELS_BELOW * max(powers[:2])
        return np.asarray(wave[0] if cancels else mean)


@dataclass(frozen=True)
class Mixing:
    """How a file's samples become ours: times `scale`, less `offset` (of each channel), mixed."""

    mix: Mix = Mix.MEAN
    scale: float = 1.0
    offset: tuple[float, float] = (0.0, 0.0)

    def apply(self, wave: Wave) -> Wave:
        """[channels, samples], scaled already, to [samples]."""
        if self.offset != (0.0, 0.0):
            wave = wave - np.asarray(self.offset, np.float32)[: len(wave), None]
        return self.mix.apply(wave)


AS_IT_IS = Mixing()


@dataclass
class Heard(Tally):
    """What a file's sound turned out to be. `start_s`: its first timestamp; `strange_rate_hz`: one
    that no sound has, and that was passed over; `holes`: begin and end in s of what has silence in
    its place; `scale`: what floats are to be multiplied by; `float_peak`, `loud_samples`: the
    highest of them and how many are far beyond full scale."""

    scale: float = 1.0
    float_peak: float = 0.0
    loud_samples: int = 0
    clipped_samples: int = 0
    peak: float = 0.0
    samples: int = 0
    start_s: float | None = None
    broken_samples: int = 0
    decoded_samples: int = 0
    strange_rate_hz: int | None = None
    holes: list[tuple[float, float]] = field(default_factory=list)
    _power: dict[str, float] = field(default_factory=lambda: dict.fromkeys("lrm", 0.0))
    _sum: dict[str, float] = field(default_factory=lambda: dict.fromkeys("lrm", 0.0))

    @property
    def duration_s(self) -> float:
        return self.samples / SAMPLE_RATE_HZ

    @property
    def wanted_scale(self) -> float:
        """What floats should be multiplied by, if their full scale is not 1."""
        are_beyond = self.loud_samples > SCALED_SHARE * self.decoded_samples
        return 1.0 / self.float_peak if are_beyond else 1.0

    @property
    def mixing(self) -> Mixing:
        return Mixing(self.mix, self.scale, self.offset)

    @property
    def mix(self) -> Mix:
        left, right, mean = (self._about_mean(which) for which in "lrm")
        if mean >= CANCELS_BELOW * max(left, right):
            return Mix.MEAN
        return Mix.LEFT if left >= right else Mix.RIGHT

    @property
    def offset(self) -> tuple[float, float]:
        """Of each channel, if it is one to be taken away."""
        left, right = (self._sum[which] / max(self.samples, 1) for which in "lr")
        return (left, right) if max(abs(left), abs(right)) >= OFFSET_MIN else (0.0, 0.0)

    @property
    def loudest_dbfs(self) -> float:
        """Of its samples, about the offset; digital silence is -100."""
        return 20 * math.log10(max(self.peak - max(map(abs, self.offset)), 1e-5))

    def _about_mean(self, which: str) -> float:
        return self._power[which] - self._sum[which] ** 2 / max(self.samples, 1)

    def weigh(self, wave: Wave) -> None:
        """Measure one more piece of audio."""
        self.samples += wave.shape[1]
        loudest = np.abs(wave).max(axis=0, initial=0.0)
        self.peak = max(self.peak, float(loudest.max(initial=0.0)))
        self.clipped_samples += int(np.count_nonzero(loudest >= AT_FULL_SCALE))
        left, right = wave[0].astype(np.float64), wave[-1].astype(np.float64)
        for which, part in (("l", left), ("r", right), ("m", (left + right) / 2)):
            self._power[which] += float(part @ part)
            self._sum[which] += float(part.sum())


def to_pcm(wave: Wave) -> bytes:
    """float[samples] to s16le."""
    scaled = np.rint(wave * _PCM_SCALE)
    return bytes(np.clip(scaled, -_PCM_SCALE, _PCM_SCALE - 1).astype("<i2").tobytes())


def pieces(container: Any, stream: Any, heard: Heard, gaps: Gaps | None = None) -> Iterator[Wave]:
    """The audio of one container's stream, with holes filled according to `gaps`."""
    resampling = _Resampling()
    for frame in decoded(container, stream, heard):
        if not isinstance(frame, av.AudioFrame) or not frame.samples:
            continue
        if not RATE_MIN_HZ <= frame.sample_rate <= RATE_MAX_HZ:
            heard.strange_rate_hz = frame.sample_rate
            continue
        if heard.start_s is None:
            heard.start_s = frame.time
        lasts_s = frame.samples / frame.sample_rate
        gap_s = 0.0 if gaps is None else gaps.before(frame.time, lasts_s)
        try:
            if gap_s and gaps is not None:
                heard.holes.append(gaps.holes[-1])
                yield from resampling.end()
                yield from silence(gap_s)
            yield from resampling.take(_finite(frame, heard))
        except UNDECODABLE:
            heard.corrupt += 1
    yield from resampling.end()


class _Resampling:
    """Resamplers, a new one for each format in the stream."""

    def __init__(self) -> None:
        self._format: tuple[object, ...] = ()
        self._resampler: AudioResampler | None = None

    def take(self, frame: av.AudioFrame) -> Iterator[Wave]:
        kind = (frame.format.name, frame.layout.name, frame.layout.nb_channels, frame.sample_rate)
        if kind != self._format:
            yield from self.end()
            self._format = kind
        resampler, self._resampler = self._resampler, None
        if resampler is None:
            resampler, made = _begun(frame)
        else:
            made = resampler.resample(frame)
        self._resampler = resampler  # a failed resampler is not used again
        yield from map(_wave, made)

    def end(self) -> Iterator[Wave]:
        """What the resamplers still hold."""
        resampler, self._resampler = self._resampler, None
        if resampler is not None:
            with contextlib.suppress(*UNDECODABLE):  # only loses a few samples
                yield from map(_wave, resampler.resample(None))


def _begun(frame: av.AudioFrame) -> tuple[AudioResampler, list[av.AudioFrame]]:
    """A resampler for a frame's format, and its output for the frame."""
    layout = "mono" if frame.layout.nb_channels == 1 else "stereo"
    resampler = AudioResampler("fltp", layout, SAMPLE_RATE_HZ)
    try:
        return resampler, resampler.resample(frame)
    except UNDECODABLE:  # unknown channel positions: treat all alike
        resampler = AudioResampler("fltp", frame.layout, SAMPLE_RATE_HZ)
        return resampler, resampler.resample(frame)


def _wave(frame: av.AudioFrame) -> Wave:
    wave = np.asarray(frame.to_ndarray(), np.float32)
    return wave if len(wave) <= 2 else wave.mean(axis=0, keepdims=True, dtype=np.float32)


def silence(length_s: float) -> Iterator[Wave]:
    """So much of it, in pieces of a second."""
    left = round(length_s * SAMPLE_RATE_HZ)
    while left > 0:
        yield np.zeros((1, min(left, PIECE_SAMPLES)), np.float32)
        left -= PIECE_SAMPLES


def _finite(frame: av.AudioFrame, heard: Heard) -> av.AudioFrame:
    """The frame with silence in place of NaN and infinite samples."""
    heard.decoded_samples += frame.samples
    if not frame.format.name.startswith(("flt", "dbl")):
        return frame
    samples: npt.NDArray[Any] = frame.to_ndarray()
    good = np.isfinite(samples)
    if good.all() and heard.scale == 1.0 and np.abs(samples).max() <= LOUDEST:
        return frame
    channels = frame.layout.nb_channels
    heard.broken_samples += -(-int(np.count_nonzero(~good)) // channels)
    levels = np.abs(samples[good])
    heard.loud_samples += int(np.count_nonzero(levels > LOUDEST)) // channels
    heard.float_peak = max(heard.float_peak, float(levels.max(initial=0.0)))
    scaled = np.where(good, samples, 0) * heard.scale
    clean: npt.NDArray[Any] = np.clip(scaled, -LOUDEST, LOUDEST)
    mended = av.AudioFrame.from_ndarray(
        clean.astype(samples.dtype), frame.format.name, frame.layout
    )
    mended.sample_rate, mended.time_base, mended.pts = frame.sample_rate, frame.time_base, frame.pts
    return mended
