"""Where `headstart` begins: a Ctrl-C that comes before a command works ends it quietly.

Importing takes a second, with nothing to put in order yet, and a KeyboardInterrupt in the midst of
it ends in a traceback or is swallowed by what is being imported. So until `at_work` the process is
ended at once, and from then on as Python does. This imports nothing before it has seen to that.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """The `headstart` command."""
    # Who starts us may have it ignored, as a shell does in the background: that stays.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from gateway.cli import main as commands

    try:
        commands()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def at_work() -> None:
    """A command has what it needs and begins: whatever it starts is its own to end."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
