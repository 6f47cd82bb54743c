"""The spoken questions of `headstart bench peers`: whole ones, and ones with a pause inside.

    whole    "What is the largest planet in our solar system?"
    inside   "What is the largest planet | <pause> | in our solar system?"  cut between two words
    between  "I would like to ask you something." <pause> "What is the largest …?"

Everyday questions (`questions.toml`, `spoken.py`) of the half that no policy was tuned on, by
packaged voices.
All sound is s16 at 16 kHz, so that no system hears a wider band than another.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headstart.benchmarks.inputs import pauses
from headstart.benchmarks.inputs.pauses import RATE_HZ, Samples
from headstart.benchmarks.inputs.questions import dialogs
from headstart.benchmarks.inputs.recordings import load_s16
from headstart.benchmarks.inputs.spoken import QUESTIONS, SENTENCES, write
from headstart.benchmarks.inputs.voices import Line, Say, cast
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.tts.synthesiser import RATE_HZ as VOICE_HZ

VOICES = ("joe", "kokoro jf_gongitsune", "kokoro jm_kumo")
KINDS = ("whole", "inside", "whole", "between")  # in turns
PAUSES_MS = (450, 800, 300, 1100, 600)  # in turns
OPENINGS = (
    "I would like to ask you something.",
    "I need your help with something.",
    "There is something I was wondering about.",
    "We were talking about this yesterday.",
    "My daughter asked me this morning.",
)
LEAST_WORDS = 5
REACH_S = 0.08
"""Around the estimated end of a word: the quietest place is taken."""
SEEING = "seeing"  # dialogs about a picture
NEEDS_MORE = r"^And|picture|this|that|song|table"  # words of questions that lean on something


@dataclass(frozen=True)
class Plan:
    """What is said in a clip. `opening`: before the pause, if that lies between two sentences;
    `want`: a pattern of right answers, "" where none is known."""

    number: int
    kind: str
    voice: str
    question: str
    want: str
    opening: str = ""
    pause_ms: int = 0

    @property
    def text(self) -> str:
        return f"{self.opening} {self.question}".strip()

    @property
    def name(self) -> str:
        words = re.sub(r"\W+", "-", self.question.lower()).strip("-")
        return f"{self.number:03}-{self.kind}-{self.voice.replace(' ', '-')}-{words}"


@dataclass(frozen=True)
class Clip:
    """A plan and its sound: silence at neither end."""

    plan: Plan
    sound: Samples

    @property
    def duration_s(self) -> float:
        return len(self.sound) / RATE_HZ


def plans(count: int) -> list[Plan]:
    """The first `count` clips. Raises ValueError where there are not as many."""
    asked = questions()
    most = len(asked) * len(VOICES)
    if not 1 <= count <= most:
        raise ValueError(f"expected 1 to {most} clips, got {count}")
    made, paused, opened = [], 0, 0
    for number in range(count):
        time, place = divmod(number, len(asked))  # each question again in another voice
        question, want = asked[place]
        kind = KINDS[number % len(KINDS)]
        voice = VOICES[(place + time) % len(VOICES)]
        opening, pause_ms = "", 0
        if kind != "whole":
            pause_ms, paused = PAUSES_MS[paused % len(PAUSES_MS)], paused + 1
        if kind == "between":
            opening, opened = OPENINGS[opened % len(OPENINGS)], opened + 1
        made.append(Plan(number, kind, voice, question, want, opening, pause_ms))
    return made


def questions() -> list[tuple[str, str]]:
    """Text and pattern of the held-out questions that need neither another before them nor a
    picture, those with a pattern first."""
    firsts = [one["ask"][0] for one in dialogs() if one["kind"] != SEEING]
    found = {first["say"]: first.get("want", "") for first in firsts}
    for text in SENTENCES[QUESTIONS]:
        if not re.search(NEEDS_MORE, text):
            found.setdefault(text, "")
    return [
        (text, want)
        for text, want in sorted(found.items(), key=lambda each: not each[1])
        if text.endswith("?")
        and pauses.half_of(text) == "held_out"
        and len(text.split()) >= LEAST_WORDS
    ]


def clips(folder: Path, planned: list[Plan], say: Callable[[str], None]) -> list[Clip]:
    """The sound of each plan; missing files are spoken into `folder`. `say` is told of each voice.

    Raises `VoiceUnavailable`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [plan for plan in planned if not _path(folder, plan).exists()]
    for name, speak in cast(tuple(sorted({plan.voice for plan in missing}))):
        own = [plan for plan in missing if plan.voice == name]
        say(f"{name} speaks {len(own)} clips")
        for plan in own:
            write(_path(folder, plan), _spoken(plan, functools.partial(_say, speak)), RATE_HZ)
    return [Clip(plan, load_s16(_path(folder, plan), RATE_HZ)) for plan in planned]


def _path(folder: Path, plan: Plan) -> Path:
    return folder / f"{plan.name}-{plan.pause_ms}.wav"


def _spoken(plan: Plan, speak: Callable[[str], Samples]) -> Samples:
    question = pauses.trimmed(speak(plan.question))
    if plan.kind == "whole":
        return question
    pause = pauses.room(plan.pause_ms)
    if plan.kind == "between":
        return np.concatenate([pauses.trimmed(speak(plan.opening)), pause, question])
    before, after = pauses.cut(question, _about(plan, len(question), speak))
    return np.concatenate([before, pause, after])


def _about(plan: Plan, samples: int, speak: Callable[[str], Samples]) -> tuple[float, float]:
    """The shares of a question between which its middle words meet: as long as the halves take
    when they are spoken alone, in proportion."""
    first, second = (len(pauses.trimmed(speak(half))) for half in halves(plan.question))
    share, reach = first / (first + second), REACH_S * RATE_HZ / samples
    return max(0.1, share - reach), min(0.9, share + reach)


def halves(question: str) -> tuple[str, str]:
    """Its first and its last words."""
    words = question.split()
    middle = (len(words) + 1) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def _say(speak: Say, text: str) -> Samples:
    return StreamResampler(VOICE_HZ, RATE_HZ).feed(speak(Line(text)))
