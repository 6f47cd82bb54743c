"""headstart.benchmarks.hearing.conditions: what is kept, counted and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.benchmarks.hearing.conditions import (
    HALVES,
    Note,
    conditions_of,
    kind,
    read_notes,
    sentences_of,
    summary,
)
from headstart.benchmarks.inputs.condition_sounds import CONDITIONS

SETTINGS = {"ears": "whisper-tiny.en", "chunk_ms": 500}


def note(condition: str, ours: str, offline: str, said: str = "How old are you?") -> Note:
    return Note("a", condition, said, ours, offline)


def test_the_halves_share_no_sentence() -> None:
    """The demo's questions and fifty more, three of which are the demo's."""
    choose, report = (set(sentences_of(half)) for half in HALVES)
    assert not choose & report
    assert len(choose | report) == 50
    assert sentences_of("report", 2) == sentences_of("report")[:2]


def test_notes_are_read_again(tmp_path: Path) -> None:
    """A line that was being written when the run ended is dropped."""
    path = tmp_path / "notes.jsonl"
    assert read_notes(path, SETTINGS) == []
    first = note("room", "b", "c")
    with path.open("a") as file:
        file.write(json.dumps(vars(first)) + "\n" + '{"clip": "a", "cond')
    assert read_notes(path, SETTINGS) == [first]
    with path.open("a") as file:
        file.write(json.dumps(vars(first)) + "\n")
    assert read_notes(path, SETTINGS) == [first, first]


def test_notes_of_other_settings_are_refused(tmp_path: Path) -> None:
    """By name, untouched."""
    path = tmp_path / "notes.jsonl"
    read_notes(path, SETTINGS)
    before = path.read_text()
    with pytest.raises(ValueError, match=r"notes\.jsonl: expected notes of .*200"):
        read_notes(path, {**SETTINGS, "chunk_ms": 200})
    assert path.read_text() == before


def test_what_is_counted() -> None:
    """Equal after normalising is right; the worst condition is where offline leads by most."""
    found = summary(
        [
            note("offset 1", "how old are you", "How old are you?"),
            note("offset 1", "How old are you?", "How bold are you?"),
            note("room", "", "How old are you?"),
            note("room", "How old are you", "How old are you?"),
        ]
    )
    offset, room = found["rows"]
    assert (offset["ours_only"], offset["offline_only"]) == (1, 0)
    assert {key: offset[key] for key in list(offset)[:6]} == {
        "condition": "offset 1",
        "clips": 2,
        "ours_right": 1.0,
        "ours_wer": 0.0,
        "offline_right": 0.5,
        "offline_wer": 0.125,
    }
    assert (room["ours_right"], room["ours_wer"]) == (0.5, 0.5)
    assert (found["worst_points"], found["worst"]) == (50.0, "room")
    assert found["all"]["ours_right"] == 0.75


def test_notes_from_before_there_were_draws(tmp_path: Path) -> None:
    """They are of the first draw."""
    path = tmp_path / "notes.jsonl"
    read_notes(path, SETTINGS)
    old = vars(note("room", "b", "c")).copy()
    del old["draw"]
    with path.open("a") as file:
        file.write(json.dumps(old) + "\n")
    assert [one.key for one in read_notes(path, SETTINGS)] == [("a", "room", 0)]


def test_conditions_by_kind_and_by_name() -> None:
    """Both add up; none of either is all; an unknown one is named with those that there are."""
    named = ["babble 10 dB, g711", "offset 1"]
    assert {one.name for one in conditions_of([], named)} == set(named)
    assert len(conditions_of(["pink"], named)) == 5
    assert conditions_of([]) == list(CONDITIONS)
    with pytest.raises(ValueError, match=r"babble 20 dB.*got \['babble 10'\]"):
        conditions_of([], ["babble 10"])


def test_similar_conditions_are_one_kind() -> None:
    """Offsets, levels, each noise, and what is combined."""
    kinds = {kind(condition.name) for condition in CONDITIONS}
    assert kinds == {"offset", "level", "opus", "g711", "pink", "babble", "room", "combined"}
