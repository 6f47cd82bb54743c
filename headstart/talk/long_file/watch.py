"""Looks at a recording part by part, and answers questions about it.

    reader (a thread) ─▶ transcription: lines ─▶ model: summary ─▶ note ─▶ … ─▶ answers
    └─── part k + 1 is read and heard ───┘  └ while part k is summarised ┘

Held in memory: at most three parts, and the notes. The work is bounded by the plan; a file that
ends sooner ends it, and so does `stop`: then the questions are answered from what is known.

"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.client_key import NO_KEY
from headstart.gateway.errors import ServerRefused, TalkError
from headstart.gateway.runtime import tasks
from headstart.talk.long_file import notes, out_of_band, transcription, wording
from headstart.talk.long_file.choice import PICTURES, ByMotion, Candidate, Chooser, thin
from headstart.talk.long_file.facts import Facts, NothingToSee, look, within
from headstart.talk.long_file.link import Event, Link, session_url
from headstart.talk.long_file.notes import Digest, Note, Sight
from headstart.talk.long_file.out_of_band import AnswerFailed, OutOfBandAnswers
from headstart.talk.long_file.plan import OVERLAP_S, PART_S, Plan, clock
from headstart.talk.long_file.reader import Lost, Material, read
from headstart.talk.long_file.retried_session import RETRY_FOR_S, RetriedSession
from headstart.talk.long_file.transcription import Line, Transcription

ROOM_CHARS = 6000
"""How much of the notes is read for one answer: some 1,500 tokens."""
ROOM_CHARS_MIN = 500
LABEL_TOKENS = 32
"""A model that reads fewer tokens of a picture sees one thing in it (`small`: its label). It is
shown one picture at a time, reads no earlier summaries, which it would repeat, and fewer notes."""
LABELLED_PICTURES = 4
"""Pictures of a part that such a model is shown."""
LABEL_ROOM_CHARS = 2400
DIGESTS_SHARE = 1 / 3
DIGESTS_AT_ONCE = 4


@dataclass(frozen=True)
class WatchOptions:
    """`pictures`: of a part, on average; `paced`: no faster than a person would watch; `see`,
    `hear`: whether its pictures and its sound count; `room_chars`: as `ROOM_CHARS`."""

    questions: tuple[str, ...] = ()
    from_s: float = 0.0
    to_s: float | None = None
    part_s: float = PART_S
    overlap_s: float = OVERLAP_S
    pictures: int = PICTURES
    chooser: Chooser = field(default_factory=ByMotion)
    see: bool = True
    hear: bool = True
    paced: bool = False
    model: str | None = None
    api_key: str = NO_KEY
    room_chars: int = ROOM_CHARS
    retry_for_s: float = RETRY_FOR_S


@dataclass
class Answered:
    """`read_s`: the ranges whose notes were read in detail."""

    question: str
    text: str
    status: str
    read: list[tuple[float, float]]
    took_s: float
    usage: Event | None = None
    error: str | None = None

    def to_wire(self) -> Event:
        return {
            "question": self.question,
            "answer": self.text,
            "status": self.status,
            "error": self.error,
            "read": [[round(a, 2), round(b, 2)] for a, b in self.read],
            "took_s": round(self.took_s, 2),
            "usage": self.usage,
        }


@dataclass
class Report:
    """Everything that is known in the end. `stopped`: by the user, before the end; `error`: why it
    ended before, if the server went away."""

    facts: Facts
    plan: Plan
    notes: list[Note] = field(default_factory=list)
    digests: list[Digest] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    stopped: bool = False
    error: str | None = None
    model: str | None = None
    took_s: float = 0.0

    @property
    def seen_to_s(self) -> float:
        """Up to where the recording is known."""
        return self.notes[-1].part.end_s if self.notes else self.plan.start_s

    @property
    def is_whole(self) -> bool:
        return not self.stopped and self.error is None

    def to_wire(self) -> Event:
        looked_s = self.seen_to_s - self.plan.start_s
        return {
            "type": "result",
            **self.facts.to_wire(),
            "from_s": round(self.plan.start_s, 3),
            "to_s": round(self.plan.end_s, 3),
            "seen_to_s": round(self.seen_to_s, 3),
            "complete": self.is_whole,
            "answer": self.answers[0].text if self.answers else None,
            "answers": [answer.to_wire() for answer in self.answers],
            "parts": [note.to_wire() for note in self.notes],
            "digests": [vars(digest) for digest in self.digests],
            "lost": [lost.to_wire() for lost in self.lost],
            "remarks": [*self.facts.remarks, *self.remarks],
            "error": self.error,
            "model": self.model,
            "wall_s": round(self.took_s, 2),
            "speed": round(looked_s / self.took_s, 3) if self.took_s else None,
            "client_peak_bytes": peak_bytes(),
        }


class WatchObserver:
    """Is notified of what happens; the base class does nothing."""

    def planned(self, facts: Facts, plan: Plan) -> None:
        """The file is good, and nothing has been sent yet."""

    def doing(self, what: str, index: int) -> None:
        """`what` ("reads", "hears", "looks at") happens to part number `index`."""

    def noted(self, note: Note, report: Report) -> None:
        """One more part is known."""

    def lost_part(self, lost: Lost) -> None:
        """Something of the file cannot be decoded."""

    def remark(self, sentence: str) -> None:
        """Something that the user should know."""

    def away(self, for_s: float | None) -> None:
        """The server is away, and tried again for `for_s`; None: it is back."""

    def answering(self, question: str) -> None:
        """All is known that will be."""

    def answered(self, answer: Answered) -> None:
        """One question is answered."""


@dataclass
class Stop:
    """How often the user has asked to stop: once, and what is known is used; twice, or while
    questions are answered, and nothing more is asked."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()


