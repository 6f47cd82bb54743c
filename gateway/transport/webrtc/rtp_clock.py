"""Times of a call's packets: RTP times converted to 48 kHz, and the estimated one-way delay.

The one-way delay cannot be measured, because the clocks of the two ends have no common zero. What
can be measured is the round trip (our consent requests and their responses, on the path of the
audio) and, from RTP times, how much longer each packet took than the fastest one. The estimate is
half of the fastest recent round trip, plus each packet's excess over the fastest recent packet. Its
error is half the difference between the two directions. No I/O, no clock.

"""

from __future__ import annotations

from headstart.gateway.audio.clock import NS_PER_MS
from headstart.gateway.transport.webrtc.receive_buffer import (
    RTP_RATE_HZ,
    RTP_SAMPLES_PER_MS,
    unwrapped,
)

STEP_SAMPLES_MAX = RTP_RATE_HZ * 60 // 1000
"""With a larger gap, something was left out between two packets."""


class RtpClock:
    """Converts a stream's timestamps to one line at 48 kHz. A codec with another clock rate starts
    a new count (RFC 7160 §3) without a common zero. Its first packet is placed by its sequence
    number: that many packets after the last one, each as long as the distance of two consecutive
    packets. No I/O, no clock of its own."""

    def __init__(self) -> None:
        self._rate_hz = 0
        self._near = 0  # the newest timestamp, unwrapped, in the codec's ticks
        self._offset = 0  # from the codec's ticks converted to 48 kHz to the line
        self._sequence = 0  # of the newest packet
        self._at = 0  # its position on the line
        self._step = 0  # from one packet to the next

    def place(self, sequence: int, timestamp: int, samples: int, rate_hz: int) -> int:
        """A packet's time at 48 kHz, modulo 2**32. `samples`: its duration at 48 kHz; `rate_hz`:
        the clock rate of `timestamp`, a divisor of 48,000."""
        ticks = RTP_RATE_HZ // rate_hz
        is_next = sequence == (self._sequence + 1) & 0xFFFF
        behind = 1 if is_next else unwrapped(sequence, self._sequence, 16) - self._sequence
        if not self._rate_hz:
            self._step = samples
            self._begin(rate_hz, timestamp, timestamp * ticks)
        elif rate_hz != self._rate_hz:
            at = self._at + behind * self._step
            if behind <= 0:  # late, from before the change
                return at & 0xFFFFFFFF
            self._begin(rate_hz, timestamp, at)
        near = unwrapped(timestamp, self._near, 32)
        at = near * ticks + self._offset
        if behind == 1 and 0 < at - self._at <= STEP_SAMPLES_MAX:
            self._step = at - self._at
        if behind >= 0:
            self._near, self._sequence, self._at = near, sequence, at
        return at & 0xFFFFFFFF

    def _begin(self, rate_hz: int, timestamp: int, at: int) -> None:
        self._rate_hz, self._near = rate_hz, timestamp
        self._offset = at - timestamp * (RTP_RATE_HZ // rate_hz)


WINDOW_NS = 30_000 * NS_PER_MS
"""Recent" is one to two of these: a path may change, and clocks drift by 3 ms in this time."""
NEW_COUNT_NS = 10_000 * NS_PER_MS
"""A packet this much slower than the fastest one belongs to another time base."""


class Lowest:
    """The minimum over the last one to two windows."""

    def __init__(self) -> None:
        self._now: int | None = None
        self._lowest: int | None = None  # of this window and the one before
        self._began_ns = 0

    def get(self, now_ns: int) -> int | None:
        """None: there is no recent value."""
        if now_ns - self._began_ns >= WINDOW_NS:
            self._turn(now_ns)
        return self._lowest

    def take(self, value: int, now_ns: int) -> int:
        """The minimum, including this value."""
        if now_ns - self._began_ns >= WINDOW_NS:
            self._turn(now_ns)
        if self._now is None or value < self._now:
            self._now = value
        if self._lowest is None or value < self._lowest:
            self._lowest = value
        return self._lowest

    def forget(self) -> None:
        self._now = self._lowest = None

    def _turn(self, now_ns: int) -> None:
        is_next = now_ns - self._began_ns < 2 * WINDOW_NS
        self._lowest, self._now = (self._now if is_next else None), None
        self._began_ns = now_ns


class NetworkPath:
    """The delay estimate of one call."""

    def __init__(self) -> None:
        self._round_trips = Lowest()
        self._offsets = Lowest()
        self._offset_ns: int | None = None  # the last packet's
        self.jitter_ns = 0.0
        """Of packets, as RFC 3550 §6.4.1 has it."""

    def round_trip_ns(self, now_ns: int) -> int | None:
        """The quickest one lately; None: no request has been answered lately."""
        return self._round_trips.get(now_ns)

    def answered(self, round_trip_ns: int, now_ns: int) -> None:
        """A request and its response took this long."""
        self._round_trips.take(round_trip_ns, now_ns)

    def delay_ns(self, timestamp: int, received_ns: int) -> int | None:
        """The one-way delay of a packet, in ns; `timestamp`: its unwrapped RTP time at 48 kHz.
        None: no recent response. Call it for every packet."""
        offset_ns = received_ns - timestamp * NS_PER_MS // RTP_SAMPLES_PER_MS
        beyond_ns = offset_ns - self._offsets.take(offset_ns, received_ns)
        if self._offset_ns is not None:
            moved_ns = abs(offset_ns - self._offset_ns)
            if moved_ns <= NEW_COUNT_NS:
                self.jitter_ns += (moved_ns - self.jitter_ns) / 16
        self._offset_ns = offset_ns
        if beyond_ns > NEW_COUNT_NS:
            self._offsets.forget()
            beyond_ns = offset_ns - self._offsets.take(offset_ns, received_ns)
        round_trip_ns = self._round_trips.get(received_ns)
        return None if round_trip_ns is None else round_trip_ns // 2 + beyond_ns
