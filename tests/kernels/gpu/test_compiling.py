"""Every kernel compiles to machine code for each chip, spills nothing and fits its memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from headstart.kernels.gpu import compiling
from headstart.kernels.gpu.cases import Case, cases
from headstart.kernels.gpu.compiling import CHIPS, NoCompilerError, Resources, compile_for
from headstart.kernels.gpu.launch import Launch

CASES = cases()


def compiled(index: int, chip: str) -> list[tuple[str, Resources]]:
    """The launches of one case for one chip; called in a child process."""
    launches = CASES[index].prepare("meta").launches
    return [(launch.kernel.__name__, compile_for(launch, CHIPS[chip])) for launch in launches]


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    """Two processes: compiling is single-threaded. They end with the module."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_compiles_spills_nothing_and_fits(case: Case, workers: ProcessPoolExecutor) -> None:
    """At a size that will run: no register in memory, shared memory within the chip's."""
    index = CASES.index(case)
    by_chip = workers.map(compiled, [index] * len(CHIPS), CHIPS)
    for chip, parts in zip(CHIPS.values(), by_chip, strict=True):
        assert parts
        for kernel, took in parts:
            said = f"{kernel} for {chip.name}: {took}"
            assert took.spilled == 0, said
            assert took.shared_bytes <= chip.shared_bytes, said
            assert took.registers > 0, said
            assert took.code_bytes > 0, said


def test_an_interpreted_kernel_is_refused() -> None:
    """With TRITON_INTERPRET kernels are plain functions: an error says so."""
    with pytest.raises(NoCompilerError, match="TRITON_INTERPRET"):
        compile_for(Launch(print, (1,), {}, {}), CHIPS["sm_90"])


def test_spills_are_read_from_amds_assembly() -> None:
    """Vector registers and private memory count, and a note that is missing is noticed."""
    notes = ".vgpr_count: 40\n.vgpr_spill_count: 3\n.private_segment_fixed_size: 16\n"
    took = compiling._read_amdgcn(notes, b"1234", 512)
    assert took == Resources(registers=40, spilled=19, shared_bytes=512, code_bytes=4)
    with pytest.raises(AssertionError, match="vgpr_spill_count"):
        compiling._read_amdgcn("", b"", 0)
