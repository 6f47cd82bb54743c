"""A thread that works beside the engine's, at low priority.

    engine: put ─▶ what waits ─▶ thread: take, work ─▶ finished ─▶ engine: collect
                                                          └─▶ `fileno` is readable

What waits, in which order and how much of it, is its owner's: `take` is called with `lock` held.
Should the thread die, the engine's log says so, and `died` is set; its owner then gives up what
waits, and `current`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

log = logging.getLogger("headstart.engine")

Job = TypeVar("Job")


class BackgroundThread(Generic[Job]):
    """`take` gives the next jobs, none if nothing waits; `work` does them, in the thread.

    `nice`: levels below this process, of 19. `prepare` is called first in the thread. `instead`:
    what happens without it, for the log. All methods are for one thread, the engine's.
    """

    def __init__(
        self,
        name: str,
        take: Callable[[], Sequence[Job]],
        work: Callable[[Sequence[Job]], None],
        *,
        nice: int,
        instead: str,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.lock = threading.Lock()
        """Held while what waits is read or changed."""
        self.current: Sequence[Job] = ()
        """What is being worked at. Read it with `lock`."""
        self.died = False
        self.closing = False
        self._take, self._work, self._prepare = take, work, prepare
        self._nice, self._instead = nice, instead
        self._changed = threading.Condition(self.lock)
        self._finished: deque[Job] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notify(self) -> None:
        """Something waits. With `lock` held."""
        self._changed.notify()

    def collect(self) -> list[Job]:
        """What has been finished since."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        found = []
        while self._finished:
            found.append(self._finished.popleft())
        return found

    def fileno(self) -> int:
        """A file descriptor that is readable while there is something to collect."""
        return self._wake

    def close(self, wait_s: float | None = None) -> bool:
        """End behind the current jobs. False: they take longer than `wait_s`, and the thread ends
        with the process."""
        with self.lock:
            self.closing = True
            self._changed.notify()
        self._thread.join(wait_s)
        if self._thread.is_alive():
            return False
        os.close(self._wake)
        return True

    def _run(self) -> None:
        try:
            self._lower_priority()
            self._prepare()
            while jobs := self._next():
                self._work(jobs)
                with self.lock:
                    self.current = ()
                    self._finished.extend(jobs)
                os.eventfd_write(self._wake, 1)
        except BaseException:
            log.exception("the %s thread died: %s", self._thread.name, self._instead)
            self.died = True
            os.eventfd_write(self._wake, 1)

    def _next(self) -> Sequence[Job]:
        """None at the end."""
        with self._changed:
            while not self.closing:
                if jobs := self._take():
                    self.current = jobs
                    return jobs
                self._changed.wait()
            return ()

    def _lower_priority(self) -> None:
        """Of this thread, by which the kernel counts priorities."""
        thread = threading.get_native_id()
        nice = min(19, os.getpriority(os.PRIO_PROCESS, thread) + self._nice)
        try:
            os.setpriority(os.PRIO_PROCESS, thread, nice)
        except OSError as error:  # some sandboxes do not let it
            log.warning("the %s thread has the engine's own priority: %s", self._thread.name, error)
