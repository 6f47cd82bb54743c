"""Ends an answer after a number of whole sentences: what is said aloud should be short."""

from __future__ import annotations

import re

# A full stop and the like, behind a word, before a space. Not behind initials, titles and bare
# numbers, which are of a list more often than not: a sentence too many is better than half of one.
_END = re.compile(
    r"""(?<![\s.][A-Za-z])(?<!^[A-Za-z])(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bvs)
        (?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!^\d)(?<!\s\d)(?<!\s\d\d)
        [.!?]+["')\]]*(?=\s)""",
    re.VERBOSE,
)


class SentenceLimit:
    """Passes text on until `limit` sentences are whole; 0: always.

    That a sentence is whole shows when the next one's first space comes, so nothing is held back.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The part of `text` that is within the limit; empty once `stopped`."""
        if self.stopped:
            return ""
        before = len(self._text)
        self._text += text
        if self._limit == 0:
            return text
        ends = [match.end() for match in _END.finditer(self._text)]
        if len(ends) < self._limit:
            return text
        self.stopped = True
        return self._text[before : max(ends[self._limit - 1], before)]
