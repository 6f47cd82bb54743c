"""Single keys from the terminal, and the terminal as it was afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator

READ_BYTES = 64


@contextlib.contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Calls `pressed` with each key on the running loop. Without a terminal there are none."""
    if not sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def read() -> None:
        try:
            data = os.read(number, READ_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            loop.remove_reader(number)
            pressed("q")
        for key in data.decode(errors="ignore"):
            pressed(key)

    tty.setcbreak(number, termios.TCSANOW)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(number, termios.TCSANOW, before)
