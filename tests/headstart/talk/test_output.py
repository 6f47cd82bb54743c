import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headstart.talk.dialog import Dialog
from headstart.talk.media.playback import MediaFile
from headstart.talk.output import JsonOutput, PrettyOutput, bar, budget_table, facts
from tests.headstart.talk.test_dialog import answer, report, speech

BUDGET: dict[str, Any] = {
    "total_ms": 300.0,
    "stages_ms": {"network": None, "vad_hangover": 200.0, "prefill": 0.0, "decode_first": 100.0},
    "latency_budget_ms": 250.0,
    "over_budget": True,
    "hidden_ms": 120.0,
}


def shown(what: Any) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(what)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def played(output: PrettyOutput) -> None:
    """One turn through an output, as `talk` does it."""
    dialog = Dialog()
    turn = dialog.begin("a.wav", reports=True)
    output.turn_began(MediaFile(Path("a.wav"), 2.0, False, False), turn)
    output.progress(1000)
    for event in [*speech("i", "hello there"), *answer("r", "general"), report("r")]:
        dialog.receive(event)
        output.event(event, dialog)
    output.turn_ended(turn)


def test_bar_has_its_width_and_share() -> None:
    """Eighths of a cell; never wider or narrower."""
    assert bar(0.5, cells=4) == "██  "
    assert bar(0.0625, cells=2) == "▏ "
    assert bar(-1, cells=3) == "   "
    assert bar(9, cells=3) == "███"


def test_budget_bars_follow_each_other() -> None:
    """Lengths in proportion, each where the last ended; what was not measured says so."""
    lines = {line.split()[0]: line for line in shown(budget_table(BUDGET)).splitlines()[1:]}
    assert "not measured" in lines["network"]
    assert lines["vad_hangover"].count("█") == 24
    assert lines["decode_first"].count("█") == 12
    assert lines["prefill"].count("█") == 0
    assert lines["decode_first"].index("█") == lines["vad_hangover"].rindex("█") + 1
    assert "300 ms of 250 ms" in shown(budget_table(BUDGET))


def test_late_chunks_are_explained() -> None:
    """To whoever sees a first token far over the budget: with a remedy; not where none was late."""
    for overruns, expected in ((0, 0), (4, 1)):
        chunks = {"count": 4, "latency_max_ms": 2317.0, "headroom_min": None, "overruns": overruns}
        lines = facts(
            {"budget": None, "taken_back": 0, "chunks": chunks, "kv": None, "usage": None}
        )
        assert sum("Other programs use the cores" in line for line in lines) == expected


def test_people_are_told_where_the_page_and_the_dashboard_are() -> None:
    """Each link with what it is."""
    console = Console(file=io.StringIO(), width=40)
    PrettyOutput(console).staying("http://127.0.0.1:8080")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "open http://127.0.0.1:8080 and talk" in text
    assert "Latency dashboard: http://127.0.0.1:8080/dashboard/\n" in text


def test_pretty_output_in_a_pipe() -> None:
    """Without a terminal: the file, the words, the answer, the budget; no control codes."""
    console = Console(file=io.StringIO(), width=100)
    played(PrettyOutput(console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for piece in ("a.wav", "hello there", "general", "last speech", "tokens"):
        assert piece in text
    assert "\x1b" not in text


@pytest.mark.parametrize("output", [JsonOutput(io.StringIO()), PrettyOutput()])
def test_no_files_name_steers_the_terminal(
    output: JsonOutput | PrettyOutput, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a remark about it."""
    name = "a\x1b]0;owned\x07.wav"
    turn = Dialog().begin(name, reports=True)
    turn.all_sent = True
    clip = MediaFile(Path(name), 2.0, False, False, remarks=(f"{name} is clipped",))
    output.turn_began(clip, turn)
    output.remark(f"{name} is truncated")
    output.turn_ended(turn)
    output.close()
    shown = "".join(capsys.readouterr())
    assert "is clipped" in shown
    assert "is truncated" in shown
    assert not {"\x1b", "\x07"} & set(shown)


def test_pretty_output_in_a_terminal_cleans_up() -> None:
    """Live in a terminal: the final words stand, and closing shows the cursor again."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    output = PrettyOutput(console)
    output.status({"engine": {"state": "loading", "loading": {"what": "w", "done": 1, "total": 2}}})
    played(output)
    output.close()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "hello there" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_json_output_is_one_object_a_line() -> None:
    """Events as they came; the result last, with the promised keys."""
    stream = io.StringIO()
    output = JsonOutput(stream)
    dialog = Dialog()
    dialog.begin("a.wav", reports=True)
    for event in [*speech("i", "hé"), *answer("r", "ho"), report("r")]:
        dialog.receive(event)
        output.event(event, dialog)
    output.done(dialog.to_wire())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == 9
    assert {"transcript", "answer", "budget", "chunks", "kv", "usage"} <= lines[-1].keys()
    assert lines[-1]["transcript"] == "hé"


def test_what_is_wrong_with_a_file_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """To people where the turn begins, to programs' users on stderr; stdout stays JSON."""
    clip = MediaFile(Path("a.wav"), 2.0, False, False, remarks=("a.wav is truncated: so it is",))
    console = Console(file=io.StringIO(), width=100)
    pretty = PrettyOutput(console)
    pretty.turn_began(clip, Dialog().begin("a.wav", reports=True))
    pretty.close()
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a.wav is truncated: so it is" in text
    stream = io.StringIO()
    JsonOutput(stream).turn_began(clip, Dialog().begin("a.wav", reports=True))
    assert capsys.readouterr().err == "a.wav is truncated: so it is\n"
    assert stream.getvalue() == ""
