"""People who pause while they speak: turns with known pauses, made of recordings.

    sentence   "Please enter your | <pause> | password."   one recording, cut where it is quietest
    sentences  "The line is busy." <pause> "Please try again later."       two recordings, joined

Each speaker has a pace, a median pause between `PACE_MS`; each pause of theirs varies about it
within `PAUSE_MS`. Seeded: the same recordings give the same turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.int16]

RATE_HZ = 16_000
SEED = 11
TURNS_OF_A_SPEAKER = 6
PACE_MS = (250.0, 1100.0)
PAUSE_MS = (200.0, 1500.0)
PAUSE_SPREAD = 0.3  # standard deviation of a pause's logarithm about the pace's
LEAST_WORDS = 5
LONGEST_S = 9.0
ROOM_LEVEL = 8.0  # of the noise in pauses, s16 units RMS
FRAME = RATE_HZ // 100
EDGE_DBFS = -45.0
CUT_WITHIN = (0.35, 0.65)  # shares of a recording between which it is cut
FADE = RATE_HZ // 200


@dataclass(frozen=True)
class SpokenTurn:
    """Sound of one turn, s16 16 kHz, with silence before and none behind."""

    speaker: int
    kind: str  # "sentence" or "sentences"
    text: str
    pause_ms: float
    sound: Samples


def whole_sentences(lines: Sequence[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """Those of a list that are whole sentences, said once, and not too long to be a turn."""
    chosen = {}
    for path, text in lines:
        ends = text.endswith((".", "?", "!")) and not text.endswith("..")
        if ends and text[:1].isupper() and len(text.split()) >= LEAST_WORDS:
            chosen.setdefault(text, path)
    return [(path, text) for text, path in chosen.items()]


def load(path: Path) -> Samples:
    """A recording without the silence at its ends."""
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
        frames += resampler.resample(None)
    sound = np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(np.int16)
    loud = np.flatnonzero(_levels(sound) > EDGE_DBFS)
    if not len(loud):
        return sound[:0]
    return sound[loud[0] * FRAME : (loud[-1] + 1) * FRAME]


def turns(sentences: Sequence[tuple[Path, str]], speakers: int) -> Iterator[SpokenTurn]:
    """`TURNS_OF_A_SPEAKER` turns of each speaker, by turns of the two kinds."""
    random = np.random.default_rng(SEED)
    sounds = [(load(path), text) for path, text in sentences]
    sounds = [(s, t) for s, t in sounds if 0 < len(s) <= LONGEST_S * RATE_HZ]
    for speaker in range(speakers):
        pace_ms = float(np.exp(random.uniform(*np.log(PACE_MS))))
        for number in range(TURNS_OF_A_SPEAKER):
            first, second = random.choice(len(sounds), 2, replace=False)
            pause_ms = pace_ms * float(np.exp(random.normal(0, PAUSE_SPREAD)))
            pause_ms = min(max(pause_ms, PAUSE_MS[0]), PAUSE_MS[1])
            sound, text = sounds[first]
            if number % 2:
                kind, parts = "sentences", (sound, sounds[second][0])
                text = f"{text} | {sounds[second][1]}"
            else:
                kind, parts = "sentence", _cut(sound)
            pieces = (_room(random, 500.0), parts[0], _room(random, pause_ms), parts[1])
            yield SpokenTurn(speaker, kind, text, round(pause_ms, 1), np.concatenate(pieces))


def room(ms: float) -> Samples:
    """Silence of a quiet room."""
    return _room(np.random.default_rng(SEED), ms)


def _room(random: np.random.Generator, ms: float) -> Samples:
    noise = random.standard_normal(round(ms * RATE_HZ / 1000)) * ROOM_LEVEL
    return np.rint(noise).astype(np.int16)


def _levels(sound: Samples) -> npt.NDArray[np.float64]:
    """dBFS of each 10 ms."""
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    power = (frames**2).mean(axis=1) / 32768.0**2
    return np.asarray(10 * np.log10(np.maximum(power, 1e-10)))


def _cut(sound: Samples) -> tuple[Samples, Samples]:
    """In two where it is quietest for 50 ms, near the middle: as a rule between words."""
    levels = np.convolve(_levels(sound), np.ones(5) / 5, "same")
    first, last = (round(share * len(levels)) for share in CUT_WITHIN)
    at = (first + int(levels[first:last].argmin())) * FRAME
    left, right = sound[:at].copy(), sound[at:].copy()
    ramp = np.linspace(0, 1, FADE)
    left[-FADE:] = (left[-FADE:] * ramp[::-1]).astype(np.int16)
    right[:FADE] = (right[:FADE] * ramp).astype(np.int16)
    return left, right
