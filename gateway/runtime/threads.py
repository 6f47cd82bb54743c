"""The worker threads beside the event loop, and their number.

All are started with the server, so that their number does not depend on clients. The sessions bound
what waits for them: each has at most one long message and one video frame in progress. Images that
arrive as files are decoded in processes (`gateway.video.decode_pool`).

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
    """A fixed number of threads with a queue in front."""

    def __init__(self, name: str, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, work: Callable[[Given], Made], given: Given) -> Made:
        """Run `work(given)` on one of them; raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, given)

    def start(self) -> None:
        """Start all threads now rather than on first use."""
        met = threading.Barrier(self.count + 1)
        for _ in range(self.count):
            self._pool.submit(met.wait)
        met.wait()


PICTURES = Threads("pictures", 2)
# One thread: the interpreter lock lets no two parse at once.
PARSER = Threads("parser", 1)
METRICS = Threads("metrics", 1)  # scrapes wait for one another


def start() -> None:
    """Called before the first session."""
    for threads in (PICTURES, PARSER, METRICS):
        threads.start()
