"""The cores between the steps and a recogniser's thread: all alone, halves together."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headstart.engine.process.core_shares import CoreShares, SharingRunner
from headstart.engine.scheduling.runner import StepResult
from headstart.engine.scheduling.scheduler import Plan
from headstart.kernels.native import limit_threads_here, set_threads, threads


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    """Four, whatever this machine has."""
    set_threads(4)
    limit_threads_here(4)
    yield
    set_threads(None)
    limit_threads_here(1 << 30)


def test_whoever_computes_alone_has_all_cores_and_two_have_halves() -> None:
    """Decided when a piece begins; afterwards all cores are there again."""
    shares = CoreShares(4)

    def piece() -> int:
        with shares.computing():
            return threads()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(piece).result() == 4
        with shares.computing():
            assert threads() == 4
            assert thread.submit(piece).result() == 2
        assert thread.submit(piece).result() == 4
    assert threads() == 4


@pytest.mark.parametrize(("number", "half"), [(1, 1), (2, 1), (3, 1)])
def test_a_half_is_a_core_at_least(number: int, half: int) -> None:
    """Of one core both have it."""
    shares = CoreShares(number)

    def piece() -> int:
        with shares.computing():
            return threads()

    with ThreadPoolExecutor(1) as thread, shares.computing():
        assert thread.submit(piece).result() == half


def test_a_step_beside_a_piece_has_half_of_the_cores() -> None:
    """And all of them without one."""
    found: list[int] = []

    class Steps:
        def step(self, plan: Plan) -> StepResult:
            found.append(threads())
            return StepResult()

        def move(self, move: object) -> None:
            raise AssertionError("nothing moves here")

    shares = CoreShares(4)
    runner = SharingRunner(Steps(), shares)
    runner.step(Plan())
    with ThreadPoolExecutor(1) as thread, shares.computing():
        thread.submit(runner.step, Plan()).result()
    assert found == [4, 2]
