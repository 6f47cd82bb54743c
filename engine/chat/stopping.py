"""Early ends of an answer's text: stop strings named by the client, and a number of sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable


class StopStrings:
    """Ends an answer's text before the first stop string.

    Text that may be the beginning of a stop string is held back until that is decided.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that may be sent now; empty once `stopped`."""
        if self.stopped:
            return ""
        text = self._held + text
        # The stop string that is complete first wins, so the result does not depend on the cuts.
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        held = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """The text held back, when the answer is over."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that `text` ends with."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


# The end of a sentence: punctuation behind a word, before a space. Not behind initials, titles and
# bare numbers, which are mostly list numbers: one sentence too many is better than half of one.
_END = re.compile(
    r"""(?<![\s.][A-Za-z])(?<!^[A-Za-z])(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bvs)
        (?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!^\d)(?<!\s\d)(?<!\s\d\d)
        [.!?]+["')\]]*(?=\s)""",
    re.VERBOSE,
)


class SentenceLimit:
    """Passes text on until `limit` sentences are complete; 0: no limit.

    The end of a sentence shows with the first space behind it, so nothing is held back.
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
