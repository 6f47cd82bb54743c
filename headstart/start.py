"""Where `headstart` begins: a Ctrl-C that comes before a command works ends it quietly.

Importing takes a second, with nothing to put in order yet, and a KeyboardInterrupt in the midst of
it ends in a traceback or is swallowed by what is being imported. So until `at_work` the process is
ended at once, and from then on as Python does. This imports nothing else before it has seen to
that.
"""

from __future__ import annotations

import sys

from headstart.interrupts import EXIT_INTERRUPTED, end_at_once


def main() -> None:
    """The `headstart` command."""
    end_at_once()
    from headstart.cli import main as commands

    try:
        commands()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
