"""Ends an answer's text at a stop string that the client named."""

from __future__ import annotations

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
