"""Entry point of `headstart`: a Ctrl-C before a command has started ends the process quietly.

Importing takes a second, in which there is nothing to clean up, and a KeyboardInterrupt during an
import causes a traceback or is swallowed by the imported module. So until `at_work` SIGINT ends the
process at once; from then on Python handles it. Nothing else is imported before that is set up.

"""

from __future__ import annotations

import io
import sys

from headstart.interrupts import EXIT_INTERRUPTED, end_at_once


def main() -> None:
    """The `headstart` command."""
    end_at_once()
    replace_unencodable()
    from headstart.cli import main as commands

    try:
        commands()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def replace_unencodable() -> None:
    """Make characters that the terminal's encoding lacks question marks, not errors: bars, names of
    files and answers have any, and not every locale is UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
