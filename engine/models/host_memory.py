"""Memory available to this process."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """The smaller of the machine's available memory, including page cache that can be dropped, and
    what the container's limit leaves. None if neither can be read."""
    found = [left for left in (_machine(meminfo), _container(cgroup)) if left is not None]
    return min(found) if found else None


def _machine(meminfo: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _container(cgroup: Path) -> int | None:
    """By cgroup v2; page cache can be dropped, so it does not count as taken."""
    try:
        limit = int((cgroup / "memory.max").read_text())  # "max" (no limit) raises ValueError
        taken = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return max(0, limit - taken + int(stat.get("file", 0)))
    except (OSError, ValueError):
        return None
