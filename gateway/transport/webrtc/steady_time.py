"""A clock for aiortc and aioice that does not jump when the date is set.

They measure durations with the wall clock. After a jump, a data channel retransmits lost packets
only after a minute (RFC 4960's timer has measured a round trip of an hour), relay channels are not
renewed in time, and key frames are requested at a wrong rate. After a jump of weeks (a small
computer without a battery sets its date at start) the jitter overflows its field: the receiver
reports end in an exception, and closing the call waits for them for ever.

Dates that are sent (NTP stamps in reports) start at the wall clock and advance steadily, which RFC
3550 §4 allows.

A paused machine makes every clock jump. aiortc's count of a camera's bit rate then forgets its past
millisecond by millisecond, seconds of work for each hour, in which the loop stands still; here, at
once. Uses private parts, as `gateway.transport.webrtc.aiortc_hooks` does.

"""

from __future__ import annotations

import datetime
import time
from types import ModuleType
from typing import Any

from aioice import turn
from aiortc import clock, rate, rtcrtpreceiver, rtcrtpsender, rtcsctptransport

CLOCK_READERS: tuple[ModuleType, ...] = (rtcrtpreceiver, rtcrtpsender, rtcsctptransport, turn)
"""Modules that use `time.time`, and nothing else of `time`."""
_EPOCH_S = time.time() - time.monotonic()


class _SteadyTime:
    """Replaces the module `time`."""

    @staticmethod
    def time() -> float:
        return _EPOCH_S + time.monotonic()


def steady_datetime() -> datetime.datetime:
    """What the wall clock would show if nobody had set it since this module was loaded."""
    return datetime.datetime.fromtimestamp(_SteadyTime.time(), datetime.UTC)


_erase_steps: Any = rate.RateCounter._erase_old


def _erase_old(counter: Any, now_ms: int) -> None:
    """Of a `RateCounter`. Past its window there is nothing left to be erased step by step."""
    if now_ms - counter._origin_ms > 2 * counter._window_size:
        counter.reset()
        counter._origin_ms = now_ms - counter._window_size + 1
    _erase_steps(counter, now_ms)


def install() -> None:
    """Call before the first call; once more changes nothing."""
    for module in CLOCK_READERS:
        reader: Any = module
        reader.time = _SteadyTime
    clock.current_datetime = steady_datetime
    counter: Any = rate.RateCounter
    counter._erase_old = _erase_old
