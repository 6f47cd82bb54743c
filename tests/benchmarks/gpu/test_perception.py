"""Recognition and encoders on the CPU: every line but those that need a GPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headstart.benchmarks.gpu import perception
from headstart.benchmarks.gpu.stages import Lines
from headstart.engine.device.recorded import Compute, PlainRecorder, RecordingFailed, Replay

FOREVER_S = math.inf


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "rows.jsonl")


def test_recognition_is_timed_beside_the_cpu(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each number of sessions in a pass, with the same rows as the exact weights."""
    monkeypatch.setattr(perception, "TOGETHER", (1, 3))
    assert perception.recognition("cpu", FOREVER_S, lines)
    rows = lines.read()
    assert [row["together"] for row in rows] == [1, 3]
    assert all(row["chunk_ms_p50"] > 0 and row["cpu_chunk_ms_p50"] > 0 for row in rows)
    assert rows[0]["rows_error"] < 1e-4


def test_rows_that_are_wrong_are_not_timed(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """But told."""
    monkeypatch.setattr(perception, "_rows_error", lambda *_: 0.5)
    assert not perception.recognition("cpu", FOREVER_S, lines)
    (row,) = lines.read()
    assert row["error"] == "ValueError: rows differ by 0.5 of their size"


def test_encoders_are_timed_with_recordings_and_without(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures and both lengths of sound; recorded they give the same."""
    monkeypatch.setattr(perception, "REPEATS", 1)
    assert perception.encoders("cpu", FOREVER_S, lines)
    rows = lines.read()
    assert [row["pass"] for row in rows] == list(perception._passes("tiny"))
    assert all(row["launched_ms_p50"] > 0 and row["recorded_ms_p50"] > 0 for row in rows)
    assert all(row["recorded_error"] < 1e-4 for row in rows)


@pytest.mark.parametrize(
    ("broken", "told"), [("refuses", "not recorded: no"), ("wrong", "it differs by")]
)
def test_recordings_that_are_wrong_are_told(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, broken: str, told: str
) -> None:
    """Those that were refused, and those that compute something else."""

    class Broken(PlainRecorder):
        def record(self, compute: Compute[Any], given: Any) -> Replay:
            def replay() -> Tensor:
                return compute(given) + 1.0

            if broken == "refuses":
                raise RecordingFailed("no")
            return replay

    monkeypatch.setattr(perception, "PlainRecorder", Broken)
    monkeypatch.setattr(perception, "REPEATS", 1)
    assert not perception.encoders("cpu", FOREVER_S, lines)
    (row,) = lines.read()
    assert told in row["error"]


def test_what_is_not_reached_is_named(lines: Lines) -> None:
    """Before anything of it is made."""
    assert not perception.recognition("cpu", -math.inf, lines)
    assert not perception.encoders("cpu", -math.inf, lines)
    assert [row["error"] for row in lines.read()] == ["not reached"] * 2


def test_memory_that_is_full_is_a_row(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other fault of the driver's."""

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("2 GiB")

    monkeypatch.setattr(perception, "placed", full)
    assert not perception.recognition("cpu", FOREVER_S, lines)
    assert lines.read()[-1]["error"] == "OutOfMemoryError: 2 GiB"
