"""What /status says this process holds."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from pathlib import Path

from headstart.gateway.telemetry.footprint import footprint
from tests.gateway.shell_fakes import until


async def test_what_is_taken_is_counted_and_what_is_given_back_is_not() -> None:
    """One descriptor, one thread and one task more while they live."""
    footprint()  # what psutil itself opens once
    before = footprint()
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait)
    thread.start()
    task = asyncio.create_task(asyncio.sleep(60))
    with Path(os.devnull).open():
        held = footprint()
    leave.set()
    thread.join()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for key in ("fds", "threads", "tasks"):
        assert held[key] == before[key] + 1

    def is_given_back(key: str) -> bool:
        return footprint()[key] == before[key]

    for key in ("fds", "threads", "tasks"):  # the system drops a thread a moment after its end
        await until(functools.partial(is_given_back, key))
    assert before["pid"] == os.getpid()
    assert before["rss_bytes"] > 1 << 20
