"""Comparing two recordings: figures, intervals, pairs, settings, and what counts as slower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.recordings.bootstrap import SEED, intervals, quantile
from headstart.recordings.compare import (
    Comparison,
    Run,
    Sample,
    compare,
    load,
    pairs_of,
    settings_diff,
)
from headstart.recordings.errors import NothingToShow
from headstart.recordings.reader import Recording
from tests.headstart.recordings.files import newest, talk, written
from tests.web_demo.dashboard.feed_fixtures import Json, Server


def run_of(path: Path, messages: list[Json]) -> Run:
    return load(Recording(written(path, messages)))


def compared(tmp_path: Path, a: list[Json], b: list[Json], over: float = 5.0) -> Comparison:
    return compare(run_of(tmp_path / "a.gz", a), run_of(tmp_path / "b.gz", b), over)


def row(comparison: Comparison, stage: str) -> Json:
    (found,) = [r.to_wire() for r in comparison.rows if r.stage == stage]
    return found


def test_the_same_run_is_not_slower(tmp_path: Path) -> None:
    """Compared with itself, nothing changes; with another of the same server, by chance only."""
    same = compared(tmp_path, talk(1), talk(1))
    assert same.slower == []
    assert same.settings == []
    assert row(same, "total")["p50"]["change_ms"] == 0
    assert compared(tmp_path, talk(1), talk(2)).slower == []


def test_a_slower_engine_is_found(tmp_path: Path) -> None:
    """At the middle and the slow end, in the stages that are the engine's, and the other way
    round it is faster."""
    slow = compared(tmp_path, talk(1), talk(2, slow_from=0))
    assert {("total", 0.5), ("total", 0.95), ("first_sound", 0.5)} <= set(slow.slower)
    figure = row(slow, "decode_first")["p50"]
    assert figure["low_ms"] > 0
    assert 60 < figure["change_percent"] < 140
    hangover = row(slow, "vad_hangover")["p50"]
    assert hangover["low_ms"] <= 0 <= hangover["high_ms"]
    assert compared(tmp_path, talk(2, slow_from=0), talk(1)).slower == []


def test_the_threshold_counts_too(tmp_path: Path) -> None:
    """What is surely slower, but by less than was asked for, is let through."""
    a, b = talk(1), talk(2, slow_from=0)
    change = row(compared(tmp_path, a, b), "total")["p50"]["change_percent"]
    assert ("total", 0.5) in compared(tmp_path, a, b, change - 0.1).slower
    assert ("total", 0.5) not in compared(tmp_path, a, b, change + 0.1).slower


def test_small_stages_explain_and_do_not_fail(tmp_path: Path) -> None:
    """A stage that takes three times as long, and nobody waits longer."""
    a = talk(1)
    b = [
        {**m, "stages_ms": {**m["stages_ms"], "detokenize": 0.6}}
        if m["type"] == "turn" and m["total_ms"] is not None
        else m
        for m in a
    ]
    comparison = compared(tmp_path, a, b)
    assert row(comparison, "detokenize")["p50"]["change_ms"] == pytest.approx(0.4)
    assert comparison.slower == []


def test_left_out_turns_are_counted(tmp_path: Path) -> None:
    """By why; the counted and the left out are all."""
    messages = talk(5, seconds=240)
    wire = run_of(tmp_path / "a.gz", messages).to_wire()
    turns = newest(messages).values()
    assert wire["turns"] == len(turns)
    interrupted = sum(turn["interrupted"] for turn in turns)
    assert wire["left_out"]["interrupted"] == interrupted > 0
    assert wire["counted"] + sum(wire["left_out"].values()) == wire["turns"]


def test_the_interval_is_the_same_each_time_and_covers_the_truth() -> None:
    """Seeded; of 60 pairs of samples of two known distributions, some 95 % cover the difference."""
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(60):
        a, b = random.normal(100, 10, 120), random.normal(104, 10, 120)
        first, again = (
            intervals(a, b, [0.5], False, np.random.default_rng(SEED)) for _ in range(2)
        )
        assert first == again
        ((low, high),) = first
        covered += low <= 4 <= high
    assert covered >= 52


def test_pairs_make_the_interval_narrower() -> None:
    """Where clips differ much and each gets slower by the same, drawing them together shows it."""
    clips = np.random.default_rng(1).normal(500, 100, 200)
    a, b = clips, clips + 5
    ((low, high),) = intervals(a, b, [0.5], True, np.random.default_rng(SEED))
    assert [low, high] == pytest.approx([5, 5])
    ((low, high),) = intervals(a, b, [0.5], False, np.random.default_rng(SEED))
    assert low < 0 < high


def test_quantiles_are_by_nearest_rank() -> None:
    """As on the page."""
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    assert [quantile(values, q) for q in (0.0, 0.2, 0.5, 0.95, 1.0)] == [1, 1, 3, 5, 5]


def test_turns_pair_by_clip_in_order() -> None:
    """The first with the first; one without a partner, or without a clip, has none."""
    names_a, names_b = ("x", "x", "y", None), ("x", None, "z", "x", "x")
    a = [Sample(name, {"total": float(i)}) for i, name in enumerate(names_a)]
    b = [Sample(name, {"total": float(i)}) for i, name in enumerate(names_b)]
    assert pairs_of(a, b) == [(a[0], b[0]), (a[1], b[3])]


def test_recordings_of_the_same_clips_are_paired(tmp_path: Path) -> None:
    """By the name of the clip where there is one; without any they are compared as they are."""
    server_a, server_b = Server(1), Server(2)
    a = [server_a.hello(), *(server_a.turn(clip=f"clip{i}") for i in range(30))]
    b = [server_b.hello(), *(server_b.turn(clip=f"clip{i}") for i in range(20))]
    assert compared(tmp_path, a, b).pairs == 20
    assert compared(tmp_path, talk(1), talk(2)).pairs == 0
    # Words do, where a recording has them.
    assert compared(tmp_path, talk(1, content=True), talk(2, content=True)).pairs > 50


@pytest.mark.parametrize(
    ("n", "given"), [(19, ["p50"]), (99, ["p50", "p95"]), (100, ["p50", "p95", "p99"])]
)
def test_few_turns_give_few_quantiles(tmp_path: Path, n: int, given: list[str]) -> None:
    """No p99 below 100, no p95 below 20; a small number is said."""
    server = Server(1)
    messages = [server.hello(), *(server.turn() for _ in range(n))]
    comparison = compared(tmp_path, messages, messages)
    total = row(comparison, "total")
    assert [q for q in ("p50", "p95", "p99") if total[q] is not None] == given
    assert comparison.to_wire()["small_n"] is (n < 100)


def test_too_few_turns_are_no_green_light(tmp_path: Path) -> None:
    """Nothing can be said of them, and that is an error with the file's name."""
    with pytest.raises(NothingToShow, match=r"b\.gz has 0 turns that count"):
        compared(tmp_path, talk(1), talk(1)[:2])


def test_settings_that_differ_come_by_name() -> None:
    """Of the settings, the model and the version; null is not the same as not set."""
    a: dict[str, Any] = {"model": "small", "settings": {"x": 1, "y": None, "same": [1]}}
    b: dict[str, Any] = {"model": "tiny", "settings": {"x": True, "same": [1], "z": "new"}}
    names = [name for name, _, _ in settings_diff(a, b)]
    assert names == ["model", "x", "y", "z"]
    assert settings_diff({"settings": 7}, {}) == []
