"""What of a recording cannot be decoded, and how reading goes on behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import av
from av.container.input import InputContainer

from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.times import clock
from headstart.talk.media.container import UNDECODABLE, Tally, ogg_links, opened, parts

LOST_MIN_S = 0.5
"""Shorter losses are not told: nobody would notice them."""
RETRIES = 12
STEP_S = 0.25
"""How much further reading starts again; each time without success twice as much."""
SEEK_BEFORE_S = 3.0
"""Seeking is inexact in some containers, mostly by less than this."""


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


@dataclass
class Position:
    """How far a stream was read, by its timestamps, and its faults. `is_again`: whether the decoder
    at hand may begin with what the one before it has read."""

    tally: Tally
    time_s: float | None = None
    is_again: bool = False


def passes(info: FileInfo, stream: int, start_s: float, at: Position) -> Iterator[InputContainer]:
    """The file, opened a little before `start_s` of the recording; again, further on, for as long
    as reading breaks off (`at.tally.ended_early`) before its end. A chained Ogg from its beginning,
    link by link."""
    path = info.path
    if len(ogg_links(path)) > 1:
        yield from (c for c in parts(path) if stream < len(c.streams))
        return
    step_s, tries, reached_s = STEP_S, 0, info.start_s + start_s
    while True:
        with opened(path) as container:
            if start_s > 0 or tries:
                before_s = 0.0 if tries else SEEK_BEFORE_S
                try:
                    container.seek(int(max(info.start_s, reached_s - before_s) * av.time_base))
                except UNDECODABLE:
                    if tries:
                        return
            at.is_again = tries > 0
            yield container
        if not at.tally.ended_early or tries >= RETRIES:
            return
        at.tally.ended_early = False
        if at.time_s is not None and at.time_s > reached_s:
            step_s, tries, reached_s = STEP_S, 0, at.time_s
        tries += 1
        reached_s += step_s
        step_s *= 2
