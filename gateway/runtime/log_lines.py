"""The log format: one line per record, safe against forged lines.

Much of what is logged comes from untrusted clients: paths, headers, values in errors. A line feed
in it would start a forged line, an escape sequence would control the terminal, and a change of text
direction would disguise a line. So in all records, ours and the libraries', each non-printing
character is escaped; only a traceback's own line feeds are kept. The supervised engine's lines pass
through here too (`gateway.runtime.child_process`).

"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from types import TracebackType
from typing import TextIO

TEXT_CHARS_MAX = 4000
"""Limit of one record's text, and of one exception's."""

LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def printable(text: str) -> str:
    """`text` with non-printing characters escaped as in Python's literals, and with bounded length.
    Spaces are kept; control characters (including C1), line and paragraph separators, direction
    changes, invisible characters and lone surrogates are escaped."""
    more = len(text) - TEXT_CHARS_MAX
    if more > 0:
        text = f"{text[:TEXT_CHARS_MAX]}… ({more} more characters)"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


class SafeFormatter(logging.Formatter):
    """A `logging.Formatter` that writes each record, and each line of a traceback, as one line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        record.message = printable(record.message.rstrip("\n"))
        return super().formatMessage(record)

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802
        return "" if ei[1] is None else "\n".join(_lines_of(ei[1], ei[2], set()))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return "\n".join(printable(line) for line in stack_info.split("\n"))


class SafeHandler(logging.StreamHandler[TextIO]):
    """A `logging.StreamHandler` that reports a record it could not write without printing the raw
    record."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        what = f"{record.name}: {record.msg!r} could not be logged: {sys.exc_info()[1]!r}"
        with contextlib.suppress(OSError, ValueError):  # the stream itself is closed
            self.stream.write(f"{printable(what)}\n")


def set_up(level: str, line: str = LINE) -> None:
    """Write this process's log to standard error, from `level` on."""
    handler = SafeHandler(sys.stderr)
    handler.setFormatter(SafeFormatter(line, "%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler])


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _lines_of(
    error: BaseException, trace: TracebackType | None, seen: set[int], indent: str = ""
) -> list[str]:
    """As `traceback.format_exception`, with each exception's message on one line."""
    seen.add(id(error))
    lines: list[str] = []
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in seen:
        how = "was the direct cause of" if error.__cause__ is before else "was being handled at"
        lines += _lines_of(before, before.__traceback__, seen, indent)
        lines += ["", f"{indent}The above exception {how} the following:", ""]
    if trace is not None:
        lines.append(f"{indent}Traceback (most recent call last):")
        frames = "".join(traceback.format_tb(trace)).rstrip("\n").split("\n")
        lines += [indent + printable(frame) for frame in frames]
    words = "".join(traceback.format_exception_only(type(error), error)).rstrip("\n")
    lines.append(indent + printable(words))
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            if id(inner) not in seen:
                lines += _lines_of(inner, inner.__traceback__, seen, indent + "    ")
    return lines
