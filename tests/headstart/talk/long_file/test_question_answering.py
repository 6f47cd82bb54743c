"""Answers from notes, by a model that reads only so much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headstart.engine.errors import CacheFull, ContextFull
from headstart.talk.connection.session import Event
from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.notes import Caption, Note
from headstart.talk.long_file.out_of_band import AnswerFailed, Reply
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.question_answering import UNKNOWN_TIME, QuestionAnswering
from headstart.talk.long_file.report import AnalysisObserver, Report
from headstart.talk.long_file.transcription import Line


@pytest.mark.parametrize("error", [ContextFull(100, 200), CacheFull(2, 1)])
async def test_fewer_notes_for_a_model_that_cannot_read_all(error: ContextFull | CacheFull) -> None:
    """Our own engine's refusals of a prompt halve what it reads, until it answers."""
    info = FileInfo(Path("a.mp4"), 600.0, 0.0, sound=None, video=0)
    report = Report(info, Plan(0.0, 600.0))
    lengths: list[int] = []

    async def ask(message: Sequence[Event], _: int) -> Reply:
        lengths.append(len(message[0]["text"]))
        if lengths[-1] > 2000:
            raise AnswerFailed(error.code, str(error))
        return Reply("Yes.", "completed")

    answering = QuestionAnswering(ask, report, report.remarks.append, 6000)
    for index in range(10):
        report.notes.append(Note(report.plan.part(index), "A man talks about it. " * 20))
    await answering.answer_all(["What is it?"], AnalysisObserver())
    (answer,) = report.answers
    assert (answer.text, answer.status) == ("Yes.", "completed")
    assert lengths == sorted(lengths, reverse=True)
    assert len(lengths) == 3
    assert 0 < len(answer.read) < 10


LION = "At 0:52 the video shows this: I see a lion."


@pytest.mark.parametrize(
    ("question", "reply", "expected"),
    [
        ("When is the lion shown?", "The lion is shown at 0:52.", None),
        ("At what time does the lion appear?", "I see a lion.", LION),  # no time
        ("When do we see the lion?", "It is shown at 9:45.", LION),  # a time of something else
        (
            "When is the slide about the museum shown?",
            "It is shown at 9:45.",  # what is written, not when
            'At 1:11 the video shows this: a text that says "Museum / opens at 9:45"',
        ),
        (
            "When does the speaker mention the train?",
            "At half past seven.",
            'At 0:40 someone says: "Our train leaves at half past seven."',
        ),
        ("When does the train leave?", "At half past seven.", None),
        ("When is the palace shown?", "At 0:28.", UNKNOWN_TIME),  # where a part begins
        ("When is the big cat shown?", "At 0:52.", None),  # another word for a lion
    ],
)
async def test_when_something_is_shown(question: str, reply: str, expected: str | None) -> None:
    """A model that gets the lines to the point reads their times in sentences; an answer without
    one of them is replaced by these sentences. None: the model's own answer stays."""
    report = Report(FileInfo(Path("a.mp4"), 600.0, 0.0, sound=None, video=0), Plan(0.0, 600.0))
    first = Note(report.plan.part(1), captions=[Caption(52.4, "I see a lion.")])
    first.heard = [Line(40, 43, "Our train leaves at half past seven.")]
    second = Note(
        report.plan.part(2), captions=[Caption(71, "I can't tell.", ("Museum", "opens at 9:45"))]
    )
    report.notes += [first, second]
    told: list[str] = []

    async def ask(message: Sequence[Event], _: int) -> Reply:
        told.append(message[0]["text"])
        return Reply(reply, "completed")

    answering = QuestionAnswering(ask, report, report.remarks.append, 6000)
    answering.few_notes = True
    await answering.answer_all([question], AnalysisObserver())
    assert report.answers[0].text == (expected or reply)
    if expected not in (None, UNKNOWN_TIME):
        assert expected in told[0]
