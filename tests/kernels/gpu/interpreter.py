"""Runs a module of checks in Triton's interpreter.

In a process of its own, because Triton decides on import whether it interprets.
"""

from __future__ import annotations

import os
import subprocess
import sys

from headstart.kernels.native import ROOT


def assert_passed(module: str, *names: str) -> None:
    """`python -m module NAME...` in Triton's interpreter says `passed NAME` of each."""
    done = subprocess.run(
        [sys.executable, "-m", module, *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT.parent,
        timeout=170,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    for name in names:
        assert f"passed {name}" in done.stdout
