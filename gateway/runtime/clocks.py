"""Which clock holds a promise. None that can be set: the wall clock is told, never compared.

time.monotonic     stands still while the machine sleeps: how long somebody was silent, how long
                   a session or a broken connection has lasted. A laptop that was shut for a
                   night owes its clients the minute they had left, and its engine's heartbeat
                   was not late.
since_boot_s       goes on while it sleeps: how long a secret is good, which was said as a date.
"""

from __future__ import annotations

import time

# macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts sleep, unlike `time.monotonic` there.
_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot_s() -> float:
    """Seconds of a clock that nobody sets and that a suspended machine does not stop."""
    return time.clock_gettime(_COUNTS_SLEEP)
