"""A real terminal (a pty) with `headstart top` in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

WITHIN_S = 60.0
HOME = "\x1b[H"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """What came out so far, and keys in."""

    def __init__(self, master: int, slave: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.text = ""
        self._slave = slave
        self._master = master

    def frame(self) -> list[str]:
        """The newest whole frame, as lines without their colours."""
        frames = self.text.split(HOME)
        return CODES.sub("", frames[-1]).replace("\r", "").split("\n") if len(frames) > 1 else []

    def read(self) -> None:
        ready, _, _ = select.select([self._master], [], [], 0.05)
        if ready:
            with contextlib.suppress(OSError):
                self.text += os.read(self._master, 65_536).decode(errors="replace")

    def until(self, *pieces: str) -> list[str]:
        """Waits for a frame that holds them all."""
        deadline = time.monotonic() + WITHIN_S
        while not all(any(piece in line for line in self.frame()) for piece in pieces):
            assert time.monotonic() < deadline, (pieces, self.frame(), self.text[-500:])
            assert self.process.poll() is None, self.text
            self.read()
        length = -1
        while len(self.text) > length:  # the rest of that frame
            length = len(self.text)
            self.read()
        return self.frame()

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def attributes(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        deadline = time.monotonic() + WITHIN_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-500:]
            self.read()
        self.read()
        return int(self.process.returncode)


@contextlib.contextmanager
def top(*arguments: str, columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "headstart", "top", *arguments],
        env=environment | {"TERM": "xterm-256color"},
        preexec_fn=lambda: os.login_tty(os.dup(slave)),
    )
    try:
        yield Terminal(master, slave, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
