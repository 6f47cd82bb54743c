"""`headstart export FILE --to csv|json|perfetto OUT`: the turns for other tools, as a stream."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from headstart.recordings.clock import FeedClock
from headstart.recordings.errors import NothingToShow, OutputRefused
from headstart.recordings.reader import Recording
from headstart.recordings.stages import ROWS
from headstart.recordings.trace import Trace
from headstart.recordings.turns import Turn, settled

HEAD_KEYS = ("run", "started_at", "headstart", "model", "settings")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins so is a formula to a spreadsheet."""


def _stage(name: str) -> Callable[[Turn], Any]:
    return lambda turn: turn.stages.get(name)


COLUMNS: dict[str, Callable[[Turn], Any]] = {
    "id": lambda turn: turn.id,
    "session": lambda turn: turn.session,
    "turn": lambda turn: turn.number,
    "at": lambda turn: turn.message.get("at") or _iso(turn.at_ms),
    "transport": lambda turn: turn.message.get("transport"),
    "model": lambda turn: turn.message.get("model"),
    "anchor": lambda turn: turn.anchor,
    "reason": lambda turn: turn.reason,
    "interrupted": lambda turn: turn.is_interrupted,
    "realtime": lambda turn: turn.is_realtime,
    "counts": lambda turn: turn.left_out_as is None,
    "total_ms": lambda turn: turn.total_ms,
    "hidden_ms": lambda turn: turn.hidden_ms,
    "latency_budget_ms": lambda turn: turn.budget_ms,
    "over_budget": lambda turn: turn.is_over_budget,
    "first_sound_ms": lambda turn: turn.stamps.get("first_sound"),
    "heard_ms": lambda turn: turn.stamps.get("playout_started"),
    **{f"{stage}_ms": _stage(stage) for stage in ROWS},
    "chunks": lambda turn: len(turn.chunks),
    "overruns": lambda turn: sum(chunk.overrun for chunk in turn.chunks),
}
"""Of a CSV, the same as the dashboard's."""


class Format(StrEnum):
    """Of an exported file."""

    CSV = "csv"
    JSON = "json"
    PERFETTO = "perfetto"


def export(recording: Recording, to: Format, out: Path, force: bool = False) -> int:
    """Writes `out` ("-": stdout), whole or not at all. Returns how many turns. Raises
    `RecordingError`s."""
    clock = FeedClock()
    turns = _Counted(settled(recording.messages(), clock))
    parts = WRITERS[to](turns, clock)
    if str(out) == "-":
        first = _first(recording, parts, turns)
        sys.stdout.buffer.write(first)
        _copy(parts, sys.stdout.buffer)
        return turns.n
    if out.exists() and not force:
        raise OutputRefused(f"{out} is there already: name another file, or give --force")
    try:
        _whole(out, lambda file: _copy(_all(recording, parts, turns), file))
    except OSError as error:
        raise OutputRefused(f"{out} cannot be written: {error.strerror or error}") from error
    return turns.n


class _Counted:
    """Turns on their way to a writer, and how many there were."""

    def __init__(self, turns: Iterator[Turn]) -> None:
        self._turns = turns
        self.n = 0

    def __iter__(self) -> Iterator[Turn]:
        for turn in self._turns:
            self.n += 1
            yield turn


def _all(recording: Recording, parts: Iterator[bytes], turns: _Counted) -> Iterator[bytes]:
    yield _first(recording, parts, turns)
    yield from parts


def _first(recording: Recording, parts: Iterator[bytes], turns: _Counted) -> bytes:
    """The first part that holds a turn. Raises `NothingToShow` if none does."""
    first = b""
    for part in parts:
        first += part
        if turns.n:
            return first
    raise NothingToShow(f"{recording.path} holds no turn to export")


def _copy(parts: Iterator[bytes], file: BinaryIO) -> None:
    for part in parts:
        file.write(part)


def _whole(out: Path, write: Callable[[BinaryIO], None]) -> None:
    """A file that is there when it is complete, and not before."""
    number, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            write(file)
        os.replace(name, out)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


# --- formats -------------------------------------------------------------------------------------


def _csv(turns: _Counted, _: FeedClock) -> Iterator[bytes]:
    """RFC 4180: one line a turn; empty for what nobody could measure."""
    line = io.StringIO(newline="")
    writer = csv.writer(line)

    def row(cells: list[Any]) -> bytes:
        writer.writerow(cells)
        text = line.getvalue()
        line.seek(0)
        line.truncate()
        return text.encode(errors="replace")

    yield row(list(COLUMNS))
    for turn in turns:
        yield row([_cell(read(turn)) for read in COLUMNS.values()])


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return value


def _json(turns: _Counted, clock: FeedClock) -> Iterator[bytes]:
    """The greeting's facts, and the turns as they came."""
    comma = b""
    for turn in turns:
        if not comma:
            head = json.dumps({key: clock.hello.get(key) for key in HEAD_KEYS})
            yield head[:-1].encode() + b', "turns": [\n'
        yield comma + json.dumps(turn.message).encode()
        comma = b",\n"
    yield b"\n]}\n"


def _perfetto(turns: _Counted, _: FeedClock) -> Iterator[bytes]:
    trace = Trace()
    for turn in turns:
        yield from trace.turn(turn)


WRITERS: dict[Format, Callable[[_Counted, FeedClock], Iterator[bytes]]] = {
    Format.CSV: _csv,
    Format.JSON: _json,
    Format.PERFETTO: _perfetto,
}


def _iso(at_ms: float) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""
