"""What this process may use of its machine: memory, and processor time.

A container or a service may have less than its machine, by limits of its control group or of one
above it. cgroup v2 is read; with v1, and on other systems, only the machine counts.

"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """Where Linux says these things."""

    meminfo: Path = Path("/proc/meminfo")
    groups: Path = Path("/sys/fs/cgroup")
    own_group: Path = Path("/proc/self/cgroup")


LINUX = Places()


def available_bytes(places: Places = LINUX) -> int | None:
    """The smaller of the machine's available memory, including page cache that can be dropped, and
    what the tightest limit leaves. None if neither can be read."""
    machine = _machine_bytes(places.meminfo)
    found = [left for group in _groups(places) if (left := _left_bytes(group)) is not None]
    return min([*found, *([] if machine is None else [machine])], default=None)


def usable_cores(places: Places = LINUX) -> int:
    """Cores that this process may run on, and no more than the limits allow the time of: more
    threads would stand still together whenever the time is used up."""
    found = [quota for group in _groups(places) if (quota := _quota_cores(group)) is not None]
    return max(1, min([allowed_cores(), *map(round, found)]))


def allowed_cores() -> int:
    """Cores that this process may run on, whatever time it gets there."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _machine_bytes(meminfo: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _groups(places: Places) -> Iterator[Path]:
    """The folders of this process's group and of those above it, each of which may set limits. In
    a container the path may be the host's, and is not there: then the top is the container's."""
    yield places.groups
    try:
        lines = places.own_group.read_text().splitlines()
    except (OSError, ValueError):
        return
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = places.groups
    for part in Path(own).parts[1:]:
        folder /= part
        yield folder


def _left_bytes(group: Path) -> int | None:
    """Page cache can be dropped, so it does not count as taken."""
    try:
        limit = int((group / "memory.max").read_text())  # "max" (no limit) raises ValueError
        taken = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, limit - taken + int(stat.get("file", 0)))
    except (OSError, ValueError):
        return None


def _quota_cores(group: Path) -> float | None:
    try:
        quota_us, period_us = map(int, (group / "cpu.max").read_text().split())  # "max": no limit
        return quota_us / period_us
    except (OSError, ValueError, ZeroDivisionError):
        return None
