"""`make test-arm`: the kernels' tests on each of qemu's processors, and what on_arm.py adds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.debian_tools import ARM_COMPILER, ARM_EMULATOR, ToolError
from tests.kernels.arm import guest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
# Tests of building, loading and measuring on this machine, and of the Triton kernels.
NOT_OF_THE_CODE = ("native", "levels", "build", "bench", "memory")
IGNORED = [
    *(f"--ignore={FOLDER.parent / f'test_{name}.py'}" for name in NOT_OF_THE_CODE),
    f"--ignore={FOLDER.parent / 'gpu'}",
]
# A child of a forked process has no connection of its own to the emulated one.
DESELECTED = "not forked"


def main() -> int:
    """0 if all passed on all processors; 2 if there is no compiler or no emulator for them."""
    try:
        for tool in (ARM_COMPILER, ARM_EMULATOR):  # once, and not again by every test
            tool.ensure()
    except ToolError as error:
        print(f"headstart: {error}", file=sys.stderr)
        return 2
    failed = []
    for processor in guest.PROCESSORS:
        print(f"headstart: qemu's {processor.name}, level {processor.levels[0]}", flush=True)
        command = [
            sys.executable, "-m", "pytest", "-p", "tests.kernels.arm.plugin",
            "--arm-processor", processor.name, "-k", DESELECTED, *IGNORED,
            str(FOLDER.parent), str(FOLDER / "on_arm.py"),
        ]  # fmt: skip
        environment = os.environ | {"HEADSTART_KERNELS": processor.levels[0]}
        command += sys.argv[1:]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
            failed.append(processor.name)
    print(f"headstart: failed on {', '.join(failed)}" if failed else "headstart: passed on Arm")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
