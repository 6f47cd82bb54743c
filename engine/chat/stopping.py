"""What ends an answer's text early: a stop string that the client named, or a number of whole
sentences, since what is said aloud should be short.

"""

from __future__ import annotations

import re
from collections.abc import Iterable


class StopStrings:
    """Cuts an answer's text at the first stop string, which is not part of it.

    Text that may be the beginning of a stop string is held back until it is known not to be.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that is safe to send now; empty once `stopped`."""
        if self.stopped:
            return ""
        text = self._held + text
        # The stop that is complete first counts, so that it does not matter how text is cut.
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        held = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back, when the answer is over."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Letters at the end of `text` that `stop` begins with, not all of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


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
