"""The spelling in which the language model reads an utterance.

A recogniser hears the same words from chunk to chunk in other letter case and with other
punctuation. To read them anew for that would roll back all that was read behind them. So words that
were read stay as they were read; words that are heard otherwise are read anew, and all behind them.
"""

from __future__ import annotations

import re
from itertools import takewhile

_OPENING = '"“«([¿¡'
_CLOSING = '"”»)].,;:!?…。、' + "\uff0c\uff01\uff1f\uff1b\uff1a"  # the last five full-width
_WORD = re.compile(r"(\s*)(\S+)")


def keep_spelling(read: str, heard: str) -> str:
    """`heard`, its first words as `read` spells them.

    Both have the same words as far as `same_word` says so. Of these all but the last are spelt as
    in `read`: what follows a word may end its sentence, and to read one word anew is cheap. White
    space is that of `heard`, and so is the number of words.
    """
    words = _WORD.findall(heard)
    known = read.split()
    pairs = zip(known, (word for _, word in words), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: same_word(*pair), pairs))
    kept = max(same - 1, 0)
    spelt = [*known[:kept], *(word for _, word in words[kept:])]
    spaces = (space for space, _ in words)
    text = "".join(space + word for space, word in zip(spaces, spelt, strict=True))
    return text + heard[len(heard.rstrip()) :]


def same_word(one: str, other: str) -> bool:
    """Whether two words without white space differ in nothing but letter case and the punctuation
    around them. Signs that mean something ("-5", "5 %", "3:30", "we're") count."""
    return bare(one) == bare(other)


def bare(word: str) -> str:
    """A word without white space, in lower case and without the punctuation around it; one that is
    all punctuation, as it is."""
    return word.lstrip(_OPENING).rstrip(_CLOSING).casefold() or word


def place_in(read: str, heard: str, offset: int) -> int:
    """The offset in `read`, which spells the words of `heard`, that corresponds to `offset` in
    `heard`: behind as many words, and within a word behind as many characters of it."""
    at = 0
    spelt = _WORD.finditer(read)
    for word in _WORD.finditer(heard):
        if word.start() >= offset:
            break
        mine = next(spelt)
        if offset < word.end():
            return min(mine.start() + offset - word.start(), mine.end())
        at = mine.end()
    return at
