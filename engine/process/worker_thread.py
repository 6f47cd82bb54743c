"""One thread that runs functions beside the engine's steps, and wakes the engine when one ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any


class WorkerThread:
    """A `headstart.engine.session.recognition.Worker`. `name` is the thread's; `prepare` runs in it
    first."""

    def __init__(self, name: str, prepare: Callable[[], None] = lambda: None) -> None:
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._executor = ThreadPoolExecutor(1, name, initializer=prepare)

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future = self._executor.submit(work)
        future.add_done_callback(lambda _: os.eventfd_write(self._wake, 1))
        return future

    def acknowledge(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def fileno(self) -> int:
        return self._wake

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        os.close(self._wake)
