"""Words that show that a message goes on: fillers, conjunctions, answers that are too short for
what was asked, and lists that lack their last item. Of the languages that the recogniser knows
best."""

from __future__ import annotations

import re
from enum import Enum


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS = _words("um umm uhm uh uhh er erm hmm hm mm äh ähm öhm euh ehm eh este pues cioè allora")
CONJUNCTIONS = _words("and or but because und oder aber weil et ou mais y pero porque e ma perché")
OPEN_ENDS = _words(
    """a an the so if to of for with from at my your i
    dass der die das ein eine mit von zu für
    parce que le la les un une de du des avec pour
    o el los las una con para il lo gli uno per"""
)
"""Words that rarely end a message; with a full stop behind them they may ("I think so.")."""

LAST_ITEMS = _words("and or und oder et ou y e o u ed od и или")
"""Before the last item of a list."""

SHORT_WORDS = 4
ITEM_WORDS = 3
LEAST_DIGITS = 6  # of a number that a question asks for
_QUESTION_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")
# Thai, Lao, Burmese, Khmer, Japanese, Chinese: without spaces, a sentence looks like one word.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
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
    last = found[-1] if found else ""
    if text.endswith((*_QUESTION_MARKS, "!")):
        return False
    if last in FILLERS | CONJUNCTIONS or text.lower().endswith((", so", ", so.")):
        return True
    if last in OPEN_ENDS and not text.endswith("."):
        return True
    return expected is Expected.NUMBER and 0 < _digits(found) < LEAST_DIGITS


def is_question(words: str) -> bool:
    """Whether the recogniser put a question mark behind the `words`."""
    return words.rstrip().endswith(_QUESTION_MARKS)


def may_begin_list(words: str) -> bool:
    """Whether the message is one short sentence that asks nothing: "Put milk.", of which every item
    of a list could be the first. Of a language that writes no spaces that is not told."""
    if _UNSPACED.search(words):
        return False
    found = _WORD.findall(words)
    return 0 < len(found) <= SHORT_WORDS and not is_question(words)


def is_open_list(words: str) -> bool:
    """Whether the message ends with an item of a list, and not with the last one: "Milk, eggs.",
    but not "milk, eggs and bread". The recogniser may take each item for a sentence."""
    parts = [part for part in re.split(r"[,;.]\s+", words.strip()) if _WORD.search(part)]
    if len(parts) < 2 or is_question(words):
        return False
    last = _WORD.findall(parts[-1].lower())
    return len(last) <= ITEM_WORDS and not LAST_ITEMS.intersection(last)


def _digits(found: list[str]) -> int:
    return sum(len(word) if word.isdigit() else word in _SPOKEN_DIGITS for word in found)
