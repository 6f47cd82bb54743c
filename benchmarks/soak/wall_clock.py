"""The date that the server's processes see, settable while they run (by preloading `wall_clock.c`).

It imitates `settimeofday`, a first NTP correction or a manual change, except for kernel waits until
a date, of which there are none here. Setting the machine's own date needs privileges and affects
everybody; libfaketime also moves clocks that must not move, and keeps state in shared memory.
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
    """`environment`: for the processes that shall see this date."""

    def __init__(self, library: Path, offset: Path) -> None:
        self.environment = {"LD_PRELOAD": str(library), "HEADSTART_WALL_CLOCK": str(offset)}
        self.offset_s = 0.0
        self._offset = offset

    def set(self, offset_s: float) -> None:
        """Show the date `offset_s` ahead of the machine's from now on."""
        self.offset_s = offset_s
        with self._offset.open("r+b") as file:  # in place, because it is mapped
            file.write(struct.pack("=q", round(offset_s * NS_PER_S)))


@contextlib.contextmanager
def wall_clock() -> Iterator[WallClock | None]:
    """None without a C compiler or on another system than Linux."""
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
