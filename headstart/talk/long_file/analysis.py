"""Looks at a recording part by part, and answers questions about it.

    reader (a thread) ─▶ transcription: lines ─▶ model: summary ─▶ note ─▶ … ─▶ answers
    └─── part k + 1 is read and heard ───┘  └ while part k is summarised ┘

Held in memory: at most three parts, and the notes. The work is bounded by the plan; a file that
ends sooner ends it, and so does `stop`: then the questions are answered from what is known.

"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from headstart.gateway.errors import ServerRefused, TalkError
from headstart.gateway.runtime import tasks
from headstart.talk.connection.address import realtime_url
from headstart.talk.connection.session import ClientSession, Event, another_model
from headstart.talk.long_file import out_of_band, prompts, transcription
from headstart.talk.long_file.file_info import FileInfo, NothingToSee, read_info, within
from headstart.talk.long_file.frame_choice import FrameChooser
from headstart.talk.long_file.notes import Caption, Note
from headstart.talk.long_file.out_of_band import AnswerFailed, OutOfBandAnswers, Reply
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.picture_sizes import (
    PICTURE_TOKENS,
    PictureSizes,
    fitted,
    longer_side_px,
)
from headstart.talk.long_file.question_answering import QuestionAnswering
from headstart.talk.long_file.reader import PartMedia, ReadingStopped, read
from headstart.talk.long_file.report import AnalysisObserver, AnalysisOptions, Report, Stop
from headstart.talk.long_file.retried_session import RetriedSession
from headstart.talk.long_file.transcription import Line, Transcription
from headstart.talk.long_file.video_reader import Picture
from headstart.talk.media.times import clock

LABEL_TOKENS = 32
"""A model that reads fewer tokens of a picture sees one thing in it (`small`: its label), and so
does one whose server reads pictures for it. It is shown one picture at a time, reads no earlier
summaries, which it would repeat, and fewer notes."""
LABELLED_PICTURES = 4
"""Pictures of a part that such a model is shown, on average."""
LABEL_ROOM_CHARS = 2400


async def analyse(
    file: Path | FileInfo,
    url: str,
    options: AnalysisOptions,
    observer: AnalysisObserver,
    stop: Stop | None = None,
) -> Report:
    """Look at a file through the server at `url` and answer the questions. The header of a
    `FileInfo` is not read again. Raises `MediaError`s, and `TalkError`s of a server that cannot be
    reached at all; one that goes away later ends the report, which says so (`Report.error`)."""
    info = file if isinstance(file, FileInfo) else await asyncio.to_thread(read_info, file)
    start_s, end_s = within(info, options.from_s, options.to_s)
    plan = Plan(start_s, end_s, options.part_s, options.overlap_s)
    observer.planned(info, plan)
    analysis = _Analysis(Report(info, plan), url, options, observer, stop or Stop())
    try:
        await analysis.run()
    finally:
        await analysis.close()
    return analysis.report


class _Analysis:
    def __init__(
        self,
        report: Report,
        url: str,
        options: AnalysisOptions,
        observer: AnalysisObserver,
        stop: Stop,
    ) -> None:
        self.report = report
        self._options, self._observer, self._stop = options, observer, stop
        self._media = read(
            report.info,
            report.plan,
            hear=options.hear,
            see=options.see,
            find_scenes=options.sampler == "scene",
            stopped=stop.asked.is_set,
        )
        self._chooser = FrameChooser(options.sampler, options.pictures, options.part_s)
        self._sizes = PictureSizes(PICTURE_TOKENS * options.pictures)
        self._began_s = time.monotonic()
        self._cannot_hear = False
        self._sees_labels: bool | None = None  # not known before the first picture
        self._answering = QuestionAnswering(self._ask, report, self._remark, options.room_chars)
        self._transcription: RetriedSession[Transcription] = RetriedSession(
            realtime_url(url, options.model, transcription.KIND),
            options.api_key,
            Transcription,
            transcription.SETTINGS,
            transcription.GATEWAY,
            observer.away,
            options.retry_for_s,
        )
        self._model: RetriedSession[OutOfBandAnswers] = RetriedSession(
            realtime_url(url, options.model),
            options.api_key,
            OutOfBandAnswers,
            out_of_band.settings(prompts.INSTRUCTIONS),
            out_of_band.GATEWAY,
            observer.away,
            options.retry_for_s,
        )

    async def close(self) -> None:
        self._stop.asked.set()  # the thread that reads ends with the frame at hand
        await self._close_sessions()

    async def _close_sessions(self) -> None:
        await asyncio.gather(self._transcription.close(), self._model.close())

    async def run(self) -> None:
        """Parts, then answers."""
        report = self.report
        try:
            report.stopped = not await self._unless(self._stop.asked, self._parts())
            if report.stopped:
                # The server would go on with the part at hand, and the answers would wait for it.
                await self._close_sessions()
            if not report.notes and not report.stopped:
                raise _nothing(report.info, self._options)
            self._stop.asked.set()  # from here on the next one ends the answers
            if report.notes:
                answers = self._answering.answer_all(self._options.questions, self._observer)
                await self._unless(self._stop.at_once, answers)
        except TalkError as error:
            if not report.notes:
                raise
            report.error = str(error)
        report.model = self._model.model
        report.took_s = time.monotonic() - self._began_s

    async def _unless(self, stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
        """Do `work` to its end, or until `stop`. Whether it came to its end."""
        task = tasks.awaited(work, "analysis")
        stopped: asyncio.Task[bool] = tasks.awaited(stop.wait(), "stop")
        both: tuple[asyncio.Task[Any], ...] = (task, stopped)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = task.done()
            for each in both:
                each.cancel()
            results = await asyncio.gather(task, stopped, return_exceptions=True)
        if ended and isinstance(results[0], ReadingStopped):
            return False
        if ended and isinstance(results[0], BaseException):
            raise results[0]
        return ended

    # --- parts ------------------------------------------------------------------------------------

    async def _parts(self) -> None:
        """One part is read and heard while the one before is summarised."""
        ahead = tasks.awaited(self._read_and_hear(0), "part")
        try:
            while (found := await ahead) is not None:
                media, lines = found
                ahead = tasks.awaited(self._read_and_hear(media.part.index + 1), "part")
                await self._note(media, lines)
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def _read_and_hear(self, index: int) -> tuple[PartMedia, list[Line]] | None:
        self._observer.doing("reads", index)
        media = await asyncio.to_thread(_next, self._media)
        if media is None:
            return None
        if self._options.paced:
            due_s = self._began_s + media.part.end_s - self.report.plan.start_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        for loss in media.losses:
            self.report.losses.append(loss)
            self._observer.damaged(loss)
        return media, await self._hear(media)

    async def _hear(self, media: PartMedia) -> list[Line]:
        if not media.pcm or self._cannot_hear:
            return []
        self._observer.doing("hears", media.part.index)
        reason: str | None = None

        async def work(session: ClientSession, heard: Transcription) -> list[Line]:
            nonlocal reason
            lines = await heard.hear(session, media.part, media.pcm)
            reason = heard.cannot
            return lines

        try:
            lines = await self._transcription.use(work)
        except ServerRefused as refused:
            lines, reason = [], str(refused)
        except AnswerFailed as failed:
            span = f"{clock(media.part.start_s)}-{clock(media.part.end_s)}"
            self._remark(f"what is said in {span} was not written down: {failed}")
            # Its clock may not count the sound that it refused: the next part has a session anew.
            await self._transcription.close()
            return []
        if reason is not None:
            self._cannot_hear = True
            self._remark(
                f"the server writes down nothing that is said ({reason}): its model gets "
                "the sound itself"
            )
        return lines

    async def _note(self, media: PartMedia, lines: Sequence[Line]) -> None:
        """Summarise a part. One that the server cannot read leaves a note without a summary."""
        began_s = time.monotonic()
        part = media.part
        note = Note(part, heard=list(lines), sampled=len(media.pictures))
        sound = media.pcm if self._cannot_hear else b""
        if media.pictures or lines or sound:
            self._observer.doing("looks at", part.index)
            try:
                await self._look(note, media, sound)
            except AnswerFailed as failed:
                self._remark(f"{note.when} was not summarised: {failed}")
        note.took_s = time.monotonic() - began_s
        self.report.notes.append(note)
        self.report.took_s = time.monotonic() - self._began_s
        self._observer.noted(note, self.report)
        await self._answering.take(note)

    async def _look(self, note: Note, media: PartMedia, sound: bytes) -> None:
        """Let the model see a part, in the way that suits it. Raises `AnswerFailed`."""
        if media.pictures and self._sees_labels is None:
            await self._find_out_what_it_sees(media.pictures[0])
        pictures = self._chooser.choose(media.pictures)
        note.shown_s = [picture.at_s for picture in pictures]
        if self._sees_labels:
            await self._caption(note, pictures)
            return
        reply = await self._summary(note, pictures, sound)
        note.seen, note.usage = reply.text, reply.usage

    async def _summary(self, note: Note, pictures: Sequence[Picture], sound: bytes) -> Reply:
        """Of a part, from pictures as large as the model can read so many."""
        before = self.report.notes[-prompts.REMEMBERED :]
        while True:
            side_px = self._sizes.side_px(len(pictures))
            shown = await asyncio.to_thread(fitted, pictures, side_px)
            message = prompts.part_message(note.part, before, shown, note.heard, sound)
            try:
                reply = await self._ask(message, prompts.SUMMARY_TOKENS)
            except AnswerFailed as failed:
                # By the size sent: smaller recordings are not enlarged to `side_px`.
                sent_px = longer_side_px(shown[0]) if pictures else 0
                if failed.is_too_long and self._sizes.refuse(sent_px):
                    continue
                raise
            tokens = _picture_tokens(reply)
            if pictures and tokens:
                self._sizes.observe(longer_side_px(shown[0]), tokens / len(pictures))
            note.side_px = side_px if pictures else None
            return reply

    async def _find_out_what_it_sees(self, first: Picture) -> None:
        reply = await self._ask(prompts.caption_message(first), prompts.CAPTION_TOKENS)
        tokens = _picture_tokens(reply)
        has_few = tokens is not None and 0 < tokens < LABEL_TOKENS
        if tokens:
            self._sizes.observe(longer_side_px(first), tokens)
        self._sees_labels = reply.read is not None or has_few
        if self._sees_labels:
            options = self._options
            pictures = min(LABELLED_PICTURES, options.pictures)
            self._chooser = FrameChooser(options.sampler, pictures, options.part_s)
            self._answering.few_notes = True
            self._answering.room_chars = min(self._options.room_chars, LABEL_ROOM_CHARS)

    async def _caption(self, note: Note, pictures: Sequence[Picture]) -> None:
        for picture in pictures:
            reply = await self._ask(prompts.caption_message(picture), prompts.CAPTION_TOKENS)
            lines = reply.read[0] if reply.read else ()
            if lines is None:
                self._remark(f"what is written at {clock(picture.at_s)} was not read")
            caption = Caption(picture.at_s, reply.text, lines or ())
            if not note.captions or not note.captions[-1].shows_the_same(caption):
                note.captions.append(caption)

    async def _ask(self, message: Sequence[Event], max_tokens: int) -> Reply:
        reply = await self._model.use(
            lambda session, answers: answers.answer(session, message, max_tokens)
        )
        if self.report.model is None:
            self.report.model = self._model.model
            remark = another_model(self._options.model, self._model.model)
            if remark is not None:
                self._remark(remark)
        return reply

    def _remark(self, sentence: str) -> None:
        self.report.remarks.append(sentence)
        self._observer.remark(sentence)


def _picture_tokens(reply: Reply) -> int | None:
    """Of the pictures that were read for it. None: the server does not count them."""
    details: Event = (reply.usage or {}).get("input_token_details") or {}
    return details.get("image_tokens")


def _nothing(info: FileInfo, options: AnalysisOptions) -> NothingToSee:
    """No part has anything, not even a loss."""
    wanted = [*["pictures"] * options.see, *["sound"] * options.hear]
    missing = f"has no {' or '.join(wanted)} that can be decoded"
    hint = "" if options.see or info.video is None else "; it has pictures: leave out --no-frames"
    return NothingToSee(str(info.path), missing + hint)


def _next(media: Iterator[PartMedia]) -> PartMedia | None:
    return next(media, None)
