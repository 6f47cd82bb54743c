"""What is made of one clip's conversation, and of all of a system's: the same for every system.

No I/O: a `Conversation` is what a client has noted, on one clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headstart.benchmarks.peers.clips import Plan, halves
from headstart.benchmarks.report import percentile

USER, ASSISTANT = "user", "assistant"
HALF = 0.5
"""A part of a question of which fewer words reached the model was not answered."""


@dataclass
class Answer:
    """One answer. Times in seconds of the client's clock; None: it did not come to that.

    `read`: role and text of the messages that the model read for it, without instructions.
    """

    read: list[tuple[str, str]]
    first_token_at_s: float | None = None
    first_sound_at_s: float | None = None
    heard_before_end_s: float = 0.0
    text: str = ""


@dataclass
class Conversation:
    """A clip and what a system made of it. `speech_end_at_s`: when its last sample was sent;
    `heard`: the texts recognised; `own_ms`: what the system itself has measured, by its names;
    `timeline`: what happened when, for readers; `cpu_s`: processor time of all its processes and
    the client; `others_cores`: used by other processes meanwhile."""

    plan: Plan
    speech_end_at_s: float
    heard: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    own_ms: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    timeline: list[tuple[float, str]] = field(default_factory=list)
    cpu_s: float = 0.0
    others_cores: float = 0.0


@dataclass(frozen=True)
class Score:
    """One clip's result; times from the last speech sample. None: not answered.

    `false_start`: sound of an answer was heard while the speaker went on. `broken`: the last answer
    is none to the whole question. `wrong`: errors in hearing `words` words.
    """

    name: str
    first_token_ms: float | None
    first_sound_ms: float | None
    false_start: bool
    heard_over_ms: float
    broken: bool
    answers: int
    wrong: int
    words: int
    right: bool | None
    heard: str
    answer: str


def score(talk: Conversation, spell: Callable[[str], str], errors: Callable[..., int]) -> Score:
    """`spell`: the normaliser of texts; `errors`: word errors of two lists of texts."""
    plan = talk.plan
    begun = [a for a in talk.answers if a.first_token_at_s is not None]
    last = begun[-1] if begun else None
    over_ms = sum(a.heard_before_end_s for a in talk.answers) * 1000
    asked = asked_in(last.read) if last else ""
    heard = " ".join(talk.heard)
    truth, words = spell(plan.text), spell(heard)
    right = bool(re.search(plan.want, last.text, re.IGNORECASE)) if last and plan.want else None
    return Score(
        name=plan.name,
        first_token_ms=_since(talk, last.first_token_at_s if last else None),
        first_sound_ms=_since(talk, last.first_sound_at_s if last else None),
        false_start=over_ms > 0,
        heard_over_ms=round(over_ms, 1),
        broken=not last or is_broken(plan, spell(asked), spell),
        answers=len(begun),
        wrong=errors([truth], [words]),
        words=len(truth.split()),
        right=right,
        heard=heard,
        answer=last.text if last else "",
    )


def _since(talk: Conversation, at_s: float | None) -> float | None:
    return None if at_s is None else round((at_s - talk.speech_end_at_s) * 1000, 1)


def asked_in(read: Sequence[tuple[str, str]]) -> str:
    """The message that an answer is to: what the user has said since the assistant last spoke."""
    said: list[str] = []
    for role, text in reversed(read):
        if role == ASSISTANT and text.strip():
            break
        if role == USER:
            said.insert(0, text)
    return " ".join(said)


def is_broken(plan: Plan, asked: str, spell: Callable[[str], str]) -> bool:
    """Whether the words of some part of the clip are not in the message, by half or more."""
    heard = asked.split()
    return any(_kept(spell(part).split(), heard) < HALF for part in parts(plan))


def parts(plan: Plan) -> list[str]:
    """The texts before and behind the pause."""
    if plan.opening:
        return [plan.opening, plan.question]
    return [plan.question] if plan.kind == "whole" else list(halves(plan.question))


def _kept(part: Sequence[str], heard: Sequence[str]) -> float:
    """The share of a part's words that were heard, each counted as often as it was."""
    left = list(heard)
    kept = 0
    for word in part:
        if word in left:
            left.remove(word)
            kept += 1
    return kept / len(part) if part else 1.0


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Percentiles, shares and word error rate. Times are those of answered, unbroken turns that
    had begun after the speaker's end: a turn that is broken is counted as that, not as quick."""
    good = [s for s in scores if not s.broken]
    judged = [s.right for s in scores if s.right is not None]
    paused = [s for s in scores if "-whole-" not in s.name]
    return {
        **_percentiles("first_token_ms", [s.first_token_ms for s in good]),
        **_percentiles("first_sound_ms", [s.first_sound_ms for s in good]),
        "false_start_share": _share([s.false_start for s in scores]),
        "false_start_heard_ms_max": max((s.heard_over_ms for s in scores), default=0.0),
        "broken_share": _share([s.broken for s in scores]),
        "broken_share_paused": _share([s.broken for s in paused]),
        "wer": _ratio(sum(s.wrong for s in scores), sum(s.words for s in scores)),
        "right_share": _share(judged),
        "clips": len(scores),
    }


def _percentiles(key: str, values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {
        f"{key}_p{percent}": round(percentile(known, percent), 1) if known else None
        for percent in (50, 95)
    }


def _share(flags: Sequence[bool | None]) -> float | None:
    return _ratio(sum(bool(flag) for flag in flags), len(flags))


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def as_line(system: str, talk: Conversation, result: Score) -> dict[str, Any]:
    """A JSON object for a file of conversations: what was read, said and scored."""
    answers = [
        {
            **asdict(answer),
            "first_token_ms": _since(talk, answer.first_token_at_s),
            "first_sound_ms": _since(talk, answer.first_sound_at_s),
        }
        for answer in talk.answers
    ]
    return {
        "system": system,
        **asdict(result),
        "said": talk.plan.text,
        "pause_ms": talk.plan.pause_ms,
        "cpu_s": talk.cpu_s,
        "others_cores": talk.others_cores,
        "own_ms": talk.own_ms,
        "errors": talk.errors,
        "timeline_ms": [(_since(talk, at_s), what) for at_s, what in talk.timeline],
        "all_answers": answers,
    }
