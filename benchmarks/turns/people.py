"""Turns as people speak them: with fillers, restarts, lists, dictated numbers and thoughts left
open, in a room that is not always quiet.

`people_said.toml` has the words, with a mark at each pause. Several packaged voices speak the parts
between the marks; each speaker has a pace, and the pauses vary about it. Recordings of people are
taken as they are, with their own pauses. A part of the turns has noise over it, from before the
first word until long after the last one.

"choose", "report" and "fresh" have no voice and no sentence in common. "report" was seen when the
first policies were chosen; "fresh" was made later, and not looked at until a policy stood. Seeded:
the same voices give the same turns.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headstart.benchmarks.inputs import noise
from headstart.benchmarks.inputs.condition_sounds import active_rms
from headstart.benchmarks.inputs.recordings import load_s16
from headstart.benchmarks.inputs.voices import Line, Samples, Say
from headstart.gateway.audio.clock import CLIENT_RATE_HZ as RATE_HZ

SAID = Path(__file__).with_name("people_said.toml")
CHOOSE, REPORT, FRESH = "choose", "report", "fresh"
HALVES = (CHOOSE, REPORT, FRESH)
VOICES = {
    CHOOSE: (
        "joe",
        "flite slt",
        "flite awb",
        "espeak en-us",
    ),
    REPORT: (
        "kokoro jm_kumo",
        "flite rms",
        "flite kal16",
        "espeak en-gb+f3",
    ),
    FRESH: (
        "kokoro jf_gongitsune",
        "kokoro jf_tebukuro",
        "festival ked_diphone",
        "espeak en-gb-scotland+m4",
    ),
}
TURNS_OF_A_VOICE = 20
PACE_MS = (300.0, 900.0)
PAUSE_MS = (200.0, 2000.0)
PAUSE_SPREAD = 0.4  # standard deviation of a pause's logarithm about the pace's
NOISES = ("pink noise", "keyboard", "far radio")
NOISY_SHARE = 0.25
SNR_DB = 18.0

LEAD_MS, TAIL_MS = 600.0, 4500.0
ROOM_LEVEL = 8.0  # RMS of a quiet room, s16 units
FRAME = RATE_HZ // 100
EDGE_DB = 35.0  # a recording's sound ends where it is so far under its speech
SEED = 17
PAUSE, PLAIN, PEOPLE = "|", "plain", "people"
LONGEST_S = 14.0


@dataclass(frozen=True)
class Script:
    """Words of one turn, in parts between pauses."""

    kind: str
    parts: tuple[str, ...]
    asked: str

    @property
    def text(self) -> str:
        return f" {PAUSE} ".join(self.parts)


@dataclass(frozen=True)
class Planned:
    """A turn before it is spoken. Turns of one `voice` follow each other in one session.

    `pauses_ms`: between the parts; `path`: of a recording.
    """

    half: str
    voice: str
    script: Script
    pauses_ms: tuple[float, ...]
    seed: int
    path: Path | None = None

    @property
    def key(self) -> str:
        """What tells it from every other turn."""
        return f"{self.half}/{self.voice}/{self.script.kind}/{self.script.text}"


@dataclass(frozen=True, eq=False)
class Turn:
    """A turn's sound, s16 24 kHz: the person's own is [first, end) of `pcm`. `noise`: or ""."""

    plan: Planned
    noise: str
    pcm: Samples
    first: int
    end: int


def scripts(half: str) -> list[Script]:
    """Everything that is said in one half."""
    found = tomllib.loads(SAID.read_text())["said"]
    return [
        Script(one["kind"], tuple(p.strip() for p in said.split(PAUSE)), one.get("asked", ""))
        for one in found
        if one["half"] == half
        for said in one["turns"]
    ]


def planned(half: str) -> list[Planned]:
    """What the half's voices say, in order: `TURNS_OF_A_VOICE` each, half of them plain."""
    found = scripts(half)
    plain = [script for script in found if script.kind == PLAIN]
    others = [script for script in found if script.kind != PLAIN]
    plans = []
    for voice in VOICES[half]:
        random = _random(voice)
        pace_ms = float(np.exp(random.uniform(*np.log(PACE_MS))))
        some = TURNS_OF_A_VOICE // 2
        chosen = [plain[i] for i in random.permutation(len(plain))[:some]]
        chosen += [others[i] for i in random.permutation(len(others))[:some]]
        for place in random.permutation(len(chosen)):
            script = chosen[place]
            drawn = [
                pace_ms * float(np.exp(random.normal(0, PAUSE_SPREAD))) for _ in script.parts[1:]
            ]
            pauses_ms = tuple(round(float(np.clip(ms, *PAUSE_MS)), 1) for ms in drawn)
            plans.append(Planned(half, voice, script, pauses_ms, int(random.integers(1 << 30))))
    return plans


def speak(plan: Planned, say: Say) -> Turn:
    """The turn as its voice says it."""
    parts = [_trimmed(say(Line(text))) for text in plan.script.parts]
    own = [parts[0]]
    for pause_ms, part in zip(plan.pauses_ms, parts[1:], strict=True):
        own += [np.zeros(round(pause_ms * RATE_HZ / 1000), np.int16), part]
    return _placed(plan, np.concatenate(own))


def recordings(half: str, voice: str, clips: Sequence[tuple[Path, str]]) -> list[Planned]:
    """Recordings of one person (path, text), each as one turn, with the pauses it has."""
    random = _random(voice)
    return [
        Planned(half, voice, Script(PEOPLE, (text,), ""), (), int(random.integers(1 << 30)), path)
        for path, text in clips
    ]


def load(plan: Planned) -> Turn | None:
    """The turn of a recording; None: it has no sound, or lasts too long."""
    assert plan.path is not None
    own = _trimmed(load_s16(plan.path, RATE_HZ))
    if not 0 < len(own) <= LONGEST_S * RATE_HZ:
        return None
    return _placed(plan, own)


def _random(voice: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{SEED} {voice}".encode()))


def _placed(plan: Planned, own: Samples) -> Turn:
    """The turn in its room."""
    random = np.random.default_rng(plan.seed)
    first = round(LEAD_MS * RATE_HZ / 1000)
    end = first + len(own)
    whole = np.zeros(end + round(TAIL_MS * RATE_HZ / 1000))
    whole[first:end] = own
    whole += random.standard_normal(len(whole)) * ROOM_LEVEL
    around = ""
    if random.random() < NOISY_SHARE:
        around = str(random.choice(NOISES))
        sound = noise.make(around, len(whole) / RATE_HZ + 0.1, int(random.integers(1 << 30)))
        over = sound[: len(whole)].astype(np.float64)
        wanted = active_rms(own / 32768) * 32768 / 10 ** (SNR_DB / 20)
        whole += over * (wanted / max(float(np.sqrt(np.mean(over**2))), 1e-9))
    pcm = np.rint(np.clip(whole, -32768, 32767)).astype(np.int16)
    return Turn(plan, around, pcm, first, end)


def _trimmed(sound: Samples) -> Samples:
    """Without the silence at its ends."""
    if len(sound) < FRAME:
        return sound[:0]
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    levels = 10 * np.log10(np.maximum((frames**2).mean(axis=1), 1e-3))
    loud = np.flatnonzero(levels > np.percentile(levels, 95) - EDGE_DB)
    return sound[loud[0] * FRAME : (loud[-1] + 1) * FRAME]
