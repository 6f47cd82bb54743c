"""Ctrl-C before a command works: it ends the process at once, without a traceback.

Imports nothing but the standard library's small parts, so that it can be set before all else.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT


def end_at_once() -> None:
    """From here until `at_work`, SIGINT ends the process with `EXIT_INTERRUPTED`."""
    # Who starts us may have it ignored, as a shell does in the background: that stays.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def at_work() -> None:
    """A command has what it needs and begins: whatever it starts is its own to end."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
