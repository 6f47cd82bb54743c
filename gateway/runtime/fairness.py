"""A session's share of the event loop, so that one that floods keeps nobody else waiting.

Reading a client's messages costs time on the loop that all sessions share. A session has a bucket
of that time, which fills at `SHARE` of real time up to `BURST_S`. A message is worked on whatever
is in the bucket, but an empty one makes the reader wait until it has filled again; meanwhile the
transport holds the client back, and nothing queues up here. Between its messages a session lets
the others go first after every `TURN_S`.

A live microphone takes a few thousandths of real time, a file fed as fast as it goes a quarter.

A call's packets cannot be held back. They are worked on until the bucket is overdrawn by
`RESERVE_S`, which is what a network that was gone for twelve seconds delivers in one go; what comes
on top is dropped (`admits`), before anything is done with it.
"""

from __future__ import annotations

SHARE = 0.25
BURST_S = 0.05
TURN_S = 0.002
RESERVE_S = 0.5


class LoopTimeBudget:
    """Sans-clock: times in seconds of any one clock."""

    def __init__(self, now_s: float) -> None:
        self.overdrawn = False
        """More than its share was spent, when `spend` was called last."""
        self._left_s = BURST_S
        self._seen_s = now_s
        self._turn_s = 0.0

    def spend(self, took_s: float, now_s: float) -> float | None:
        """`took_s` was spent on one message, until `now_s`. How long its reader has to wait before
        the next one: None: not at all; 0: only until the others have had their turn."""
        left_s = self._left_s + SHARE * (now_s - self._seen_s)
        self._seen_s = now_s
        self._left_s = left_s = (left_s if left_s < BURST_S else BURST_S) - took_s
        self._turn_s += took_s
        self.overdrawn = left_s < 0
        if self.overdrawn:
            self._turn_s = 0.0
            return -left_s / SHARE
        if self._turn_s >= TURN_S:
            self._turn_s = 0.0
            return 0.0
        return None

    def admits(self, now_s: float) -> bool:
        """Whether something that cannot wait may still be worked on."""
        return self._left_s + SHARE * (now_s - self._seen_s) > -RESERVE_S
