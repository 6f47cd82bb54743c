"""Passes of the speech recogniser over the sessions' sound.

A pass takes the next sound of one or more sessions, or it is the final pass over one utterance,
which a `Hush` or an `EndSpeech` needs before it can be carried out. Sound right before such a
command has no pass of its own: the final one hears it. While a pass is under way its sessions'
further commands wait.

Within the engine's steps a pass runs in pieces, one a step (`RecognizesInPieces`). Whatever is due
before the pass goes between them: by `command_queue`'s deadlines these are turns that end and
answers that are asked for, not other people's chunks, which come later and are due later. So an end
of speech waits for one piece at most, and never for a part of somebody's long turn that is heard
again. A pass that was left goes on when it is due first; there is at most one for each session.

With a `Worker` a pass runs in a thread beside the engine's steps: the decoder goes on for all
sessions meanwhile, and a core that one of the two leaves idle is the other's. Then one pass runs at
a time, and whatever else needs the recogniser waits too. It leaves the thread between two pieces
for what is due sooner, and goes on when it is due first, as within the steps; nothing queues in the
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from headstart.engine import api
from headstart.engine.errors import EngineError
from headstart.engine.interfaces import Pcm, Recognition, RecognizesInPieces, SpeechRecognizer
from headstart.engine.session.session import Session
from headstart.engine.session.utterance import AudioBatch


@dataclass(frozen=True, slots=True)
class PassSharing:
    """How many sessions' sounds share a pass: one in every `one_in` that wait, at most `most`."""

    most: int = 1
    one_in: int = 1

    def of(self, waiting: int) -> int:
        """Of so many sounds, those that share the next pass; at least one."""
        return max(1, min(self.most, waiting // self.one_in))


class Worker(Protocol):
    """Runs functions one after another in a thread beside the engine's steps."""

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Begin. `fileno` becomes readable when the function has ended."""
        ...

    def computing(self) -> AbstractContextManager[None]:
        """Within it a piece of work is done, in the thread."""
        ...

    def acknowledge(self) -> None:
        """Make `fileno` unreadable until another function has ended."""
        ...

    def fileno(self) -> int: ...

    def close(self) -> None:
        """Wait for the function that runs; begin no other."""
        ...


Work = Generator[None, None, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A pass that has begun. `work`: what is left of it; `apply` takes its result in, on the
    engine's thread. `begun_due_ns`: of what began it."""

    sessions: frozenset[Session]
    begun_due_ns: int
    work: Work
    apply: Callable[[Future[Any]], None]

    @property
    def due_ns(self) -> int:
        """A pass is as urgent as what its sessions want next."""
        behind = (session.commands.due_ns for session in self.sessions if session.commands)
        return min((self.begun_due_ns, *behind))


class RecognitionPasses:
    """Begins passes and takes their results in.

    `is_open`: whether a session has not been closed meanwhile. `restore`: brings its K/V back into
    the cache. `carry_out`: carries out the command whose final pass is done, or which failed.
    """

    def __init__(
        self,
        recognizer: SpeechRecognizer,
        worker: Worker | None,
        clock: Callable[[], int],
        is_open: Callable[[Session], bool],
        restore: Callable[[Session], None],
        carry_out: Callable[[Session, api.Command, EngineError | None], None],
    ) -> None:
        self._recognizer, self._worker, self._clock = recognizer, worker, clock
        self._is_open, self._restore, self._carry_out = is_open, restore, carry_out
        self._under_way: list[Pass] = []
        self._running: tuple[Pass, Future[Any]] | None = None  # in the worker
        self._leaves = False  # whether that one is to leave the thread

    @property
    def is_beside(self) -> bool:
        """Whether passes run beside the steps."""
        return self._worker is not None

    @property
    def is_under_way(self) -> bool:
        return bool(self._under_way)

    @property
    def is_between_pieces(self) -> bool:
        """Whether a pass within the steps has been left for now."""
        return self.is_under_way and not self.is_beside

    def is_of(self, session: Session) -> bool:
        """Whether a pass under way is this session's."""
        return any(session in each.sessions for each in self._under_way)

    def admits(self, session: Session) -> bool:
        """Whether the session's next command can be carried out before the passes have ended."""
        if not self._under_way:
            return True
        if self.is_of(session):
            return False
        if self._running is None or not session.next_is_heard:
            return True
        if session.commands.due_ns < self._running[0].due_ns:
            self._leaves = True
        return False

    def fileno(self) -> int | None:
        return None if self._worker is None else self._worker.fileno()

    def close(self) -> None:
        self._leaves = True
        if self._worker is not None:  # first: what runs in the thread cannot be closed from here
            self._worker.close()
        for each in self._under_way:
            each.work.close()
        self._under_way.clear()

    def collect(self) -> bool:
        """Take in the result of a pass that has ended. Whether there was one."""
        if self._worker is None:
            return False
        # First, and always: a result is there before `fileno` is readable, so it may have been
        # taken already, and the engine would never sleep again.
        self._worker.acknowledge()
        if self._running is None or not self._running[1].done():
            return False
        (begun, future), self._running = self._running, None
        if future.exception() is None and not future.result().done():
            return True  # it has left the thread between two pieces
        self._under_way.remove(begun)
        begun.apply(future if future.exception() is not None else future.result())
        return True

    def go_on(self, before_ns: int | None) -> frozenset[Session]:
        """Go on with the pass that is due first, if it is due no later than `before_ns` (None: than
        ever): within the steps by a piece. Whose pass it is; empty if there is none, or it is not
        due yet, or one runs beside the steps."""
        if not self._under_way or self._running is not None:
            return frozenset()
        first = min(self._under_way, key=lambda each: each.due_ns)
        if before_ns is not None and first.due_ns > before_ns:
            return frozenset()
        self._run(first)
        return first.sessions

    def begin_sound(self, sessions: Sequence[Session]) -> None:
        """Begin a pass over the next audio of `sessions`."""
        began_ns = self._clock()
        due_ns = min(session.commands.due_ns for session in sessions)
        batches: list[tuple[Session, AudioBatch]] = []
        for session in sessions:
            self._restore(session)
            try:
                batches.append((session, session.next_audio_batch(began_ns)))
            except EngineError as error:
                session.report(error, about="audio")
        if not batches:
            return
        states = [batch.utterance.state for _, batch in batches]
        sounds = [batch.pcm() for _, batch in batches]

        def apply(result: Future[Any]) -> None:
            self._take_sound(batches, result, began_ns)

        work = self._recognize(states, sounds)
        self._begin([session for session, _ in batches], due_ns, work, apply)

    def begin_final(self, session: Session) -> None:
        """Begin the final pass that the session's next command needs, over the sound before it too;
        then carry out that one."""
        is_audio, due_ns = session.commands.next_is_audio, session.commands.due_ns
        batch = session.next_audio_batch(self._clock()) if is_audio else None
        self._finish(session, session.commands.pop(), due_ns, batch)

    def _finish(
        self, session: Session, command: api.Command, due_ns: int, batch: AudioBatch | None
    ) -> None:
        state = session.unfinished_state
        pcm = None if batch is None else batch.pcm()
        began_ns = self._clock()

        def apply(result: Future[Any]) -> None:
            if not self._is_open(session):
                return
            self._restore(session)
            try:
                words = result.result()
            except EngineError as error:
                if batch is None:
                    known = _keep_live_words(session, command, error)
                    self._carry_out(session, command, None if known else error)
                else:  # as in any other pass, but the turn ends
                    _skip(session, batch, error)
                    self._finish(session, command, due_ns, None)
                return
            try:
                session.add_final_words(words, began_ns, batch)
            except EngineError as error:
                self._carry_out(session, command, error)
            else:
                self._carry_out(session, command, None)

        self._begin([session], due_ns, self._finish_hearing(state, pcm), apply)

    def _recognize(self, states: Sequence[Any], sounds: Sequence[Pcm]) -> Work:
        if isinstance(self._recognizer, RecognizesInPieces):
            return self._recognizer.recognize_in_pieces(states, sounds)
        return _one_piece(lambda: self._recognizer.recognize_batch(states, sounds))

    def _finish_hearing(self, state: Any, pcm: Pcm | None) -> Work:
        if isinstance(self._recognizer, RecognizesInPieces):
            return self._recognizer.finish_in_pieces(state, pcm)
        return _one_piece(lambda: self._recognizer.finish(state, pcm))

    def _begin(
        self,
        sessions: Sequence[Session],
        due_ns: int,
        work: Work,
        apply: Callable[[Future[Any]], None],
    ) -> None:
        begun = Pass(frozenset(sessions), due_ns, work, apply)
        self._under_way.append(begun)
        self._run(begun)

    def _run(self, begun: Pass) -> None:
        """Go on with a pass: in the worker, or by a piece. Forget it if nobody is left who wants
        it."""
        if not any(map(self._is_open, begun.sessions)):
            begun.work.close()
            self._under_way.remove(begun)
        elif self._worker is None:
            result: Future[Any] = Future()
            _run_piece(begun.work, result)
            if result.done():
                self._under_way.remove(begun)
                begun.apply(result)
        else:
            assert self._running is None, "one pass at a time"
            self._leaves = False
            worker = self._worker
            self._running = begun, worker.submit(lambda: self._pieces_of(begun.work, worker))

    def _pieces_of(self, work: Work, worker: Worker) -> Future[Any]:
        """In the worker: pieces of a pass until its end, which the result returned then has, or
        until it is to leave."""
        result: Future[Any] = Future()
        while True:
            with worker.computing():
                _run_piece(work, result)
            if result.done() or self._leaves:
                return result

    def _take_sound(
        self,
        batches: Sequence[tuple[Session, AudioBatch]],
        result: Future[Any],
        began_ns: int,
    ) -> None:
        total_samples = max(sum(batch.samples for _, batch in batches), 1)
        try:
            heard: Sequence[Recognition] = result.result()
        except EngineError as error:
            for session, batch in batches:
                if self._is_open(session):
                    _skip(session, batch, error)
            return
        for (session, batch), words in zip(batches, heard, strict=True):
            if not self._is_open(session):
                continue
            self._restore(session)  # it may have been idle for the length of the pass
            try:
                session.add_recognition(batch, words, began_ns, batch.samples / total_samples)
            except EngineError as error:
                session.report(error, about="audio")


def _keep_live_words(session: Session, command: api.Command, error: EngineError) -> bool:
    """Whether a turn whose final pass failed ends with the words that were heard live: an answer to
    these is worth more than an error. The failure is reported as one of its sound."""
    utterance = session.conversation.utterance
    if not isinstance(command, api.EndSpeech) or utterance is None or not utterance.says_something:
        return False
    session.report(error, about="audio")
    utterance.finished = True
    return True


def _skip(session: Session, batch: AudioBatch, error: EngineError) -> None:
    """Report that the pass over `batch` failed."""
    session.report(error, about="audio")
    batch.skip()
    session.conversation.forget_unused()  # embeddings may have filled the table


def _one_piece(work: Callable[[], Any]) -> Work:
    yield from ()
    return work()


def _run_piece(work: Work, result: Future[Any]) -> None:
    """The next piece; set `result` if that was the last one. Only an `EngineError` is a result."""
    try:
        next(work)
    except StopIteration as ended:
        result.set_result(ended.value)
    except EngineError as error:
        work.close()
        result.set_exception(error)
