"""The threads beside the event loop: what is done on them, and how many there are.

All are started with the server, so that their number stays what it is whatever clients do. What
waits for one is bounded by the sessions: each has one long message and one picture of a track
under way. Pictures that come as files are decoded in processes (`gateway.video.decode_pool`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


class Threads:
    """So many, with a queue in front of them."""

    def __init__(self, name: str, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, work: Callable[[Given], Made], given: Given) -> Made:
        """`work(given)` on one of them; raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, given)

    def start(self) -> None:
        """All of them, now rather than when they are first wanted."""
        met = threading.Barrier(self.count + 1)
        for _ in range(self.count):
            self._pool.submit(met.wait)
        met.wait()


PICTURES = Threads("pictures", 2)
# The interpreter lets no two parse at once.
PARSER = Threads("parser", 1)
METRICS = Threads("metrics", 1)  # scrapes wait for one another


def start() -> None:
    """Before the first session."""
    for threads in (PICTURES, PARSER, METRICS):
        threads.start()
