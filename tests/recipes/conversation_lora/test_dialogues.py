"""What is learnt from is well-formed, and none of it is what the benchmark asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.engine.api import ToolCall
from headstart.recipes.conversation_lora.dialogues import (
    FOLDER,
    KNOWN,
    LIGHT,
    TAUGHT,
    TOOLS,
    Result,
    Turn,
    alike,
    content,
    load,
    questions,
)


def _write(folder: Path, *turns: list[str], camera: str = "off") -> Path:
    line = {"kind": "fact", "camera": camera, "turns": list(turns)}
    (folder / "a.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def test_all_of_ours_load_and_cover_every_kind_of_question() -> None:
    """More than a thousand dialogues of six kinds; loading checks each against the questions."""
    dialogues = load(FOLDER, TAUGHT)
    assert len(dialogues) > 1000
    kinds = {"fact", "arithmetic", "everyday", "small talk", "cannot know", "seeing"}
    assert {dialogue.kind for dialogue in dialogues} == kinds
    assert sum(1 for _ in questions()) == 70


def test_no_fit_asks_what_the_benchmark_asks() -> None:
    """The later fits' files load, too; most that are about light speak of the dark as well."""
    light = load(LIGHT)
    assert (
        sum(any("dark" in f"{t.answer}{t.note}" for t in d.turns) for d in light) > len(light) / 3
    )
    assert {dialogue.kind for dialogue in load(KNOWN)} == {
        "fact",
        "everyday",
        "small talk",
        "seeing",
    }


def test_no_answer_is_a_lecture() -> None:
    """Every answer fits one breath, as it will be spoken: at most 30 words, no lists, no markup."""
    for dialogue in load(FOLDER, TAUGHT, KNOWN, LIGHT, TOOLS):
        for turn in dialogue.turns:
            if isinstance(turn.answer, ToolCall):
                continue
            assert 1 <= len(turn.answer.split()) <= 30, turn
            assert not set("*#_[]\n") & set(turn.answer), turn


@pytest.mark.parametrize(
    "said",
    ["What is the capital of France?", "so, who painted the Mona Lisa", "What is 7 plus 8?"],
)
def test_what_the_benchmark_asks_is_refused(tmp_path: Path, said: str) -> None:
    """A question of the test set, reworded a little or with digits, names its file and line."""
    with pytest.raises(ValueError, match=r"a\.jsonl:1: .* is a question of the benchmark"):
        load(_write(tmp_path, [said, "No."]))


def test_another_sum_is_another_question() -> None:
    """ "nine plus four" is asked; "nine plus five" is not, and stays."""
    assert alike(content("What is 9 plus 4?"), content("nine plus four")) == 1.0
    assert alike(content("What is nine plus five?"), content("What is nine plus four?")) == 0.0


def test_a_note_stands_before_the_words_that_follow_it(tmp_path: Path) -> None:
    """The dialogue's picture comes with its first turn; a third member is a new one."""
    first, later = "[camera: a lamp; light: dark; colour: red]", "[camera: nothing, all black]"
    (one,) = load(_write(tmp_path, ["Look!", "A lamp."], ["Now?", "No.", later], camera=first))
    assert one.turns == (Turn(first, "Look!", "A lamp."), Turn(later, "Now?", "No."))
    assert one.sees


@pytest.mark.parametrize("camera", ["on", "[a lamp]", "[camera: a [b]]"])
def test_a_note_of_another_form_is_refused(tmp_path: Path, camera: str) -> None:
    """Only what the eyes write is a note."""
    with pytest.raises(ValueError, match="expected a note like"):
        load(_write(tmp_path, ["Look!", "A lamp."], camera=camera))


def test_a_dialogue_without_turns_is_refused(tmp_path: Path) -> None:
    """Nothing to learn from is a mistake in the file."""
    with pytest.raises(ValueError, match="at least one turn"):
        load(_write(tmp_path))


def test_what_is_called_is_among_the_tools(tmp_path: Path) -> None:
    """By a name that tools.toml defines; a result stands where words would."""
    line = {
        "kind": "tools",
        "camera": "off",
        "tools": ["set_timer"],
        "turns": [
            ["Ten minutes!", {"call": "set_timer", "arguments": {"minutes": 10}}],
            [{"result": {"ok": True}}, "It runs."],
        ],
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    (one,) = load(tmp_path)
    assert [tool.name for tool in one.tools] == ["set_timer"]
    called = Turn("", "Ten minutes!", ToolCall("set_timer", '{"minutes": 10}'))
    assert one.turns == (called, Turn("", Result('{"ok": true}'), "It runs."))
    (tmp_path / "a.jsonl").write_text(json.dumps({**line, "tools": ["stop_music"]}))
    with pytest.raises(
        ValueError, match=r"a\.jsonl:1: set_timer is called, but is not among its tools"
    ):
        load(tmp_path)
    (tmp_path / "a.jsonl").write_text(json.dumps({**line, "tools": ["fly"]}))
    with pytest.raises(ValueError, match=r"tools.toml defines no \['fly'\]"):
        load(tmp_path)


def test_tools_are_called_where_they_help_and_left_alone_where_not() -> None:
    """About as often the one as the other."""
    loaded = load(TOOLS)
    calls = sum(any(isinstance(t.answer, ToolCall) for t in d.turns) for d in loaded)
    assert 0.3 < calls / len(loaded) < 0.7
    assert all(dialogue.tools for dialogue in loaded)
