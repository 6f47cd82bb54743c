"""How people take turns, for simulated and real servers. Assumptions, each with its source.

A turn to an assistant is drawn log-normal with a median of 4 s: longer than between people (about
2 s a turn; Levinson, "Turn-taking in human communication", 2016), shorter than a dictation. 2.5
words a second is 150 a minute, the usual figure for conversation, and a word has 1.3 tokens.
Pauses inside a turn come every 4 s of speech with a median of 300 ms, as in recordings of
`headstart bench endpoint`; one of 200 ms makes the engine prepare an answer, which is dropped when
speech goes on. Answers have a median of 45 tokens: two spoken sentences. One turn in ten begins in
the middle of the answer before (a barge-in).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class People:
    """Medians and spreads (sigma of the logarithm). `constant_speech_s`, if not 0, replaces the
    drawn length of a turn: the speakers of `headstart bench live`."""

    speech_s: float = 4.0
    speech_sigma: float = 0.8
    longest_speech_s: float = 90.0
    tokens_per_s: float = 3.25
    pause_every_s: float = 4.0
    pause_s: float = 0.3
    pause_sigma: float = 0.5
    longest_pause_s: float = 0.45  # a longer one would end the turn
    answer_tokens: float = 45.0
    answer_sigma: float = 0.6
    most_answer_tokens: int = 200
    think_s: float = 1.5
    think_sigma: float = 0.8
    barge_in_share: float = 0.1
    session_s: float = 240.0
    session_sigma: float = 0.7
    system_tokens: int = 300
    opening_tokens: int = 8  # of the template, before an answer
    window_tokens: int = 4096
    listens_to_answers: bool = True  # the next turn waits until the answer has been spoken
    constant_speech_s: float = 0.0


DEFAULT = People()

LIVE = People(
    constant_speech_s=17.5,
    pause_every_s=math.inf,
    answer_tokens=24.0,
    answer_sigma=0.3,
    most_answer_tokens=48,
    think_s=1.5,
    think_sigma=0.0,
    barge_in_share=0.0,
    session_s=1e9,
    session_sigma=0.0,
    system_tokens=30,
    listens_to_answers=False,
)
"""The speakers of `headstart bench live`: 15 s without a pause and a question, again and again."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. `pauses`: seconds of speech before each pause, and its length in seconds."""

    speech_s: float
    pauses: tuple[tuple[float, float], ...]
    answer_tokens: int
    think_s: float
    barge_in: float | None  # share of the answer's sound that is heard


def draw_turn(people: People, chance: Random) -> Turn:
    """The next turn of somebody."""
    speech_s = people.constant_speech_s or min(
        max(_log_normal(chance, people.speech_s, people.speech_sigma), 0.5),
        people.longest_speech_s,
    )
    answer = round(_log_normal(chance, people.answer_tokens, people.answer_sigma))
    barge_in = chance.random() if chance.random() < people.barge_in_share else None
    return Turn(
        speech_s=speech_s,
        pauses=_pauses(people, chance, speech_s),
        answer_tokens=min(max(answer, 4), people.most_answer_tokens),
        think_s=_log_normal(chance, people.think_s, people.think_sigma),
        barge_in=barge_in,
    )


def draw_session_s(people: People, chance: Random) -> float:
    """How long a session lasts."""
    return _log_normal(chance, people.session_s, people.session_sigma)


def _pauses(people: People, chance: Random, speech_s: float) -> tuple[tuple[float, float], ...]:
    found: list[tuple[float, float]] = []
    at_s = chance.expovariate(1 / people.pause_every_s) if people.pause_every_s < 1e6 else math.inf
    while at_s < speech_s - 0.2:
        length_s = _log_normal(chance, people.pause_s, people.pause_sigma)
        found.append((at_s, min(length_s, people.longest_pause_s)))
        at_s += chance.expovariate(1 / people.pause_every_s)
    return tuple(found)


def _log_normal(chance: Random, median: float, sigma: float) -> float:
    return median * math.exp(chance.gauss(0.0, sigma))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
