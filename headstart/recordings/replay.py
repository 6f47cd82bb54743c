"""`headstart replay FILE`: the turns of a recording in virtual time, as they came."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

from headstart.recordings.clock import FeedClock
from headstart.recordings.errors import TurnNotFound
from headstart.recordings.faces import legend, line, plain, waterfall
from headstart.recordings.pace import Pace
from headstart.recordings.reader import Json, Recording
from headstart.recordings.turns import REVISED_WITHIN, Turn, read_turn, settled


class Counts:
    """What a replay has shown."""

    def __init__(self) -> None:
        self.turns = 0
        self.over_budget = 0
        self.left_out: dict[str, int] = {"interrupted": 0, "not_realtime": 0, "unmeasured": 0}

    def add(self, turn: Turn) -> None:
        self.turns += 1
        self.over_budget += turn.is_over_budget
        if turn.left_out_as is not None:
            self.left_out[turn.left_out_as] += 1

    def to_wire(self) -> Json:
        return {"turns": self.turns, "over_budget": self.over_budget, "left_out": self.left_out}

    def sentence(self) -> str:
        parts = [f"{self.turns} turn{'' if self.turns == 1 else 's'}"]
        parts.append(f"{self.over_budget} over budget")
        named = {name.replace("_", " "): n for name, n in self.left_out.items() if n}
        return ", ".join(parts + [f"{n} {name}" for name, n in named.items()])


def replay(recording: Recording, pace: Pace, show: Callable[[Turn, bool], None]) -> Counts:
    """Each turn when it is due; `show(turn, is_new)`, not new for a later revision."""
    clock, counts = FeedClock(), Counts()
    seen: OrderedDict[str, float] = OrderedDict()
    for _, message in recording.messages():
        pace.wait(message)
        clock.hear(message)
        turn = read_turn(message, clock.wall_ms(message))
        if turn is None or turn.revision <= seen.get(turn.id, 0.0):
            continue
        is_new = turn.id not in seen
        seen[turn.id] = turn.revision
        if len(seen) > REVISED_WITHIN:
            seen.popitem(last=False)
        if is_new:
            counts.add(turn)
        show(turn, is_new)
    return counts


def print_replay(recording: Recording, pace: Pace, console: Console) -> None:
    """For people. What was wrong with the file is said on stderr."""
    colour = console.color_system is not None and not console.no_color
    began = False

    def show(turn: Turn, is_new: bool) -> None:
        nonlocal began
        if not began:  # only now: the file may turn out to be no recording
            console.print(legend(colour))
            began = True
        if is_new:
            console.print(line(turn, colour), crop=True)

    counts = replay(recording, pace, show)
    console.print(counts.sentence(), style="bold", highlight=False)
    warn(recording)


def print_json(recording: Recording, pace: Pace, stream: TextIO) -> None:
    """For programs: each `turn` message as it came, revisions too; the last line sums it up."""

    def show(turn: Turn, _: bool) -> None:
        stream.write(json.dumps(turn.message, ensure_ascii=False) + "\n")
        stream.flush()

    counts = replay(recording, pace, show)
    said = {"type": "replayed", **counts.to_wire(), "remarks": recording.remarks}
    stream.write(json.dumps(said, ensure_ascii=False) + "\n")
    warn(recording)


def find(recording: Recording, wanted: str) -> Turn:
    """The newest revision of a turn: its id, or as much of its beginning or end as tells it from
    all others. Raises `TurnNotFound`."""
    found: dict[str, Turn] = {}
    for turn in settled(recording.messages(), FeedClock()):
        if turn.id == wanted:
            return turn
        if turn.id.startswith(wanted) or turn.id.endswith(wanted):
            found[turn.id] = turn
        if len(found) > 1:
            names = ", ".join(plain(name) for name in found)
            raise TurnNotFound(f"{wanted!r} is not one turn of {recording.path}: {names}")
    if not found:
        raise TurnNotFound(
            f"{recording.path} has no turn {wanted!r}: expected the id of one of its responses"
        )
    return found.popitem()[1]


def print_turn(recording: Recording, wanted: str, console: Console) -> None:
    console.print(waterfall(find(recording, wanted), console.width))
    warn(recording)


def warn(recording: Recording) -> None:
    """What was wrong with a file, on stderr."""
    for remark in recording.remarks:
        print(f"headstart: {remark}", file=sys.stderr, flush=True)
