"""headstart.talk.long_file.output: what a file or a server says cannot steer the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.notes import Caption, Note
from headstart.talk.long_file.output import JsonAskOutput, PrettyAskOutput
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.report import Answer, Report
from headstart.talk.long_file.transcription import Line

STEERING = "\x1b]0;owned\x07\x1b[2J"
NO_UTF8 = "\udcff"


def report() -> Report:
    path = Path(f"film{STEERING}{NO_UTF8}.mkv")
    info = FileInfo(path, 60.0, 0.0, sound=1, video=0, width=64, height=36, remarks=(STEERING,))
    return Report(info, Plan(0.0, 60.0))


def answer() -> Answer:
    return Answer(f"What?{STEERING}", f"One.{STEERING}\nTwo.{NO_UTF8}", "completed", [], 1.0)


def test_no_text_steers_the_terminal() -> None:
    """Of the file's name, a note, an answer and an error; line breaks of an answer stay."""
    text = io.StringIO()
    output = PrettyAskOutput(Console(file=text, width=100))
    whole = report()
    output.planned(whole.info, whole.plan)
    note = Note(whole.plan.part(0), f"seen{STEERING}", [Line(1.0, 2.0, f"heard{STEERING}")])
    note.captions.append(Caption(1.0, f"sight{STEERING}"))
    whole.notes.append(note)
    output.noted(note, whole)
    output.remark(STEERING)
    output.answered(answer())
    whole.error = f"lost{STEERING}"
    output.report(whole)
    shown = text.getvalue()
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert shown.encode()
    for word in ("film", "seen", "heard", "sight", "One.", "\nTwo.", "lost"):
        assert word in shown


def test_one_part_and_a_line() -> None:
    """Words agree with numbers; nothing is left behind the last part; a moment is one time."""
    text = io.StringIO()
    output = PrettyAskOutput(Console(file=text, width=100))
    whole = report()
    whole.plan = Plan(0.0, 30.0)
    output.planned(whole.info, whole.plan)
    whole.notes.append(Note(whole.plan.part(0), "A lion."))
    whole.took_s = 15.0
    output.noted(whole.notes[0], whole)
    output.answered(Answer("What?", "One.", "completed", [(71.0, 71.0), (80.0, 90.0)], 1.0))
    output.answered(Answer("When?", "Never.", "completed", [], 1.0))
    output.report(whole)
    shown = text.getvalue()
    assert "1 part · roughly " in shown
    assert "twice" not in shown
    assert "0:30 of 0:30 · part 1 of 1 · 2.0 x real time\n" in shown
    assert "read in detail: 1:11, 1:20-1:30 · 1 s" in shown
    assert "read in detail: nothing · 1 s" in shown
    assert "30 s in 15 s (2.0 x real time), 1 part, " in shown


def test_json_lines_can_be_written() -> None:
    """Though a file's name or an answer has no UTF-8."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    output = JsonAskOutput(stream)
    whole = report()
    output.planned(whole.info, whole.plan)
    output.answered(answer())
    stream.seek(0)
    plan, said = map(json.loads, stream)
    assert plan["file"].startswith("film\x1b")
    assert said["answer"].endswith("Two.?")
