"""An asyncio loop whose time passes as fast as nothing is left to do: waits cost nothing, and a run
is the same each time. No sockets and no threads: what would come from them, a test brings."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    """Jumps where another one would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: every task waits for another")
        self.passed_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time` is virtual, from 1000 s on. Raises `RuntimeError` when everybody waits for ever."""

    def __init__(self) -> None:
        self._jumping = _Selector()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return 1000.0 + self._jumping.passed_s

    def time_ns(self) -> int:
        return round(self.time() * 1e9)


def run(make: Any) -> Any:
    """Run `make(loop)`, a coroutine, on a new virtual loop."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        work: Coroutine[Any, Any, Any] = make(loop)
        return runner.run(work)
