"""What this process holds of the machine: what has to be the same when all sessions have gone."""

from __future__ import annotations

import asyncio

import psutil

_process = psutil.Process()


def footprint() -> dict[str, int]:
    """Memory in bytes, and numbers of descriptors, threads and asyncio tasks. On the loop."""
    with _process.oneshot():
        return {
            "pid": _process.pid,
            "rss_bytes": _process.memory_info().rss,
            "fds": _process.num_fds(),
            "threads": _process.num_threads(),
            "tasks": len(asyncio.all_tasks()),
        }