async def watch(
    path: Path, url: str, options: WatchOptions, observer: WatchObserver, stop: Stop | None = None
) -> Report:
    """Look at a file through the server at `url` and answer the questions. Raises `MediaError`s,
    and `TalkError`s of a server that cannot be reached at all; one that goes away later ends the
    report, which says so (`Report.error`)."""
    facts = await asyncio.to_thread(look, path)
    start_s, end_s = within(facts, options.from_s, options.to_s)
    plan = Plan(start_s, end_s, options.part_s, options.overlap_s)
    observer.planned(facts, plan)
    watcher = _Watcher(Report(facts, plan), url, options, observer, stop or Stop())
    try:
        await watcher.run()
    finally:
        await watcher.close()
    return watcher.report


class _Watcher:
    def __init__(
        self,
        report: Report,
        url: str,
        options: WatchOptions,
        observer: WatchObserver,
        stop: Stop,
    ) -> None:
        self.report = report
        self._options, self._observer, self._stop = options, observer, stop
        self._materials = read(
            report.facts,
            report.plan,
            options.chooser,
            options.pictures,
            hear=options.hear,
            see=options.see,
        )
        self._began_s = time.monotonic()
        self._undigested: list[Note] = []
        self._room_chars = options.room_chars
        self._cannot_hear = False
        self._sees_labels: bool | None = None  # not known before the first picture
        key, away, retry_s = options.api_key, observer.away, options.retry_for_s
        transcription_url = session_url(url, options.model, transcription.KIND)
        self._transcription: RetriedSession[Transcription] = RetriedSession(
            transcription_url,
            key,
            Transcription,
            transcription.SESSION,
            transcription.GATEWAY,
            away,
            retry_s,
        )
        self._model: RetriedSession[OutOfBandAnswers] = RetriedSession(
            session_url(url, options.model),
            key,
            OutOfBandAnswers,
            out_of_band.session(wording.INSTRUCTIONS),
            out_of_band.GATEWAY,
            away,
            retry_s,
        )

    async def close(self) -> None:
        await asyncio.gather(self._transcription.close(), self._model.close())

    async def run(self) -> None:
        """Parts, then answers."""
        report = self.report
        try:
            report.stopped = not await self._unless(self._stop.asked, self._parts())
            if not report.notes and not report.stopped:
                raise _nothing(report.facts, self._options)
            self._stop.asked.set()  # from here on the next one ends the answers
            if report.notes:
                await self._unless(self._stop.at_once, self._answers())
        except TalkError as error:
            if not report.notes:
                raise
            report.error = str(error)
        report.model = self._model.model
        report.took_s = time.monotonic() - self._began_s

    async def _unless(self, stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
        """Do `work` to its end, or until `stop`. Whether it came to its end."""
        task = tasks.awaited(work, "watch")
        stopped: asyncio.Task[bool] = tasks.awaited(stop.wait(), "stop")
        both: tuple[asyncio.Task[Any], ...] = (task, stopped)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = task.done()
            for each in both:
                each.cancel()
            results = await asyncio.gather(task, stopped, return_exceptions=True)
        if ended and isinstance(results[0], BaseException):
            raise results[0]
        return ended

    # --- parts ------------------------------------------------------------------------------------

    async def _parts(self) -> None:
        """One part is read and heard while the one before is summarised."""
        ahead = tasks.awaited(self._read_and_hear(0), "part")
        try:
            while (found := await ahead) is not None:
                material, lines = found
                ahead = tasks.awaited(self._read_and_hear(material.part.index + 1), "part")
                await self._note(material, lines)
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def _read_and_hear(self, index: int) -> tuple[Material, list[Line]] | None:
        self._observer.doing("reads", index)
        material = await asyncio.to_thread(_next, self._materials)
        if material is None:
            return None
        if self._options.paced:
            due_s = self._began_s + material.part.end_s - self.report.plan.start_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        for lost in material.lost:
            self.report.lost.append(lost)
            self._observer.lost_part(lost)
        return material, await self._hear(material)

    async def _hear(self, material: Material) -> list[Line]:
        if not material.pcm or self._cannot_hear:
            return []
        self._observer.doing("hears", material.part.index)
        reason: str | None = None

        async def work(link: Link, heard: Transcription) -> list[Line]:
            nonlocal reason
            lines = await heard.hear(link, material.part, material.pcm)
            reason = heard.cannot
            return lines

        try:
            lines = await self._transcription.use(work)
        except ServerRefused as refused:
            lines, reason = [], str(refused)
        except AnswerFailed as failed:
            span = f"{clock(material.part.start_s)}-{clock(material.part.end_s)}"
            self._remark(f"what is said in {span} was not written down: {failed}")
            return []
        if reason is not None:
            self._cannot_hear = True
            self._remark(
                f"the server writes down nothing that is said ({reason}): its model gets "
                "the sound itself"
            )
        return lines

    async def _note(self, material: Material, lines: Sequence[Line]) -> None:
        """Summarise a part. One that the server cannot read leaves a note without a summary."""
        began_s = time.monotonic()
        part = material.part
        note = Note(part, heard=list(lines), sampled=material.sampled)
        note.shown_s = [shown.at_s for shown in material.pictures]
        sound = material.pcm if self._cannot_hear else b""
        if material.pictures or lines or sound:
            self._observer.doing("looks at", part.index)
            try:
                await self._look(note, material, sound)
            except AnswerFailed as failed:
                self._remark(f"{note.when} was not summarised: {failed}")
        note.took_s = time.monotonic() - began_s
        self.report.notes.append(note)
        self.report.took_s = time.monotonic() - self._began_s
        self._undigested.append(note)
        self._observer.noted(note, self.report)
        await self._digest()

    async def _look(self, note: Note, material: Material, sound: bytes) -> None:
        """Let the model see a part, in the way that suits it. Raises `AnswerFailed`."""
        pictures = material.pictures
        if pictures and self._sees_labels is None:
            said = await self._ask(wording.sight_message(pictures[0]), wording.SIGHT_TOKENS)
            tokens = ((said.usage or {}).get("input_token_details") or {}).get("image_tokens")
            self._sees_labels = tokens is not None and 0 < tokens < LABEL_TOKENS
            if self._sees_labels:
                self._room_chars = min(self._room_chars, LABEL_ROOM_CHARS)
        if not self._sees_labels:
            before = self.report.notes[-wording.REMEMBERED :]
            message = wording.part_message(note.part, before, pictures, note.heard, sound)
            said = await self._ask(message, wording.SUMMARY_TOKENS)
            note.seen, note.usage = said.text, said.usage
            return
        candidates = [Candidate(shown.at_s, shown.thumbnail) for shown in pictures]
        chosen = thin(candidates, range(len(candidates)), LABELLED_PICTURES)
        note.shown_s = [pictures[index].at_s for index in chosen]
        for index in chosen:
            said = await self._ask(wording.sight_message(pictures[index]), wording.SIGHT_TOKENS)
            if not note.sights or note.sights[-1].text != said.text:
                note.sights.append(Sight(pictures[index].at_s, said.text))

    async def _ask(self, message: Sequence[Event], max_tokens: int) -> out_of_band.Said:
        return await self._model.use(
            lambda link, answers: answers.answer(link, message, max_tokens)
        )

    async def _digest(self, *, all_of_them: bool = False) -> None:
        """Put what no longer fits into one answer into digests."""
        size = sum(len(notes.written(note)) for note in self._undigested)
        if size <= self._room_chars and not (all_of_them and self.report.digests):
            return
        for group in notes.groups(self._undigested, self._room_chars):
            await self._digest_of(
                group[0].part.start_s, group[-1].part.end_s, wording.digest_message(group)
            )
        self._undigested.clear()

    async def _digest_of(self, start_s: float, end_s: float, message: Sequence[Event]) -> None:
        try:
            said = await self._ask(message, wording.DIGEST_TOKENS)
        except AnswerFailed as failed:
            self._remark(f"no digest of a part of the notes: {failed}")
            return
        self.report.digests.append(Digest(start_s, end_s, said.text))

    # --- answers ----------------------------------------------------------------------------------

    async def _answers(self) -> None:
        report = self.report
        whole = sum(len(notes.written(note)) for note in report.notes) <= self._room_chars
        if not whole:
            await self._digest(all_of_them=True)
            await self._condense()
        for question in self._options.questions:
            self._observer.answering(question)
            answer = await self._answer(question, [] if whole else report.digests)
            report.answers.append(answer)
            self._observer.answered(answer)

    async def _condense(self) -> None:
        """Digests of digests, until they leave room for notes."""
        report = self.report
        room = self._room_chars * DIGESTS_SHARE
        while sum(len(str(d)) for d in report.digests) > room and len(report.digests) > 1:
            held, report.digests = report.digests, []
            for at in range(0, len(held), DIGESTS_AT_ONCE):
                group = held[at : at + DIGESTS_AT_ONCE]
                await self._digest_of(
                    group[0].start_s, group[-1].end_s, wording.condense_message(group)
                )

    async def _answer(self, question: str, digests: Sequence[Digest]) -> Answered:
        began_s = time.monotonic()
        report = self.report
        room = self._room_chars
        while True:
            left = room - sum(len(str(digest)) for digest in digests)
            read_ = notes.chosen(
                question,
                report.notes,
                left,
                report.plan.start_s,
                report.plan.end_s,
                few=bool(self._sees_labels),
            )
            message = wording.question_message(question, read_, digests, is_whole=report.is_whole)
            spans = [(note.part.start_s, note.part.end_s) for note in read_]
            try:
                said = await self._ask(message, wording.ANSWER_TOKENS)
            except AnswerFailed as failed:
                if failed.is_too_long and room > ROOM_CHARS_MIN:
                    room //= 2
                    continue
                took_s = time.monotonic() - began_s
                return Answered(question, "", "failed", spans, took_s, error=str(failed))
            took_s = time.monotonic() - began_s
            return Answered(question, said.text, said.status, spans, took_s, said.usage)

    def _remark(self, sentence: str) -> None:
        self.report.remarks.append(sentence)
        self._observer.remark(sentence)


def _nothing(facts: Facts, options: WatchOptions) -> NothingToSee:
    """No part has anything, not even a loss."""
    wanted = [*["pictures"] * options.see, *["sound"] * options.hear]
    missing = f"has no {' or '.join(wanted)} that can be decoded"
    hint = "" if options.see or facts.video is None else "; it has pictures: leave out --no-frames"
    return NothingToSee(str(facts.path), missing + hint)


def peak_bytes() -> int:
    """Of this process. Not `getrusage`, which counts what its parent had before it started."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _next(materials: Iterator[Material]) -> Material | None:
    return next(materials, None)
