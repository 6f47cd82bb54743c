"""What all benchmarks share."""

from __future__ import annotations

import json

import pytest

from headstart.benchmarks import report


def test_the_last_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """With or without --json; it names the benchmark and the machine."""
    for as_json in (True, False):
        report.finish("x", {"ratio": 2.0}, as_json=as_json)
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert last["benchmark"] == "x"
        assert last["ratio"] == 2.0
        assert last["machine"]["cores"] >= 1


def test_with_json_nothing_else_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """A program can read all of stdout as one object."""
    report.finish("x", {"ratio": 2.0}, as_json=True)
    json.loads(capsys.readouterr().out)


def test_the_median_leaves_the_first_run_out() -> None:
    """A cold start does not count."""
    times = iter([100.0, 1.0, 2.0, 3.0])
    assert report.median_ms(lambda: next(times), 3) == 2000.0


@pytest.mark.parametrize(("percent", "value"), [(50, 2), (95, 4), (100, 4), (1, 1)])
def test_percentiles_by_nearest_rank(percent: float, value: float) -> None:
    """Always one of the values."""
    assert report.percentile([4, 1, 3, 2], percent) == value
