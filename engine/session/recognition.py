"""Passes of the speech recogniser over the sessions' sound, one at a time.

A pass takes the next sound of one or more sessions, or it is the final pass over one utterance,
which a `Hush` or an `EndSpeech` needs before it can be carried out. Sound right before such a
command has no pass of its own: the final one hears it. With a `Worker` a pass runs in
a thread beside the engine's steps: the decoder goes on for all sessions meanwhile, and a core that
one of the two leaves idle is the other's. Without one it runs within the step.

While a pass is under way its sessions' further commands wait, and so does whatever else needs the
recogniser. Who is next is decided when it ends, by deadline; so a pass delays a more urgent one by
its own length at most, and nothing queues in the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from headstart.engine import api
from headstart.engine.errors import EngineError
from headstart.engine.interfaces import Recognition, SpeechRecognizer
from headstart.engine.session.session import Session
from headstart.engine.session.utterance import AudioBatch


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


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass that has begun. `apply` takes its result in, on the engine's thread."""

    sessions: frozenset[Session]
    result: Future[Any]
    apply: Callable[[Future[Any]], None]


class RecognitionPasses:
    """Begins passes and takes their results in.

    `is_open`: whether a session has not been closed meanwhile. `restore`: brings its K/V back into
    the cache. `carry_out`: carries out the command whose final pass is done, or which failed.
    `heard`: is told of each pass over a session's chunks, and how many ns it took.
    """

    def __init__(
        self,
        recognizer: SpeechRecognizer,
        worker: Worker | None,
        clock: Callable[[], int],
        is_open: Callable[[Session], bool],
        restore: Callable[[Session], None],
        carry_out: Callable[[Session, api.Command, EngineError | None], None],
        heard: Callable[[Session, AudioBatch, int], None],
    ) -> None:
        self._recognizer, self._worker, self._clock = recognizer, worker, clock
        self._is_open, self._restore, self._carry_out = is_open, restore, carry_out
        self._heard = heard
        self._under_way: Pass | None = None

    @property
    def is_beside(self) -> bool:
        """Whether passes run beside the steps."""
        return self._worker is not None

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    def is_of(self, session: Session) -> bool:
        """Whether the pass under way is this session's."""
        return self._under_way is not None and session in self._under_way.sessions

    def admits(self, session: Session) -> bool:
        """Whether the session's next command can be carried out before the pass has ended."""
        if self._under_way is None:
            return True
        return session not in self._under_way.sessions and not session.next_is_heard

    def fileno(self) -> int | None:
        return None if self._worker is None else self._worker.fileno()

    def close(self) -> None:
        self._under_way = None
        if self._worker is not None:
            self._worker.close()

    def collect(self) -> bool:
        """Take in the result of a pass that has ended. Whether there was one."""
        if self._worker is None:
            return False
        # First, and always: a result is there before `fileno` is readable, so it may have been
        # taken already, and the engine would never sleep again.
        self._worker.acknowledge()
        ended = self._under_way
        if ended is None or not ended.result.done():
            return False
        self._under_way = None
        ended.apply(ended.result)
        return True

    def begin_sound(self, sessions: Sequence[Session], *, together: bool = False) -> None:
        """Begin a pass over the next audio of `sessions`; `together`: all that waits, as far as it
        came live, though it is not late."""
        began_ns = self._clock()
        batches: list[tuple[Session, AudioBatch]] = []
        for session in sessions:
            self._restore(session)
            try:
                batch = session.next_audio_batch(began_ns, together=together)
                batches.append((session, batch))
            except EngineError as error:
                session.report(error, about="audio")
        if not batches:
            return
        states = [batch.utterance.state for _, batch in batches]
        sounds = [batch.pcm() for _, batch in batches]

        def work() -> Sequence[Recognition]:
            return self._recognizer.recognize_batch(states, sounds)

        def apply(result: Future[Any]) -> None:
            self._take_sound(batches, result, began_ns)

        self._begin([session for session, _ in batches], work, apply)

    def begin_final(self, session: Session) -> None:
        """Begin the final pass that the session's next command needs, over the sound before it too;
        then carry out that one."""
        is_audio = session.commands.next_is_audio
        batch = session.next_audio_batch(self._clock()) if is_audio else None
        self._finish(session, session.commands.pop(), batch)

    def _finish(self, session: Session, command: api.Command, batch: AudioBatch | None) -> None:
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
                    self._carry_out(session, command, error)
                else:  # the sound is lost, as in any other pass, but the turn ends
                    session.report(error, about="audio")
                    session.conversation.forget_unused()
                    self._finish(session, command, None)
                return
            try:
                session.add_final_words(words, began_ns, batch)
            except EngineError as error:
                self._carry_out(session, command, error)
            else:
                self._carry_out(session, command, None)

        self._begin([session], lambda: self._recognizer.finish(state, pcm), apply)

    def _begin(
        self,
        sessions: Sequence[Session],
        work: Callable[[], Any],
        apply: Callable[[Future[Any]], None],
    ) -> None:
        assert self._under_way is None, "one pass at a time"
        if self._worker is None:
            apply(_done(work))
        else:
            self._under_way = Pass(frozenset(sessions), self._worker.submit(work), apply)

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
            for session, _ in batches:
                if self._is_open(session):
                    session.report(error, about="audio")
                    session.conversation.forget_unused()  # embeddings may have filled the table
            return
        took_ns = (self._clock() - began_ns) // len(batches)
        for (session, batch), words in zip(batches, heard, strict=True):
            if not self._is_open(session):
                continue
            self._heard(session, batch, took_ns)
            self._restore(session)  # it may have been idle for the length of the pass
            try:
                session.add_recognition(batch, words, began_ns, batch.samples / total_samples)
            except EngineError as error:
                session.report(error, about="audio")


def _done(work: Callable[[], Any]) -> Future[Any]:
    """The outcome of `work`, done here. Only an `EngineError` is kept."""
    future: Future[Any] = Future()
    try:
        future.set_result(work())
    except EngineError as error:
        future.set_exception(error)
    return future
