"""What the feed has said, as far as a terminal shows it; bounded, no I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from headstart.recordings.clock import FeedClock, number
from headstart.recordings.reader import Json
from headstart.recordings.turns import Turn, listed, read_turn, record

TURNS_KEPT = 10_000
WINDOW_MS = 300_000.0
PACKETS_WINDOW_MS = 60_000.0
SNAPSHOTS_KEPT = 600


class State:
    """Told every message, in order."""

    def __init__(self) -> None:
        self.clock = FeedClock()
        self.snapshot: Json = {}
        self.rows: list[Json] = []
        self.turns: OrderedDict[str, Turn] = OrderedDict()
        """By id, oldest first."""
        self.error: Json = {}
        self.unreadable = 0
        self._packets: deque[tuple[float, Json]] = deque(maxlen=SNAPSHOTS_KEPT)

    @property
    def hello(self) -> Json:
        return self.clock.hello

    @property
    def dropped(self) -> int:
        """Messages that were not shown: those the server says it dropped, or those that a gap in
        the numbers tells of."""
        return max(self.clock.missed, int(number(self.snapshot.get("dropped")) or 0))

    def apply(self, message: Any) -> None:
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            self.unreadable += 1
            return
        runs = self.clock.runs
        self.clock.hear(message)
        if self.clock.runs > runs:
            self._forget_run()
        kind = message["type"]
        if kind == "turn":
            self._turn(message)
        elif kind == "snapshot":
            self._second(message)
        elif kind == "error":
            self.error = message

    def recent(self) -> list[Turn]:
        """Turns of the window, oldest first."""
        since_ms = self.clock.base_ms + self.clock.now_ms - WINDOW_MS
        return [turn for turn in self.turns.values() if turn.at_ms >= since_ms]

    def lost_share(self) -> float | None:
        """Of the packets that were due in the newest minute; None: there were none."""
        since_ms = self.clock.now_ms - PACKETS_WINDOW_MS
        kept = [packets for at_ms, packets in self._packets if at_ms >= since_ms]
        if not kept:
            return None

        def grown(name: str) -> float:
            first, last = (number(packets.get(name)) or 0.0 for packets in (kept[0], kept[-1]))
            return max(0.0, last - first)

        lost = grown("lost") + grown("late")
        due = grown("played") + lost
        return lost / due if due else None

    def _forget_run(self) -> None:
        """Another run of the server: its sessions and counters are new."""
        self.rows, self.snapshot = [], {}
        self._packets.clear()

    def _turn(self, message: Json) -> None:
        turn = read_turn(message, self.clock.wall_ms(message))
        if turn is None:
            self.unreadable += 1
            return
        old = self.turns.get(turn.id)
        if old is None:
            self.turns[turn.id] = turn
            if len(self.turns) > TURNS_KEPT:
                self.turns.popitem(last=False)
        elif turn.revision > old.revision:
            self.turns[turn.id] = Turn(turn.message, turn.id, old.at_ms)

    def _second(self, message: Json) -> None:
        self.snapshot = message
        self.rows = [row for row in listed(message.get("rows")) if isinstance(row, dict)]
        packets = record((record(message.get("rtc")) or {}).get("packets"))
        if packets is not None:
            self._packets.append((self.clock.now_ms, packets))
