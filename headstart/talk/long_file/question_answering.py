"""Answers questions from the notes on a recording: from all of them, or from digests of most and
the notes that a question needs. A model that is easily confused gets only the lines that the
question is about, if there are some.

    note, note, … ─▶ more than fits into one answer? ─▶ digests ─▶ digests of digests
    question ─▶ retrieval: which lines, which notes ─▶ model ─▶ answer

"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence

from headstart.talk.connection.session import Event
from headstart.talk.long_file import prompts, retrieval
from headstart.talk.long_file.notes import Digest, Note, groups
from headstart.talk.long_file.out_of_band import AnswerFailed, Reply
from headstart.talk.long_file.report import AnalysisObserver, Answer, Report
from headstart.talk.media.times import clock

_CLOCK = re.compile(r"(?:\d+:)?\d{1,2}:\d{2}")
UNKNOWN_TIME = "The notes don't say when."
ROOM_CHARS_MIN = 500
DIGESTS_SHARE = 1 / 3
"""Of the room, for digests."""
DIGESTS_AT_ONCE = 4

Ask = Callable[[Sequence[Event], int], Awaitable[Reply]]
"""The model's reply to one message, of at most so many tokens. Raises `AnswerFailed`."""


class QuestionAnswering:
    """`room_chars`: how much of the notes the model reads at once; `few_notes`: whether it gets
    only what a question needs even if all fit: the lines that it is about, or few notes."""

    def __init__(
        self, ask: Ask, report: Report, remark: Callable[[str], None], room_chars: int
    ) -> None:
        self._ask, self._report, self._remark = ask, report, remark
        self.room_chars = room_chars
        self.few_notes = False
        self._undigested: list[Note] = []

    async def take(self, note: Note) -> None:
        """One more note: what no longer fits into one answer is put into digests."""
        self._undigested.append(note)
        if sum(len(str(each)) for each in self._undigested) > self.room_chars:
            await self._digest()

    async def answer_all(self, questions: Sequence[str], observer: AnalysisObserver) -> None:
        """Answer the questions one by one, into the report."""
        report = self._report
        whole = sum(len(str(note)) for note in report.notes) <= self.room_chars
        if not whole:
            if report.digests:
                await self._digest()
            await self._condense()
        for question in questions:
            observer.answering(question)
            answer = await self._answer(question, [] if whole else report.digests)
            report.answers.append(answer)
            observer.answered(answer)

    async def _digest(self) -> None:
        for group in groups(self._undigested, self.room_chars):
            message = prompts.digest_message(group)
            await self._digest_of(group[0].part.start_s, group[-1].part.end_s, message)
        self._undigested.clear()

    async def _condense(self) -> None:
        """Digests of digests, until they leave room for notes."""
        report = self._report
        room = self.room_chars * DIGESTS_SHARE
        while sum(len(str(d)) for d in report.digests) > room and len(report.digests) > 1:
            held, report.digests = report.digests, []
            for at in range(0, len(held), DIGESTS_AT_ONCE):
                group = held[at : at + DIGESTS_AT_ONCE]
                message = prompts.condense_message(group)
                await self._digest_of(group[0].start_s, group[-1].end_s, message)

    async def _digest_of(self, start_s: float, end_s: float, message: Sequence[Event]) -> None:
        try:
            reply = await self._ask(message, prompts.DIGEST_TOKENS)
        except AnswerFailed as failed:
            self._remark(f"no digest of a part of the notes: {failed}")
            return
        self._report.digests.append(Digest(start_s, end_s, reply.text))

    async def _answer(self, question: str, digests: Sequence[Digest]) -> Answer:
        began_s = time.monotonic()
        room_chars = self.room_chars
        while True:
            message, read = self._message(question, digests, room_chars)
            try:
                reply = await self._ask(message, prompts.ANSWER_TOKENS)
            except AnswerFailed as failed:
                if failed.is_too_long and room_chars > ROOM_CHARS_MIN:
                    room_chars //= 2
                    continue
                took_s = time.monotonic() - began_s
                return Answer(question, "", "failed", read, took_s, error=str(failed))
            took_s = time.monotonic() - began_s
            text = self._with_time(question, reply.text)
            return Answer(question, text, reply.status, read, took_s, reply.usage)

    def _with_time(self, question: str, text: str) -> str:
        """An answer to when something is shown or said. One without a time of a line that it is
        about is replaced by those lines: a small model leaves the time out, or takes another."""
        if not (self.few_notes and retrieval.asks_when(question)):
            return text
        lines = retrieval.to_the_point(question, self._report.notes)
        meant = lines or retrieval.things_shown(self._report.notes)
        if set(_CLOCK.findall(text)) & {clock(line.start_s) for line in meant}:
            return text
        return " ".join(line.sentence for line in lines) or UNKNOWN_TIME

    def _message(
        self, question: str, digests: Sequence[Digest], room_chars: int
    ) -> tuple[list[Event], list[tuple[float, float]]]:
        """What the model is told, and the ranges, in s, of what it reads in detail."""
        report = self._report
        if self.few_notes:
            lines = retrieval.to_the_point(question, report.notes)
            asks_when = retrieval.asks_when(question)
            if asks_when and not lines:  # other words may be meant, which a model knows
                lines = retrieval.things_shown(report.notes)
            said = [line.sentence if asks_when else str(line) for line in lines]
            if 0 < sum(map(len, said)) <= room_chars:
                message = prompts.lines_message(question, said, is_whole=report.is_whole)
                return message, [(line.start_s, line.end_s) for line in lines]
        notes = retrieval.chosen(
            question,
            report.notes,
            room_chars - sum(len(str(digest)) for digest in digests),
            report.plan.start_s,
            report.plan.end_s,
            few=self.few_notes,
        )
        message = prompts.question_message(question, notes, digests, is_whole=report.is_whole)
        return message, [(note.part.start_s, note.part.end_s) for note in notes]
