"""The date of the server's processes, to be set while they run: `wall_clock.c` under them.

It is what they would see of `settimeofday`, of NTP's first word or of somebody with a mouse, except
for a wait until a date in the kernel, of which there is none here. Setting the machine's own date
takes rights, and is everybody's; libfaketime moves what it must not, or keeps books in shared
memory of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")
COMPILERS = ("cc", "gcc", "clang")
NS_PER_S = 1_000_000_000


class WallClock:
    """`environment`: of the processes that are to live by it."""

    def __init__(self, library: Path, offset: Path) -> None:
        self.environment = {"LD_PRELOAD": str(library), "HEADSTART_WALL_CLOCK": str(offset)}
        self.offset_s = 0.0
        self._offset = offset

    def set(self, offset_s: float) -> None:
        """From now on it shows so much more than ours."""
        self.offset_s = offset_s
        with self._offset.open("r+b") as file:  # in place: it is mapped
            file.write(struct.pack("=q", round(offset_s * NS_PER_S)))


@contextlib.contextmanager
def wall_clock() -> Iterator[WallClock | None]:
    """None where there is no C compiler, or no Linux."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="headstart-clock-") as folder:
        library, offset = Path(folder, "wall_clock.so"), Path(folder, "offset")
        offset.write_bytes(bytes(8))
        argv = [compiler, "-O2", "-Wall", "-fPIC", "-shared", "-o", str(library), str(SOURCE)]
        subprocess.run([*argv, "-ldl"], check=True)
        yield WallClock(library, offset)
