"""One timer for many periodic callbacks.

A timer per callback would cost the loop as much as the callbacks themselves. Here they are spread
over `SLOTS` slots of the period, so that a thousand are not called at once, and each slot uses one
timer of the loop. No timer runs while there are no callbacks.

"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headstart.gateway.runtime import tasks

SLOTS = 10


class Ticker:
    """Calls each callback once per `period_s`, on the loop. A callback that raises is removed and
    its `failed` is called; the others are called as before."""

    def __init__(self, period_s: float) -> None:
        self._step_s = period_s / SLOTS
        self._slots: list[dict[int, Callable[[], None]]] = [{} for _ in range(SLOTS)]
        self._added = 0
        self._count = 0
        self._next = 0
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self, call: Callable[[], None], failed: tasks.Failed = tasks.nothing_depends_on_it
    ) -> Callable[[], None]:
        """Call `call` periodically, first within one period. The returned function ends that, and
        may be called again."""
        number = self._added
        self._added += 1
        slot = min(self._slots, key=len)

        def give_up(error: BaseException) -> None:
            remove()
            failed(error)

        slot[number] = tasks.guard(call, "tick", give_up)
        self._count += 1
        if self._timer is None:
            self._due_s = asyncio.get_running_loop().time()
            self._set_timer()

        def remove() -> None:
            if slot.pop(number, None) is not None:
                self._count -= 1

        return remove

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        # A late timer keeps its phase, and skipped turns are not made up for.
        self._due_s = max(self._due_s + self._step_s, loop.time())
        self._timer = loop.call_at(self._due_s, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if not self._count:
            return
        self._set_timer()
        slot, self._next = self._slots[self._next], (self._next + 1) % SLOTS
        for number, call in list(slot.items()):
            if number in slot:  # another callback may have removed it meanwhile
                call()
