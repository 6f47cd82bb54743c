"""The date that a soak sets is set for the server's processes, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from headstart.benchmarks.soak.wall_clock import wall_clock

CLOCKS = """
import time
while input():
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)
"""


def test_a_date_jumps_while_a_process_runs() -> None:
    """Ahead and back, within the same process; the monotonic clock, which is the machine's, stays.
    A child process would see the same: it inherits the environment."""
    with wall_clock() as clock:
        if clock is None:
            pytest.skip("no C compiler, or no Linux")
        environment = {**os.environ, **clock.environment}
        child = subprocess.Popen(
            [sys.executable, "-c", CLOCKS],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stdin is not None
            assert child.stdout is not None
            for offset_s in (0.0, 3600.0, -3600.0, 0.0):
                clock.set(offset_s)
                child.stdin.write("now\n")
                child.stdin.flush()
                first_s, second_s, steady_s = map(float, child.stdout.readline().split())
                assert first_s - time.time() == pytest.approx(offset_s, abs=30)
                assert second_s - time.time() == pytest.approx(offset_s, abs=30)
                assert steady_s - time.monotonic() == pytest.approx(0, abs=30)
            child.stdin.write("\n")
