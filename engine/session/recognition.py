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
sessions meanwhile, and a core that one of the two leaves idle is the other's. Then there is one
pass at a time, and whatever else needs the recogniser waits too. Who is next is decided when it
ends, by deadline; so a pass delays a more urgent one by its own length at most, and nothing queues
in the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
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
    """A pass that has begun. `apply` takes its result in, on the engine's thread. `work`: what is
    left of it, within the steps; `result`: beside them. `begun_due_ns`: of what began it."""

    sessions: frozenset[Session]
    begun_due_ns: int
    work: Work
    result: Future[Any]
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
        busy = self.is_beside and session.next_is_heard
        return not busy and not self.is_of(session)

    def fileno(self) -> int | None:
        return None if self._worker is None else self._worker.fileno()

    def close(self) -> None:
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
        if not self._under_way or not self._under_way[0].result.done():
            return False
        ended = self._under_way.pop()
        ended.apply(ended.result)
        return True

    def go_on(self, before_ns: int | None) -> frozenset[Session]:
        """A piece of the pass that is due first, if it is due no later than `before_ns` (None: than
        ever). Whose pass it is; empty if there is none, or it is not due yet."""
        if not self.is_between_pieces:
            return frozenset()
        first = min(self._under_way, key=lambda each: each.due_ns)
        if before_ns is not None and first.due_ns > before_ns:
            return frozenset()
        self._run_piece(first)
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
        result: Future[Any] = Future()
        if self._worker is not None:
            assert not self._under_way, "one pass at a time"
            result = self._worker.submit(lambda: _all_of(work))
        begun = Pass(frozenset(sessions), due_ns, work, result, apply)
        self._under_way.append(begun)
        if self._worker is None:
            self._run_piece(begun)

    def _run_piece(self, begun: Pass) -> None:
        """Go on with a pass; take in its result if that is all, or forget it if nobody is left who
        wants it. Only an `EngineError` is a result."""
        if any(map(self._is_open, begun.sessions)):
            try:
                next(begun.work)
                return
            except StopIteration as ended:
                begun.result.set_result(ended.value)
            except EngineError as error:
                begun.result.set_exception(error)
        begun.work.close()
        self._under_way.remove(begun)
        if begun.result.done():
            begun.apply(begun.result)

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


def _all_of(work: Work) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return ended.value
