"""The thread pool: every piece once, from any thread, with any thread count, and after a fork."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from headstart.kernels.native import ROOT
from headstart.kernels.silu_mul import silu_mul

# Above the size from which the work is divided.
SIZE = (64, 1003)


@pytest.fixture(autouse=True)
def thread_count_restored() -> Iterator[None]:
    """torch's thread count is the process's: each test leaves it as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_any_thread_count_does_all_the_work() -> None:
    """1 to 9 threads, up and down again, also more than there are cores, give the same bits."""
    gate, up = torch.randn(SIZE), torch.randn(SIZE)
    torch.set_num_threads(1)
    want = silu_mul(gate, up)
    for count in (2, 9, 3, 1, 5):
        torch.set_num_threads(count)
        for _ in range(20):
            assert torch.equal(silu_mul(gate, up), want)


def test_calls_from_several_threads_at_once() -> None:
    """Calls that meet do not wait for or disturb each other: each gets its own right result."""
    torch.set_num_threads(3)
    inputs = [(torch.randn(SIZE), torch.randn(SIZE)) for _ in range(8)]
    wanted = [silu_mul(gate, up) for gate, up in inputs]

    def many(i: int) -> bool:
        return all(torch.equal(silu_mul(*inputs[i]), wanted[i]) for _ in range(100))

    with ThreadPoolExecutor(8) as callers:
        assert all(callers.map(many, range(8)))


def test_workers_that_fell_asleep_wake_up() -> None:
    """A call after a pause longer than the workers' spinning is right as well."""
    torch.set_num_threads(2)
    gate, up = torch.randn(SIZE), torch.randn(SIZE)
    want = silu_mul(gate, up)
    for _ in range(5):
        torch.randn(2000, 2000)  # some tens of ms in which no kernel runs
        assert torch.equal(silu_mul(gate, up), want)


def test_a_forked_child_computes() -> None:
    """A child of a process whose workers were running has none of them, and works."""
    script = (
        "import os, sys, torch\n"
        "from headstart.kernels.silu_mul import silu_mul\n"
        "torch.set_num_threads(3)\n"
        "gate, up = torch.randn(64, 1003), torch.randn(64, 1003)\n"
        "want = silu_mul(gate, up)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    same = all(torch.equal(silu_mul(gate, up), want) for _ in range(20))\n"
        "    os._exit(0 if same else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT.parent, timeout=120)


# A child that is forked while another thread's job runs, and then runs one of its own. Its many new
# workers take long to start: time enough to take pieces of the parent's job, were there any.
FORKED_IN_MID_JOB = """
import ctypes, os, sys, threading, time
from headstart.kernels.native import build
library = ctypes.CDLL(str(build()[0]))
Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
parent, begun, strays, done = os.getpid(), threading.Event(), [], []

@Task
def slow(context, piece):
    begun.set()
    if os.getpid() != parent:
        strays.append(piece)
    time.sleep(0.002)

@Task
def quick(context, piece):
    done.append(piece)

def run(task, pieces, threads):
    library.hs_run(task, None, ctypes.c_int64(pieces), threads)

job = threading.Thread(target=run, args=(slow, 300, 3))
job.start()
begun.wait()
child = os.fork()
if child == 0:
    run(quick, 50, 200)
    time.sleep(0.2)
    os._exit(1 if strays or sorted(done) != list(range(50)) else 0)
job.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_in_mid_job_leaves_that_job_alone() -> None:
    """It computes none of the pieces that the parent has not taken yet, and all of its own."""
    script = [sys.executable, "-W", "ignore", "-c", FORKED_IN_MID_JOB]
    subprocess.run(script, check=True, cwd=ROOT.parent, timeout=120)
