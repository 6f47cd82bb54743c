"""A clock for aiortc and aioice that does not jump when somebody sets the date.

They take how long things last from the wall clock. When that jumps, a data channel's lost packets
are sent again after a minute only (RFC 4960's timer has learnt of a round trip of an hour), a
relay's channels are not renewed in time, pictures are asked for at a wrong rate, and after a jump
of weeks (a small computer without a battery finds out what year it is) the jitter does not fit its
field: the receiver's reports end in an exception, and closing the call waits for them for ever.

Dates that go out (NTP stamps in reports) begin at the wall clock's and go on steadily, which RFC
3550 §4 allows. Reaches into private parts as `gateway.transport.webrtc.aiortc_hooks` does.
"""

from __future__ import annotations

import datetime
import time
from types import ModuleType
from typing import Any

from aioice import turn
from aiortc import clock, rtcrtpreceiver, rtcrtpsender, rtcsctptransport

CLOCK_READERS: tuple[ModuleType, ...] = (rtcrtpreceiver, rtcrtpsender, rtcsctptransport, turn)
"""Modules that call `time.time`, and nothing else of `time`."""
_EPOCH_S = time.time() - time.monotonic()


class _SteadyTime:
    """In place of the module `time`."""

    @staticmethod
    def time() -> float:
        return _EPOCH_S + time.monotonic()


def steady_datetime() -> datetime.datetime:
    """What the wall clock would show had nobody set it since this module was loaded."""
    return datetime.datetime.fromtimestamp(_SteadyTime.time(), datetime.UTC)


def install() -> None:
    """Once, before the first call."""
    for module in CLOCK_READERS:
        reader: Any = module
        reader.time = _SteadyTime
    clock.current_datetime = steady_datetime
