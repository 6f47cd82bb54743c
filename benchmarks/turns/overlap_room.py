"""What else a microphone hears while an answer is played: the answer itself, and singing.

An echo is the answer from the loudspeaker: weaker, later, and with a room's reverberation (noise
that decays by 60 dB in `rt60_s`). Singing is a voice's source (a pulse train with vibrato) through
the formants of sung vowels, note after note, over plucked chords: a voice, and not a word.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs.condition_sounds import convolved
from headstart.benchmarks.inputs.tones import RATE_HZ, SCALE_HZ
from headstart.benchmarks.inputs.voices import Samples

Sound = npt.NDArray[np.float64]

ECHO_DB, ECHO_MS = -20.0, 150.0
ROOM_LEVEL = 8.0  # s16 units, mean square root: some -72 dBFS
DIRECT_SHARE_MS = 2.0  # the room answers so much later than the direct sound
REVERBERATION = 0.05  # of the direct sound, at its beginning

# The first three formants of sung vowels, Hz, and their bandwidths.
VOWELS = {"a": (800, 1150, 2900), "o": (450, 800, 2830), "i": (350, 2000, 2800)}
WIDTHS_HZ = (80, 90, 120)
NOTE_S = (0.35, 0.5, 0.7)
VIBRATO_HZ, VIBRATO_SHARE = 5.5, 0.02
CHORD = (0, 2, 4)  # steps of the scale
PEAK = 12_000


def echo_of(answer: Samples, rt60_s: float = 0.0, seed: int = 1) -> Samples:
    """The answer, as the microphone hears it from the loudspeaker; as long, 24 kHz."""
    random = np.random.default_rng(seed)
    late = np.concatenate([np.zeros(round(ECHO_MS * RATE_HZ / 1000)), answer.astype(np.float64)])
    heard = late[: len(answer)] * 10 ** (ECHO_DB / 20)
    if rt60_s:
        times_s = np.arange(round(rt60_s * RATE_HZ)) / RATE_HZ
        response = random.standard_normal(len(times_s)) * 10 ** (-3 * times_s / rt60_s)
        response *= REVERBERATION
        response[: round(DIRECT_SHARE_MS * RATE_HZ / 1000)] = 0.0
        response[0] = 1.0
        heard = convolved(heard, response)
    return _s16(heard + random.normal(0, ROOM_LEVEL, len(heard)))


def singing(seconds: float, seed: int = 1) -> Samples:
    """Sung vowels over plucked chords, 24 kHz."""
    random = np.random.default_rng(seed)
    voice: list[Sound] = []
    chords: list[Sound] = []
    while sum(map(len, voice)) < seconds * RATE_HZ:
        step = int(random.integers(0, len(SCALE_HZ) - max(CHORD)))
        lasts_s = float(random.choice(NOTE_S))
        vowel = str(random.choice(list(VOWELS)))
        voice.append(_sung(SCALE_HZ[step], vowel, lasts_s, random))
        chord = [_plucked(SCALE_HZ[step + other] / 2, lasts_s, random) for other in CHORD]
        chords.append(np.sum(chord, axis=0))
    sung, played = np.concatenate(voice), np.concatenate(chords)
    mixed = sung / np.abs(sung).max() + 0.4 * played / np.abs(played).max()
    return _s16(mixed[: round(seconds * RATE_HZ)] / np.abs(mixed).max() * PEAK)


def _sung(hz: float, vowel: str, lasts_s: float, random: np.random.Generator) -> Sound:
    times_s = np.arange(round(lasts_s * RATE_HZ)) / RATE_HZ
    vibrato = 1.0 + VIBRATO_SHARE * np.sin(2 * np.pi * VIBRATO_HZ * times_s)
    phase = np.cumsum(hz * vibrato) / RATE_HZ
    pulses = np.diff(np.floor(phase), prepend=0.0) + random.normal(0, 0.003, len(phase))
    spectrum = np.fft.rfft(pulses)
    frequencies = np.fft.rfftfreq(len(pulses), 1 / RATE_HZ)
    gain = np.sum(
        [
            1.0 / (k + 1) / (1.0 + ((frequencies - formant) / (width / 2)) ** 2) ** 0.5
            for k, (formant, width) in enumerate(zip(VOWELS[vowel], WIDTHS_HZ, strict=True))
        ],
        axis=0,
    )
    sound = np.fft.irfft(spectrum * gain, len(pulses))
    edge = np.minimum(1.0, np.minimum(times_s, lasts_s - times_s) / 0.03)
    return np.asarray(sound * edge)


def _plucked(hz: float, lasts_s: float, random: np.random.Generator) -> Sound:
    times_s = np.arange(round(lasts_s * RATE_HZ)) / RATE_HZ
    partials = [np.sin(2 * np.pi * hz * k * times_s + random.uniform(0, 6)) / k for k in (1, 2, 3)]
    return np.asarray(np.sum(partials, axis=0) * np.exp(-4 * times_s))


def _s16(sound: Sound) -> Samples:
    return np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
