"""Words that show that a message goes on: fillers, conjunctions, and answers that are too short for
what was asked. Of the languages that the recogniser knows best."""

from __future__ import annotations

import re
from enum import Enum


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS = _words("um umm uhm uh uhh er erm hmm hm mm äh ähm öhm euh ehm eh este pues cioè allora")
OPEN_ENDS = _words(
    """a an the and or but so because if that to of for with from in at my your is are i
    und oder aber weil dass der die das ein eine mit von zu für
    et ou mais parce que le la les un une de du des avec pour
    y o pero porque el los las un una con para
    e ma perché il lo gli uno con per"""
)
"""Words that rarely end a message."""

LEAST_DIGITS = 6  # of a number that a question asks for
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_ASKS_FOR_NUMBER = re.compile(
    r"(?:phone|telephone|account|card|order|reference|booking|customer|tracking|serial|member)"
    r"(?: \w+)? (?:number|code)|number to (?:call|reach)",
    re.IGNORECASE,
)
_SPOKEN_DIGITS = _words("zero oh one two three four five six seven eight nine double triple")


class Expected(Enum):
    """What a reply is expected to contain."""

    ANYTHING = "anything"
    NUMBER = "number"  # of at least `LEAST_DIGITS` digits


def expected_by(message: str) -> Expected:
    """What the assistant's message asks for: judged by its last sentence."""
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", message.strip()) if part]
    last = sentences[-1] if sentences else ""
    if last.endswith("?") and _ASKS_FOR_NUMBER.search(last):
        return Expected.NUMBER
    return Expected.ANYTHING


def is_unfinished(words: str, expected: Expected = Expected.ANYTHING) -> bool:
    """Whether the recognised `words` of a message show that it goes on."""
    text = words.rstrip()
    if not text:
        return False
    if text.endswith((",", "…", "...", "-", "–", ":", ";")):  # noqa: RUF001
        return True
    found = _WORD.findall(text.lower())
    if found and found[-1] in FILLERS | OPEN_ENDS and not text.endswith(("?", "!")):
        return True
    return expected is Expected.NUMBER and 0 < _digits(found) < LEAST_DIGITS


def _digits(found: list[str]) -> int:
    return sum(len(word) if word.isdigit() else word in _SPOKEN_DIGITS for word in found)
