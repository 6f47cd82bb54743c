"""The cores between the engine's steps and a recogniser's thread beside them.

Each computes on all cores while the other rests, and on its half while both compute. Decided anew
for each step and each piece of a pass, some 5 to 20 ms: two threads that both want all cores would
wait for each other's helpers at the end of every kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headstart.engine.backends.local import StepRunner
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.scheduling.runner import StepResult
from headstart.engine.scheduling.scheduler import Plan
from headstart.kernels.native import limit_threads_here


class CoreShares:
    """`cores`: those that the two share."""

    def __init__(self, cores: int) -> None:
        assert cores > 0
        self._cores = cores
        self._computing = 0
        self._lock = threading.Lock()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Something is computed in the calling thread, on as many cores as it may use now."""
        with self._lock:
            self._computing += 1
            alone = self._computing == 1
        limit_threads_here(self._cores if alone else max(self._cores // 2, 1))
        try:
            yield
        finally:
            limit_threads_here(self._cores)
            with self._lock:
                self._computing -= 1


class SharingRunner:
    """A runner whose steps use what is theirs of the cores."""

    def __init__(self, runner: StepRunner, shares: CoreShares) -> None:
        self._runner, self._shares = runner, shares

    def step(self, plan: Plan) -> StepResult:
        with self._shares.computing():
            return self._runner.step(plan)

    def move(self, move: KvMove) -> None:
        self._runner.move(move)
