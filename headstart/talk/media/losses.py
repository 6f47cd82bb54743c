"""What of a file cannot be decoded, with its times."""

from __future__ import annotations

from dataclasses import dataclass, field

from headstart.talk.media.times import clock

LOST_MIN_S = 0.5
"""Shorter losses are not told: nobody would notice them."""


@dataclass(frozen=True)
class Loss:
    """What could not be decoded: `what` is "pictures" or "sound"."""

    what: str
    start_s: float
    end_s: float

    def __str__(self) -> str:
        return f"{self.what} from {clock(self.start_s)} to {clock(self.end_s)} cannot be decoded"

    def to_wire(self) -> dict[str, object]:
        return {"what": self.what, "start_s": round(self.start_s, 2), "end_s": round(self.end_s, 2)}


@dataclass
class Losses:
    """Losses that have not been told yet, merged, by what was lost."""

    _open: dict[str, list[Loss]] = field(default_factory=dict)

    def add(self, what: str, start_s: float, end_s: float) -> None:
        if end_s - start_s < LOST_MIN_S:
            return
        spans = self._open.setdefault(what, [])
        if spans and start_s <= spans[-1].end_s + LOST_MIN_S:
            start_s = spans.pop().start_s
        spans.append(Loss(what, start_s, end_s))

    def take(self) -> tuple[Loss, ...]:
        found = tuple(loss for spans in self._open.values() for loss in spans)
        self._open.clear()
        return found
