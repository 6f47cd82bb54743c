"""How the language model is told what is written in a picture, and which questions are about it.

[camera: a text that says "No parking / Monday to Friday, 8 am - 6 pm"]
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher

from headstart.engine.interfaces import Look
from headstart.engine.vision.reading.reader import Written

SHORT_CHARS = 120
"""Bound of a note: what is written is a detail of most pictures."""
WHOLE_CHARS = 600
"""The same where the question is about it; about 200 tokens."""
_SAME_FROM = 0.8  # similarity of two readings of the same words, whose letters may flicker
# Of longer texts groups of letters are compared: aligning them takes minutes where letters repeat.
_ALIGNED_CHARS = 120
_GROUP_CHARS = 3
# One letter in ten misread leaves 0.55 to 0.75 of the groups, another English text has 0.1 to 0.4.
_SAME_GROUPS_FROM = 0.6
_LONGEST_WORD_CHARS = 40  # a longer one is cut within, and so is what is written without spaces

_WRITING = re.compile(
    r"\b(read|reads|reading|says?|said|written|writing|writes|texts?|words?|letters?|labels?|signs?"
    r"|signpost|spell|spelled|print|printed|titles?|headlines?|menu|posters?|pages?|caption"
    r"|plates?|named?|called|prices?|phone number|address)\b",
    re.IGNORECASE,
)
# Gaps are bounded: over any length they would make the time quadratic in the question's.
_SMALL_PRINT = re.compile(
    r"\b(small|fine|tiny|little|smaller|smallest)\s+(print|letters?|texts?|writing|words?|type)\b"
    r"|\bread\b.{0,80}\b(all|everything|whole|entire|rest|page|closely|carefully)\b"
    r"|\blook closer\b"
    r"|\ball (of (it|that)|(of )?the (text|words|writing))\b",
    re.IGNORECASE,
)

# Plain, curly, full-width and lenticular.
_NOTE_MARKS = re.compile('[\\[\\]"\u201c-\u201f\uff02\uff3b\uff3d\u3010\u3011]')

_COUNT = re.compile(
    r"\bhow many (?!(people|persons?|men|women|faces|words?|letters"
    r"|days|weeks|months|years|hours|minutes|seconds|times)\b).{0,120}"
    r"\b(see|there|picture|image|photo|camera|here|holding|hands?|front|table|these|those|this)\b"
    r"|\bcount (the|these|those|them|what)\b",
    re.IGNORECASE,
)
CANNOT_COUNT = "[camera: I can't count things in a picture, only people]\n"
"""There is no detector of things under a free licence in the packages that weights come from."""


def note(written: Written, *, whole: bool) -> str:
    """The note on what is written, "" for nothing. `whole`: as long as `WHOLE_CHARS`."""
    # A quotation mark or a bracket in the picture would end the note for the model.
    lines = (_NOTE_MARKS.sub("'", line) for line in written.lines)
    text = " / ".join(lines)
    limit = WHOLE_CHARS if whole else SHORT_CHARS
    if len(text) > limit:
        space = text.rfind(" ", limit - _LONGEST_WORD_CHARS, limit + 1)
        text = text[: limit if space < 0 else space] + " ..."
    elif written.more:
        text += " ..."
    # The wording of which `small` repeats most: 37 of 37 words of signs not reported on, 19 with
    # "[camera reads: ...]".
    return f'[camera: a text that says "{text}"]\n' if text else ""


def look_for(question: str) -> Look:
    """How closely a question asks to look."""
    if asks_for_small_print(question):
        return Look.CLOSELY
    return Look.WRITING if asks_about_writing(question) else Look.GLANCE


def asks_about_writing(question: str) -> bool:
    return bool(_WRITING.search(question))


def asks_for_small_print(question: str) -> bool:
    return bool(_SMALL_PRINT.search(question))


def asks_to_count_things(question: str) -> bool:
    """Whether it asks how many things, not people, are in view."""
    return bool(_COUNT.search(question))


def is_same(one: Written, other: Written) -> bool:
    """Whether two pictures have the same words, as far as can be read."""
    if one.text == other.text:
        return True
    if max(len(one.text), len(other.text)) <= _ALIGNED_CHARS:
        return SequenceMatcher(None, one.text, other.text, autojunk=False).ratio() >= _SAME_FROM
    groups, others = _groups(one.text), _groups(other.text)
    common = (groups & others).total()
    return 2 * common >= _SAME_GROUPS_FROM * (groups.total() + others.total())


def _groups(text: str) -> Counter[str]:
    return Counter(text[i : i + _GROUP_CHARS] for i in range(len(text) - _GROUP_CHARS + 1))
