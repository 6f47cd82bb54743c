"""How reading goes on behind what of a recording cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import av
from av.container.input import InputContainer

from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.media.container import UNDECODABLE, Tally, ogg_links, opened, parts

RETRIES = 12
STEP_S = 0.25
"""How much further reading starts again; each time without success twice as much."""
SEEK_BEFORE_S = 3.0
"""Seeking is inexact in some containers, mostly by less than this."""


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
