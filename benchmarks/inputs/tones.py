"""Tones of telephones and plain melodies: they have a pitch, and nobody speaks in them.

Frequencies and cadences of ITU-T E.180 and of the North American plan, DTMF of ITU-T Q.23, a
device's three rising tones (SIT) of E.180; melodies of notes up to twice and down to half a length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Sound = npt.NDArray[np.float64]  # [samples], 24 kHz mono, -1..1
RATE_HZ = 24_000
LEVEL = 0.3
ROOM = 1e-4

DTMF_LOW_HZ, DTMF_HIGH_HZ = (697, 770, 852, 941), (1209, 1336, 1477, 1633)
SCALE_HZ = 220 * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12, 14, 16]) / 12)
PLUCK_KEPT = 0.996  # of a string's sound from one period to the next

Wave = Callable[[float, Sound], Sound]


def _times_s(samples: int) -> Sound:
    return np.arange(samples) / RATE_HZ


def _sine(hz: float, time_s: Sound) -> Sound:
    return np.asarray(np.sin(2 * np.pi * hz * time_s))


def _partials(hz: float, time_s: Sound, numbers: Sequence[int], fall: int) -> Sound:
    below = [k for k in numbers if k * hz < 0.45 * RATE_HZ]
    parts = [np.sin(2 * np.pi * hz * k * time_s) / k**fall for k in below]
    return np.asarray(np.sum(parts, axis=0))


def _square(hz: float, time_s: Sound) -> Sound:
    return 0.9 * _partials(hz, time_s, range(1, 200, 2), 1)


def _triangle(hz: float, time_s: Sound) -> Sound:
    return 0.8 * _partials(hz, time_s + 0.25 / hz, range(1, 200, 2), 2)


def _sawtooth(hz: float, time_s: Sound) -> Sound:
    return 0.6 * _partials(hz, time_s, range(1, 200), 1)


def _plucked(hz: float, time_s: Sound) -> Sound:
    """A string as Karplus and Strong make one: noise that goes round and is smoothed."""
    period = int(RATE_HZ / hz)
    string = np.random.default_rng(int(hz)).uniform(-1, 1, period)
    rounds = [string]
    while len(rounds) * period < len(time_s):
        string = PLUCK_KEPT * 0.5 * (string + np.roll(string, -1))
        rounds.append(string)
    return np.concatenate(rounds)[: len(time_s)]


def _steady(*frequencies_hz: float) -> Callable[[Sound], Sound]:
    def wave(time_s: Sound) -> Sound:
        parts = [_sine(hz, time_s) for hz in frequencies_hz]
        return np.asarray(np.sum(parts, axis=0) / len(parts))

    return wave


def _with_cadence(
    wave: Callable[[Sound], Sound], *on_off_s: float
) -> Callable[[np.random.Generator, int], Sound]:
    """On, off, on … for so long, and again; without any: always on."""

    def sound(random: np.random.Generator, samples: int) -> Sound:
        time_s = _times_s(samples)
        edges = np.cumsum(on_off_s)
        if not len(edges):
            return _in_a_room(random, wave(time_s))
        at = np.searchsorted(edges, np.mod(time_s, edges[-1]), side="right")
        return _in_a_room(random, wave(time_s) * (at % 2 == 0))

    return sound


def _in_a_room(random: np.random.Generator, sound: Sound) -> Sound:
    return np.asarray(LEVEL * sound + random.standard_normal(len(sound)) * ROOM)


def _keys(on_s: float, off_s: float) -> Callable[[np.random.Generator, int], Sound]:
    def sound(random: np.random.Generator, samples: int) -> Sound:
        made = np.zeros(samples)
        on, step = int(on_s * RATE_HZ), int((on_s + off_s) * RATE_HZ)
        for start in range(0, samples, step):
            pair = random.choice(DTMF_LOW_HZ), random.choice(DTMF_HIGH_HZ)
            time_s = _times_s(min(on, samples - start))
            made[start : start + on] = (_sine(pair[0], time_s) + _sine(pair[1], time_s)) / 2
        return _in_a_room(random, made)

    return sound


def _melody(wave: Wave, note_s: float) -> Callable[[np.random.Generator, int], Sound]:
    def sound(random: np.random.Generator, samples: int) -> Sound:
        made = np.zeros(samples)
        at = 0
        while at < samples:
            time_s = _times_s(int(note_s * random.choice([0.5, 1, 2]) * RATE_HZ))
            swell = np.clip(np.minimum(time_s / 0.01, (time_s[-1] - time_s) / 0.03), 0, 1)
            note = (wave(random.choice(SCALE_HZ), time_s) * swell)[: samples - at]
            made[at : at + len(note)] = note
            at += len(note)
        return _in_a_room(random, made)

    return sound


def _three_rising(time_s: Sound) -> Sound:
    at = np.mod(time_s, 2.0)
    low, middle, high = (_sine(hz, time_s) for hz in (950, 1400, 1800))
    return np.asarray(np.where(at < 0.33, low, np.where(at < 0.66, middle, high)))


KINDS: dict[str, Callable[[np.random.Generator, int], Sound]] = {
    "dial tone, America": _with_cadence(_steady(350, 440)),
    "dial tone, Britain": _with_cadence(_steady(350, 450)),
    "dial tone, Europe": _with_cadence(_steady(425)),
    "ringing, America": _with_cadence(_steady(440, 480), 2, 4),
    "ringing, Britain": _with_cadence(_steady(400, 450), 0.4, 0.2, 0.4, 2),
    "ringing, Europe": _with_cadence(_steady(425), 1, 4),
    "busy, America": _with_cadence(_steady(480, 620), 0.5, 0.5),
    "busy, Britain": _with_cadence(_steady(400), 0.375, 0.375),
    "busy, Europe": _with_cadence(_steady(425), 0.5, 0.5),
    "three rising tones": _with_cadence(_three_rising, 1, 1),
    "fax calling": _with_cadence(_steady(1100), 0.5, 3),
    "keys, quick": _keys(0.05, 0.05),
    "keys": _keys(0.1, 0.1),
    "keys, slow": _keys(0.4, 0.2),
    "melody of sines": _melody(_sine, 0.35),
    "melody of squares": _melody(_square, 0.35),
    "melody of triangles": _melody(_triangle, 0.35),
    "melody of sawteeth": _melody(_sawtooth, 0.35),
    "melody of plucked strings": _melody(_plucked, 0.35),
    "quick melody of sines": _melody(_sine, 0.12),
    "quick melody of squares": _melody(_square, 0.12),
    "quick melody of plucked strings": _melody(_plucked, 0.2),
    "slow melody of plucked strings": _melody(_plucked, 0.8),
}
