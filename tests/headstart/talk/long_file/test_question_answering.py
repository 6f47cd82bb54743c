"""Answers from notes, by a model that reads only so much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headstart.engine.errors import CacheFull, ContextFull
from headstart.talk.connection.session import Event
from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.notes import Note
from headstart.talk.long_file.out_of_band import AnswerFailed, Reply
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.question_answering import QuestionAnswering
from headstart.talk.long_file.report import AnalysisObserver, Report


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
