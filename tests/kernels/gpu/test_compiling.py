"""Every kernel compiles to machine code for each chip, spills nothing and fits its memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from headstart.kernels.gpu.cases import cases
from headstart.kernels.gpu.compiling import CHIPS, Resources, compile_for

COUNT = len(cases())


def compiled(index: int, chip: str) -> list[tuple[str, Resources]]:
    """The launches of one case for one chip; called in a child process."""
    case = cases()[index]
    launches = case.prepare("meta").launches
    return [(launch.kernel.__name__, compile_for(launch, CHIPS[chip])) for launch in launches]


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    """Two processes: compiling is single-threaded. They end with the module."""
    with ProcessPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize("chip", CHIPS)
def test_it_compiles_spills_nothing_and_fits(chip: str, workers: ProcessPoolExecutor) -> None:
    """At the sizes that will run: no register in memory, shared memory within the chip's."""
    limit_bytes = CHIPS[chip].shared_bytes
    whole = list(workers.map(compiled, range(COUNT), [chip] * COUNT))
    for case, parts in zip(cases(), whole, strict=True):
        assert parts, case.name
        for kernel, took in parts:
            assert took.spilled == 0, f"{case.name}: {kernel} spills {took.spilled}"
            assert took.shared_bytes <= limit_bytes, f"{case.name}: {kernel} takes {took}"
            assert took.registers > 0
            assert took.code_bytes > 0
