"""How much of the machine a system takes while a clip is measured, and how much others do."""

from __future__ import annotations

import asyncio
import time

import psutil

LOOK_S = 2.0


class Contention:
    """Cores used since construction by processes that are neither this one nor its descendants."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._own_s = _own_s()
        self._others_s = _busy_s() - self._own_s

    def own_s(self) -> float:
        """Processor time of this process and its descendants since construction."""
        return round(max(0.0, _own_s() - self._own_s), 3)

    def cores(self) -> float:
        """Rough: what children that have ended since have used counts as others'."""
        passed_s = time.monotonic() - self._began_s
        return round(max(0.0, _busy_s() - _own_s() - self._others_s) / max(passed_s, 1e-3), 2)


async def calm(cores: float, wait_s: float) -> None:
    """Wait until others use less than `cores`, at most `wait_s`."""
    late_at_s = time.monotonic() + wait_s
    while time.monotonic() < late_at_s:
        seen = Contention()
        await asyncio.sleep(LOOK_S)
        if seen.cores() < cores:
            return


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - _guests(times))


def _guests(times: object) -> float:
    """Counted in `user` already."""
    return float(getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0))


def _own_s() -> float:
    me = psutil.Process()
    spent = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has ended
            continue
        spent += times.user + times.system
    return spent
