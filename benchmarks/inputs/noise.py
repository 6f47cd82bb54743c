"""Sounds without speech: noises, music, breath and coughs, synthetic and seeded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs import tones
from headstart.benchmarks.inputs.recordings import CLIPS, load_f32

Sound = npt.NDArray[np.float64]  # [samples], 24 kHz mono, -1..1
RATE_HZ = 24_000
SEED = 7


def coloured(random: np.random.Generator, samples: int, exponent: float) -> Sound:
    """Noise whose power falls with frequency to the power `exponent`, RMS 1."""
    spectrum = np.fft.rfft(random.standard_normal(samples))
    steps = np.maximum(np.arange(len(spectrum)), 1)
    noise = np.fft.irfft(spectrum / steps ** (exponent / 2), samples)
    return np.asarray(noise / noise.std())


def _band(sound: Sound, low_hz: float, high_hz: float) -> Sound:
    spectrum = np.fft.rfft(sound)
    at_hz = np.fft.rfftfreq(len(sound), 1 / RATE_HZ)
    spectrum[(at_hz < low_hz) | (at_hz > high_hz)] = 0
    return np.asarray(np.fft.irfft(spectrum, len(sound)))


def _silence(random: np.random.Generator, samples: int) -> Sound:
    return random.standard_normal(samples) * 1e-4


def _white(random: np.random.Generator, samples: int) -> Sound:
    return coloured(random, samples, 0.0) * 0.02


def _pink(random: np.random.Generator, samples: int) -> Sound:
    return coloured(random, samples, 1.0) * 0.03


def _hum(random: np.random.Generator, samples: int) -> Sound:
    time_s = np.arange(samples) / RATE_HZ
    waves = [np.sin(2 * np.pi * 50 * n * time_s) / n**1.5 for n in (1, 2, 3, 5, 7)]
    return np.asarray(0.04 * sum(waves) + random.standard_normal(samples) * 5e-4)


def _clicks(random: np.random.Generator, samples: int) -> Sound:
    """Typing: two short resonant bursts per key, six keys per second with gaps."""
    sound = random.standard_normal(samples) * 5e-4
    at = 0
    while True:
        at += int(RATE_HZ * (random.exponential(0.12) + 0.06 + (random.random() < 0.05) * 2))
        for delay_s, level in ((0.0, 0.15), (0.07, 0.06)):
            start = at + int(delay_s * RATE_HZ)
            length = min(int(0.02 * RATE_HZ), samples - start)
            if length <= 0:
                return sound
            decay = np.exp(-np.arange(length) / (0.004 * RATE_HZ))
            ring = np.sin(2 * np.pi * random.uniform(1500, 4000) * np.arange(length) / RATE_HZ)
            sound[start : start + length] += (
                level * random.uniform(0.4, 1) * decay * (ring + random.standard_normal(length))
            )


def _music(random: np.random.Generator, samples: int) -> Sound:
    """One chord per second with a melody and a beat, without voice."""
    sound = np.zeros(samples)
    beat = RATE_HZ // 4
    scale_hz = 220 * 2 ** (np.array([0, 2, 4, 7, 9, 12, 14, 16]) / 12)
    for number, start in enumerate(range(0, samples, beat)):
        length = min(beat, samples - start)
        time_s = np.arange(length) / RATE_HZ
        root = scale_hz[(number // 4) % 4]
        notes = [root / 2, root, root * 1.25, root * 1.5, 2 * random.choice(scale_hz)]
        tones = sum(
            np.sin(2 * np.pi * hz * time_s) + 0.3 * np.sin(4 * np.pi * hz * time_s) for hz in notes
        )
        kick = np.exp(-time_s * 30) * np.sin(2 * np.pi * 60 * time_s) * 4 * (number % 2 == 0)
        sound[start : start + length] = (tones * np.exp(-time_s * 3) + kick) * 0.03
    return sound


def _breaths(random: np.random.Generator, samples: int) -> Sound:
    """Breathing in and out every four seconds, close to the microphone."""
    time_s = np.arange(samples) / RATE_HZ
    swell = np.clip(np.sin(2 * np.pi * time_s / 2), 0, None) ** 2
    return np.asarray(_band(random.standard_normal(samples), 300, 4000) * swell * 0.02)


def _coughs(random: np.random.Generator, samples: int) -> Sound:
    """A burst or two of 150 ms every three seconds."""
    sound = random.standard_normal(samples) * 3e-4
    noise = _band(random.standard_normal(samples), 200, 5000)
    for start in range(RATE_HZ, samples - RATE_HZ, 3 * RATE_HZ):
        for again in range(random.integers(1, 3)):
            at = start + int(again * 0.35 * RATE_HZ)
            length = int(0.15 * RATE_HZ)
            swell = np.exp(-np.arange(length) / (0.05 * RATE_HZ))
            sound[at : at + length] += noise[at : at + length] * swell * 0.3
    return sound


def _throat(random: np.random.Generator, samples: int) -> Sound:
    """Throat clearing: two voiced scrapes of a quarter of a second, every second and a half."""
    sound = random.standard_normal(samples) * 3e-4
    length = int(0.25 * RATE_HZ)
    time_s = np.arange(length) / RATE_HZ
    for start in range(RATE_HZ // 4, samples - RATE_HZ, 3 * RATE_HZ // 2):
        for again in range(2):
            wobble = np.cumsum(random.standard_normal(length)) / RATE_HZ * 6
            phase = 2 * np.pi * random.uniform(80, 160) * (time_s + wobble)
            pulses = np.clip(np.sin(phase), 0, None) ** 8
            breath = random.standard_normal(length)
            scrape = _band(pulses * (0.4 + breath * 0.4), 150, 3000)
            swell = np.sin(np.pi * time_s / time_s[-1]) ** 0.5
            at = start + int(again * 0.32 * RATE_HZ)
            sound[at : at + length] += scrape * swell * 0.5
    return sound


def _radio(random: np.random.Generator, samples: int) -> Sound:
    """The bundled monologue from another room: narrow-band, reverberant, 6 dB below pink noise."""
    speech = load_f32(CLIPS / "monologue.ogg", RATE_HZ).astype(np.float64)
    speech = _band(np.resize(speech, samples), 400, 2500)
    tail = random.standard_normal(RATE_HZ) * np.exp(-np.arange(RATE_HZ) / (0.15 * RATE_HZ))
    length = 1 << (samples + len(tail)).bit_length()
    far = np.fft.irfft(np.fft.rfft(speech, length) * np.fft.rfft(tail, length), length)[:samples]
    return np.asarray(far / far.std() * 0.0015 + coloured(random, samples, 1.0) * 0.003)


KINDS: dict[str, Callable[[np.random.Generator, int], Sound]] = {
    "silence": _silence,
    "white noise": _white,
    "pink noise": _pink,
    "mains hum": _hum,
    "keyboard": _clicks,
    "music": _music,
    "breath": _breaths,
    "coughs": _coughs,
    "far radio": _radio,
    "throat": _throat,
    **tones.KINDS,
}


def make(kind: str, seconds: float, seed: int = SEED) -> npt.NDArray[np.int16]:
    """One kind of sound, s16 [samples] at 24 kHz."""
    sound = KINDS[kind](np.random.default_rng(seed), int(seconds * RATE_HZ))
    return np.asarray(np.clip(sound * 32767, -32768, 32767), np.int16)
