"""A session's share of the event loop, so that a flooding session delays no others.

Reading a client's messages takes time on the loop that all sessions share. Each session has a token
bucket of loop time, which fills at `SHARE` of real time up to `BURST_S`. A message is processed
whatever the bucket holds, but an empty bucket makes the reader wait until it has refilled;
meanwhile the transport slows the client down, and nothing queues up here. Between its messages, a
session yields to the others after every `TURN_S`.

A live microphone takes a few thousandths of real time, a file fed at full speed a quarter.

A call's packets cannot be slowed down. They are processed until the bucket is overdrawn by
`RESERVE_S`, which covers what a network delivers at once after an outage of twelve seconds; further
packets are dropped before any processing (`admits`).

"""

from __future__ import annotations

SHARE = 0.25
BURST_S = 0.05
TURN_S = 0.002
RESERVE_S = 0.5


class LoopTimeBudget:
    """Takes time as an argument: seconds on any one clock."""

    def __init__(self, now_s: float) -> None:
        self.overdrawn = False
        """Whether the bucket was empty at the last `spend`."""
        self._left_s = BURST_S
        self._seen_s = now_s
        self._turn_s = 0.0

    def spend(self, took_s: float, now_s: float) -> float | None:
        """`took_s` was spent on one message, until `now_s`. Returns the reader's pause before the
        next one, in s: None: no pause; 0: only let the others run."""
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
        """Whether a packet that cannot wait may still be processed."""
        return self._left_s + SHARE * (now_s - self._seen_s) > -RESERVE_S
