"""What strangers send and the log says of it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.runtime.log_lines import (
    LINE,
    TEXT_CHARS_MAX,
    SafeFormatter,
    SafeHandler,
    printable,
)

FORGED = "/a\n12:00:00 ERROR   headstart: \x1b[2Jowned\r\x85\u2028\u2029\u202e\x00\x7f\x9b31m\ud800"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The log of a logger named `tried`."""
    stream = io.StringIO()
    handler = SafeHandler(stream)
    handler.setFormatter(SafeFormatter(LINE))
    logger = logging.getLogger("tried")
    logger.addHandler(handler)
    logger.propagate = False
    yield stream
    logger.removeHandler(handler)
    logger.propagate = True


@given(text=st.text(alphabet=st.characters(), max_size=200))
def test_whatever_comes_is_printable(text: str) -> None:
    """One line, of characters that print; what prints already is as it was."""
    safe = printable(text)
    assert safe.isprintable()
    assert printable(safe) == safe
    if text.isprintable():
        assert safe == text


def test_a_record_is_one_line(written: io.StringIO) -> None:
    """No line feed, escape sequence, C1 control, separator or change of direction gets through."""
    logging.getLogger("tried").warning("refused %s: %s", FORGED, "why")
    (line,) = written.getvalue().splitlines()
    assert line.isprintable()
    assert r"/a\n12:00:00 ERROR" in line
    assert r"\x1b[2Jowned\r\x85\u2028\u2029\u202e\x00\x7f\x9b31m\ud800: why" in line


def test_a_long_record_is_cut(written: io.StringIO) -> None:
    """A head of 64 KiB is no line of 64 KiB."""
    logging.getLogger("tried").warning("refused %s", "y" * 100_000)
    assert len(written.getvalue()) < TEXT_CHARS_MAX + 200
    assert "more characters" in written.getvalue()


def test_a_traceback_keeps_its_own_lines_only(written: io.StringIO) -> None:
    """The words of an exception, of its cause and of a group's members are a line each."""

    def fail() -> None:
        try:
            raise ValueError(FORGED)
        except ValueError as error:
            raise ExceptionGroup(FORGED, [KeyError(FORGED), OSError(FORGED)]) from error

    try:
        fail()
    except ExceptionGroup:
        logging.getLogger("tried").exception("it failed: %s", FORGED)
    lines = written.getvalue().rstrip("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("12:00:00")]
    assert len([line for line in lines if "owned" in line]) == 5
    assert "    raise ValueError(FORGED)" in lines
    assert "The above exception was the direct cause of the following:" in lines
    assert any(line.startswith("    OSError: ") for line in lines)


def test_exceptions_that_know_each_other_end(written: io.StringIO) -> None:
    """A circle of contexts is walked once."""
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    logging.getLogger("tried").error("oh", exc_info=first)
    assert written.getvalue().count("ValueError: first") == 1


def test_a_record_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Without its arguments, which nothing has escaped."""
    stream = io.StringIO()
    record = logging.LogRecord("tried", logging.ERROR, "", 0, "%d of them", (FORGED,), None)
    SafeHandler(stream).handle(record)
    assert "tried: '%d of them' could not be logged: TypeError" in stream.getvalue()
    assert "owned" not in stream.getvalue()
    assert capsys.readouterr() == ("", "")
