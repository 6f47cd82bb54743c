"""On a machine without Triton, Arm or macOS say, the suite runs, and says what it does not test."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import NEED_TRITON, NO_TRITON, ROOT

OTHERS = ("tests/engine/device/test_sampling.py", "tests/benchmarks/gpu/test_stages.py")


def test_collection_goes_on_and_names_what_is_skipped() -> None:
    """Modules that cannot be imported are skipped with the reason; others beside them are
    collected."""
    assert all((ROOT / name).exists() for name in NEED_TRITON)
    every = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/kernels/gpu").glob("test_*.py")}
    assert every <= set(NEED_TRITON)
    argv = [sys.executable, "-m", "pytest", "-p", "tests.no_triton", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*argv, "-v", "--collect-only", "-rs", *NEED_TRITON, *OTHERS],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    said = next(line for line in done.stdout.splitlines() if line.startswith(NO_TRITON))
    assert all(name in said for name in NEED_TRITON)
    assert f"SKIPPED [{len(NEED_TRITON)}]" in done.stdout
    for name in OTHERS:
        assert f"<Module {name.rpartition('/')[2]}>" in done.stdout
