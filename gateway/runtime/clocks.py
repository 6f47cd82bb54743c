"""Which clock to use for deadlines. Never the wall clock, which can be set: it is only displayed.

time.monotonic     stops while the machine sleeps. For silences, and the age of sessions and broken
                   connections: after a laptop was closed for a night, its clients still have
                   the time they had left, and the engine's heartbeat is not late.
since_boot_s       continues while it sleeps. For secrets, whose expiry was given as a date.

"""

from __future__ import annotations

import time

# macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts sleep, unlike `time.monotonic` there.
_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot_s() -> float:
    """A clock in seconds that cannot be set and continues during suspend."""
    return time.clock_gettime(_COUNTS_SLEEP)
