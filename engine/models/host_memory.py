"""How much memory this process may still take."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """What the machine has left, file pages that it can drop included, or what the container's
    limit leaves if that is less. None where neither can be read."""
    found = [left for left in (_machine(meminfo), _container(cgroup)) if left is not None]
    return min(found) if found else None


def _machine(meminfo: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _container(cgroup: Path) -> int | None:
    """By cgroup v2; file pages in it could be dropped, so they do not count as taken."""
    try:
        limit = int((cgroup / "memory.max").read_text())  # "max" is no number: no limit
        taken = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return max(0, limit - taken + int(stat.get("file", 0)))
    except (OSError, ValueError):
        return None
