"""Ctrl-C before a command has started: ends the process at once, without a traceback.

Imports only small parts of the standard library, so that it can be set up before anything else.

"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT


def end_at_once() -> None:
    """From here until `at_work`, SIGINT ends the process with `EXIT_INTERRUPTED`."""
    # The parent may have set SIGINT to be ignored, as a shell does for background jobs: keep that.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def at_work() -> None:
    """The command has started: from now on it handles SIGINT itself."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
