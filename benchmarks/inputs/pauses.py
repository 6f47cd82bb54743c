"""Turns with known pauses, made of recordings.

    sentence   "Please enter your | <pause> | password."   one recording, cut where it is quietest
    sentences  "The line is busy." <pause> "Please try again later."       two recordings, joined

Each speaker has a median pause within `PACE_MS`; the speaker's pauses vary about it, within
`PAUSE_MS`. Seeded: the same recordings give the same turns.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs.recordings import load_s16
from headstart.engine.weights import ensure
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.tts import synthesiser, voices

Samples = npt.NDArray[np.int16]

RATE_HZ = 16_000
QUESTIONS = Path(__file__).with_name("questions.toml")
SEED = 11
TURNS_OF_A_SPEAKER = 8
PACE_MS = (250.0, 1100.0)
PAUSE_MS = (200.0, 1500.0)
PAUSE_SPREAD = 0.3  # standard deviation of a pause's logarithm about the pace's
LEAST_WORDS = 4
LEAD_MS = 500.0
LONGEST_S = 9.0
ROOM_LEVEL = 8.0  # RMS of the noise in pauses, s16 units
FRAME = RATE_HZ // 100
EDGE_DBFS = -45.0
CUT_WITHIN = (0.35, 0.65)  # shares of a recording between which it is cut
FADE = RATE_HZ // 200
JOINED_BY = " | "
HALVES = ("tuned", "held_out")


@dataclass(frozen=True)
class SpokenTurn:
    """Audio of one turn, s16 16 kHz, with silence before it and none behind."""

    speaker: int
    kind: str  # "sentence" or "sentences"
    text: str
    pause_ms: float
    sound: Samples


@dataclass(frozen=True)
class Recording:
    """Whole sentences, without silence at the ends: s16 16 kHz."""

    sound: Samples
    text: str

    @property
    def is_one_sentence(self) -> bool:
        return sum(mark in ".?!" for mark in self.text) == 1


def recordings(lines: Sequence[tuple[Path, str]]) -> list[Recording]:
    """The recordings of a list (`path TAB text`) that are whole sentences, each once, and short
    enough for a turn."""
    chosen: dict[str, Path] = {}
    for path, text in lines:
        ends = text.endswith((".", "?", "!")) and not text.endswith("..")
        if ends and text[:1].isupper() and len(text.split()) >= LEAST_WORDS:
            chosen.setdefault(text, path)
    loaded = [Recording(trimmed(load_s16(path, RATE_HZ)), text) for text, path in chosen.items()]
    return [r for r in loaded if 0 < len(r.sound) <= LONGEST_S * RATE_HZ]


def spoken_questions() -> list[Recording]:
    """Everyday requests (`questions.toml`), spoken by the packaged voice.

    Raises `headstart.gateway.tts.synthesiser.VoiceUnavailable`.
    """
    voice = voices.load("joe", ensure("joe"))
    table = tomllib.loads(QUESTIONS.read_text())
    texts = dict.fromkeys(ask["say"] for dialog in table["dialog"] for ask in dialog["ask"])
    found = []
    for text in texts:
        if len(text.split()) < LEAST_WORDS:
            continue
        resampler = StreamResampler(synthesiser.RATE_HZ, RATE_HZ)
        pieces = [resampler.feed(piece) for piece in voice.speak(text, 1.0)]
        found.append(Recording(trimmed(np.concatenate(pieces)), text))
    return found


def half_of(text: str) -> str | None:
    """The half of a turn, by the CRC-32 of its sentences: "tuned" (even) or "held_out" (odd), so
    that no sentence is in both; None: it joins one of each."""
    parity = {zlib.crc32(sentence.encode()) % 2 for sentence in text.split(JOINED_BY)}
    return HALVES[parity.pop()] if len(parity) == 1 else None


def turns(found: Sequence[Recording], speakers: int) -> Iterator[SpokenTurn]:
    """`TURNS_OF_A_SPEAKER` turns of each speaker, alternating between the two kinds."""
    random = np.random.default_rng(SEED)
    single = [recording for recording in found if recording.is_one_sentence]
    for speaker in range(speakers):
        pace_ms = float(np.exp(random.uniform(*np.log(PACE_MS))))
        for number in range(TURNS_OF_A_SPEAKER):
            pause_ms = pace_ms * float(np.exp(random.normal(0, PAUSE_SPREAD)))
            pause_ms = min(max(pause_ms, PAUSE_MS[0]), PAUSE_MS[1])
            if number % 2:
                first, second = (found[i] for i in random.choice(len(found), 2, replace=False))
                kind, text = "sentences", f"{first.text}{JOINED_BY}{second.text}"
                parts = (first.sound, second.sound)
            else:
                whole = single[random.integers(len(single))]
                kind, text, parts = "sentence", whole.text, cut(whole.sound)
            pieces = (_room(random, LEAD_MS), parts[0], _room(random, pause_ms), parts[1])
            yield SpokenTurn(speaker, kind, text, round(pause_ms, 1), np.concatenate(pieces))


def room(ms: float) -> Samples:
    """Silence of a quiet room."""
    return _room(np.random.default_rng(SEED), ms)


def trimmed(sound: Samples) -> Samples:
    """Without the silence at its ends."""
    loud = np.flatnonzero(levels_dbfs(sound) > EDGE_DBFS)
    if not len(loud):
        return sound[:0]
    return sound[loud[0] * FRAME : (loud[-1] + 1) * FRAME]


def _room(random: np.random.Generator, ms: float) -> Samples:
    noise = random.standard_normal(round(ms * RATE_HZ / 1000)) * ROOM_LEVEL
    return np.rint(noise).astype(np.int16)


def levels_dbfs(sound: Samples) -> npt.NDArray[np.float64]:
    """dBFS of each 10 ms."""
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    power = (frames**2).mean(axis=1) / 32768.0**2
    return np.asarray(10 * np.log10(np.maximum(power, 1e-10)))


def cut(sound: Samples, within: tuple[float, float] = CUT_WITHIN) -> tuple[Samples, Samples]:
    """Split where it is quietest for 50 ms between two shares of its length; near the middle that
    is usually between words."""
    levels = np.convolve(levels_dbfs(sound), np.ones(5) / 5, "same")
    first, last = (round(share * len(levels)) for share in within)
    at = (first + int(levels[first:last].argmin())) * FRAME
    left, right = sound[:at].copy(), sound[at:].copy()
    ramp = np.linspace(0, 1, FADE)
    left[-FADE:] = (left[-FADE:] * ramp[::-1]).astype(np.int16)
    right[:FADE] = (right[:FADE] * ramp).astype(np.int16)
    return left, right
