"""How long sound is under way from a call's peer to us, as well as that can be known here.

Nobody can measure one way alone: the clocks of both ends have no common zero. What can be known is
the round trip (our consent requests and their answers, on the path that the sound takes), and, from
RTP times, how much longer than the quickest packet each one took. So the estimate is half of the
quickest round trip lately, and for each packet what it took beyond the quickest one lately. It is
wrong by half of what the two directions differ by. No I/O, no clock.
"""

from __future__ import annotations

from gateway.media.timebase import NS_PER_MS
from gateway.rtc.receive_buffer import RTP_SAMPLES_PER_MS

WINDOW_NS = 30_000 * NS_PER_MS
""""Lately" is one to two of these: a path may change, and clocks drift apart by 3 ms in this."""
NEW_COUNT_NS = 10_000 * NS_PER_MS
"""So far off the quickest, a packet's time is of another count."""


class Lowest:
    """The smallest of the values of the last one to two windows."""

    def __init__(self) -> None:
        self._now: int | None = None
        self._before: int | None = None
        self._began_ns = 0

    def get(self, now_ns: int) -> int | None:
        """None: there is no value of so late."""
        self._turn(now_ns)
        known = [value for value in (self._now, self._before) if value is not None]
        return min(known, default=None)

    def take(self, value: int, now_ns: int) -> int:
        """The smallest, this one included."""
        self._turn(now_ns)
        self._now = value if self._now is None else min(self._now, value)
        return self._now if self._before is None else min(self._now, self._before)

    def forget(self) -> None:
        self._now = self._before = None

    def _turn(self, now_ns: int) -> None:
        if now_ns - self._began_ns < WINDOW_NS:
            return
        is_next = now_ns - self._began_ns < 2 * WINDOW_NS
        self._before, self._now = (self._now if is_next else None), None
        self._began_ns = now_ns


class NetworkPath:
    """One call's."""

    def __init__(self) -> None:
        self._round_trips = Lowest()
        self._offsets = Lowest()

    def answered(self, round_trip_ns: int, now_ns: int) -> None:
        """A request and its answer took so long."""
        self._round_trips.take(round_trip_ns, now_ns)

    def delay_ns(self, timestamp: int, received_ns: int) -> int | None:
        """How long a packet was under way; `timestamp`: its RTP time at 48 kHz, unwrapped. None:
        no request has been answered lately. To be asked about every packet."""
        offset_ns = received_ns - timestamp * NS_PER_MS // RTP_SAMPLES_PER_MS
        beyond_ns = offset_ns - self._offsets.take(offset_ns, received_ns)
        if beyond_ns > NEW_COUNT_NS:
            self._offsets.forget()
            beyond_ns = offset_ns - self._offsets.take(offset_ns, received_ns)
        round_trip_ns = self._round_trips.get(received_ns)
        return None if round_trip_ns is None else round_trip_ns // 2 + beyond_ns
