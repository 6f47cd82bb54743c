"""The engine: many sessions, one backend that decodes. A loop calls `Engine.step`.

A step does one heavy piece of front-end work (a piece of a recogniser's pass, image encoding),
chosen by earliest deadline over all sessions, and one step of the backend. With the local backend
that is one decoder step: every answer advances by one token, and the rest of the token budget
prefills. Between the pieces of a pass the backend has its step only for an answer without a first
token. So a first token and an end of speech wait for one piece, an answer for one pass and the more
urgent ones, and recognition for one decoder step for each of its passes and each such answer.
Chunks of several sessions that wait at the same time share one pass, by `heard_together`. With a
`recognition_worker` recognition runs beside the steps
(`headstart.engine.session.recognition`), and neither waits for the other.

Pictures may be encoded beside the steps (`headstart.engine.interfaces.PictureEncoding`). Then two
kinds of sessions wait in two queues: those whose next command needs a picture encoded, in the
encoder's, by its own budget; all others here. Neither holds up the other.

Under overload, in this order: answers and final passes go first; a session's late chunks are
recognised together (`engine.session.command_queue`); tentative words are not prefilled
(`headstart.engine.session.utterance`). For lack of memory, see
`headstart.engine.scheduling.admission`.

No sockets and no clock: commands come in by `receive`, events go out by `emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headstart.engine import api
from headstart.engine.chat.accounting import KvAccounting
from headstart.engine.errors import EngineError, SessionRefused, UnknownSession
from headstart.engine.interfaces import ModelServices
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.admission import AdmissionController
from headstart.engine.scheduling.step_log import StepLog, StepWork
from headstart.engine.session.command_queue import Waiting
from headstart.engine.session.recognition import PassSharing, RecognitionPasses, Worker
from headstart.engine.session.session import Emit, NewStream, Session

# Commands that may hear sound or encode pictures: at most one of them per step. The end of a turn
# is none, since its final pass is over by then: the answer that was prepared for it goes out before
# the next decoder step. Neither is the question for it, unless it brings items of its own.
_HEAVY = (api.ContinueSpeech, api.Frame, api.AddItem, api.Clip)


class Backend(Protocol):
    """Prefills the sessions' pending tokens and decodes their answers (`engine.backends`)."""

    def step(self, sessions: Sequence[Session]) -> StepWork | None:
        """Do what can be done now, without waiting. None if that is nothing."""
        ...

    def move(self, move: KvMove) -> None:
        """Carry out an eviction's move in memory."""
        ...

    def admit(self, session: Session) -> None:
        """Take a new session. Raises `SessionRefused`."""
        ...

    def remove(self, session: str) -> None:
        """A session was closed, or was not admitted after all."""
        ...

    def status(self) -> Sequence[api.LlmServerStatus]:
        """The LLM servers, if it has any."""
        ...

    def close(self) -> None:
        """Stop all work. Called once, after the last session was closed."""
        ...

    def server_totals(self) -> api.LlmServerTotals | None:
        """What an LLM server was asked; None if none decodes."""
        ...

    def fileno(self) -> int | None:
        """A file descriptor that is readable when `step` has something to do that no command
        brought; None if there is never such a thing."""
        ...


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts of an engine. `clock` is `time.monotonic_ns`; `heard_together`: how
    many sessions share a pass of the recogniser; `recognition_worker`: None runs recognition within
    the steps."""

    services: ModelServices
    pool: BlockPool
    backend: Backend
    admission: AdmissionController
    new_stream: NewStream
    clock: Callable[[], int]
    heard_together: PassSharing = field(default_factory=PassSharing)
    recognition_worker: Worker | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens that sessions have forgotten, and that were drawn before an endpoint was sure."""

    evicted: int = 0
    speculated_kept: int = 0
    speculated_wasted: int = 0

    def plus(self, session: Session) -> Totals:
        return Totals(
            self.evicted + session.stream.evicted_tokens,
            self.speculated_kept + session.speculated_kept,
            self.speculated_wasted + session.speculated_wasted,
        )


class Engine:
    """Sessions by name. Everything a peer can get wrong is answered by a `Failed` event."""

    def __init__(self, parts: EngineParts, emit: Emit) -> None:
        self.sessions: dict[str, Session] = {}
        self.parts = parts
        self._emit = emit
        self._admission = parts.admission
        self._reported_level = api.Level.CALM
        self.steps = StepLog()
        self._served: set[str] = set()  # sessions whose commands this step carries out
        self._gone = Totals()
        self._passes = RecognitionPasses(
            parts.services.recognizer,
            parts.recognition_worker,
            parts.clock,
            lambda session: self.sessions.get(session.name) is session,
            self._restore,
            self._carry_out,
        )

    # --- commands --------------------------------------------------------------------------------

    def receive(self, command: api.Command) -> None:
        """Take one command of any session. Never raises for what the peer did wrong."""
        assert not isinstance(command, api.Ping | api.Leave), "these are answered by the link"
        session = self.sessions.get(command.session)
        waiting_bytes = session.commands.picture_bytes if session is not None else 0
        try:
            self._receive(command)
        except EngineError as error:
            _report(self._emit, command, error)
        if session is not None:
            given_up = waiting_bytes + api.picture_bytes(command) - session.commands.picture_bytes
            self._report_consumed(session, given_up)

    def _report_consumed(self, session: Session, num_bytes: int) -> None:
        """Tell the gateway that it may send more picture bytes."""
        if num_bytes:
            self._emit(api.ImagesConsumed(session.name, num_bytes))

    def _receive(self, command: api.Command) -> None:
        match command:
            case api.Ping() | api.Leave():
                raise AssertionError("unreachable: see receive")
            case api.Open():
                self._open(command)
            case api.Close():
                self._close(command.session)
            case api.Cancel():
                self._session(command.session).cancel(command.generation)
            case _:
                now_ns = self.parts.clock()
                session = self._session(command.session)
                waiting = session.commands.push(command, now_ns)
                self._begin_encoding(session, waiting, _pictures(command))
                self._admission.touch(command.session, now_ns)

    def _begin_encoding(
        self, session: Session, waiting: Waiting, images: Sequence[api.Image]
    ) -> None:
        """Begin to encode pictures of a waiting command beside the steps."""
        encoding, live = self.parts.services.encoding, isinstance(waiting.command, api.Frame)
        waiting.refused = ()
        if encoding is None or session.conversation.only_hears:
            return
        if not live and self.parts.services.stills is not None:
            return  # how closely they are looked at depends on the words beside them
        begun, due_ns = list(waiting.encoding), waiting.due_ns
        name, domain = session.name, session.stream.share_domain
        refused: list[api.Image] = []
        for image in images:
            picture = encoding.begin(image, name, domain, due_ns, live=live)
            if picture is None:
                refused.append(image)
            else:
                begun.append(picture)
        waiting.encoding, waiting.refused = begun, refused

    def _try_refused_again(self) -> None:
        """Begin to encode pictures whose turn has come, and which were too many when they came:
        within a step they would hold up all sessions."""
        for session in self.sessions.values():
            waiting = session.commands.front if session.commands else None
            if waiting is not None and waiting.refused and waiting.is_ready:
                before = len(waiting.refused)
                self._begin_encoding(session, waiting, waiting.refused)
                if len(waiting.refused) == before:
                    waiting.refused = ()  # there is no other way now

    def _open(self, command: api.Open) -> None:
        """Open a session. A name that is open already starts over: the gateway has lost it."""
        self._close(command.session)
        session = Session(
            command.session,
            self.parts.services,
            self.parts.new_stream,
            self.parts.backend.move,
            self._emit,
            self.parts.clock,
        )
        try:
            session.begin(command)
            self.parts.backend.admit(session)
            self._admission.admit(session, list(self.sessions.values()), self.parts.clock())
        except EngineError:
            session.close()
            self.parts.backend.remove(command.session)
            raise
        self.sessions[command.session] = session
        if self._reported_level:
            self._emit(api.Pressure(command.session, self._reported_level))

    def _close(self, name: str) -> None:
        session = self.sessions.pop(name, None)
        if session is not None:
            session.drop_speculation()
            self._gone = self._gone.plus(session)
            session.close()
            if self.parts.services.encoding is not None:
                self.parts.services.encoding.forget(name)
            self._admission.remove(name)
            self.parts.backend.remove(name)

    def _session(self, name: str) -> Session:
        if name not in self.sessions:
            raise UnknownSession(name)
        return self.sessions[name]

    def close_sessions(self) -> int:
        """Close all sessions: their gateway is gone. Returns how many there were."""
        names = list(self.sessions)
        for name in names:
            self._close(name)
        return len(names)

    def close(self) -> None:
        """Close all sessions, and what they were served by."""
        self.close_sessions()
        for beside in (self.parts.services.reader, self.parts.services.encoding):
            if beside is not None:
                beside.close()
        self._passes.close()
        self.parts.backend.close()

    # --- work ------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one step. False if there was nothing to do."""
        began_ns = self.parts.clock()
        self._served.clear()
        if self.parts.services.encoding is not None:
            self.parts.services.encoding.collect()
        worked = self._passes.collect()
        worked |= self._take_readings()
        worked |= self._carry_out_commands()
        decodes = not self._passes.is_between_pieces or self._awaits_first_token
        work = self.parts.backend.step(list(self.sessions.values())) if decodes else None
        for session in self.sessions.values():
            session.settle_traces()
        self.relieve_pressure()
        if worked or work is not None:
            self._log_step(work or StepWork(), began_ns)
        return worked or work is not None

    def _log_step(self, work: StepWork, began_ns: int) -> None:
        """What it took, for whom, and who still waits."""
        streams = work.streams
        served = {s.name for s in self.sessions.values() if not streams.isdisjoint(s.streams())}
        served |= self._served
        waiting = [
            s
            for s in self.sessions.values()
            if s.name not in served and not (s.at_rest and not self._passes.is_of(s))
        ]
        self.steps.add(
            self.parts.clock() - began_ns,
            sessions=len(served),
            queue=len(waiting),
            prefill_tokens=work.prefill_tokens,
            decode_tokens=work.decode_tokens,
        )

    def relieve_pressure(self) -> None:
        """Offload an idle session if the cache is nearly full; report changes of its level."""
        users, now_ns = list(self.sessions.values()), self.parts.clock()
        self._admission.offload_idle(users, now_ns)
        level = self._admission.update_level(users, now_ns)
        if level is not self._reported_level:
            self._reported_level = level
            for name in self.sessions:
                self._emit(api.Pressure(name, level))

    @property
    def wake_fds(self) -> tuple[int, ...]:
        """File descriptors that are readable when `step` has something to do that no command
        brought."""
        beside = (self.parts.services.reader, self.parts.services.encoding)
        found = [self.parts.backend.fileno(), self._passes.fileno()]
        found += [each.fileno() for each in beside if each]
        return tuple(fd for fd in found if fd is not None)

    @property
    def is_recognising(self) -> bool:
        """Whether a pass of the recogniser is under way beside the steps."""
        return self._passes.is_under_way

    @property
    def is_encoding(self) -> bool:
        """Whether all that a session waits for is a picture to be encoded."""
        return any(session.commands.is_blocked for session in self.sessions.values())

    @property
    def is_reading(self) -> bool:
        """Whether a picture of any session is being read, or waits for it."""
        return any(session.conversation.writing.is_reading for session in self.sessions.values())

    @property
    def awaits_reading(self) -> bool:
        """Whether an answer waits for what is being read in a picture."""
        return any(session.waits_for_reading() for session in self.sessions.values())

    @property
    def server_totals(self) -> api.LlmServerTotals | None:
        """See `Backend.server_totals`."""
        return self.parts.backend.server_totals()

    @property
    def admission(self) -> AdmissionController:
        return self._admission

    @property
    def pool(self) -> BlockPool:
        return self.parts.pool

    def check_accounting(self) -> None:
        """Assert that every block of the cache is free or owned by a session's stream."""
        streams = self._streams()
        self.pool.check_accounting([table for stream in streams for table in stream.tables])
        self._admission.host.check_accounting(
            [part for stream in streams for part in stream.offload_slot.offloaded]
        )

    def kv_accounting(self) -> KvAccounting:
        """Tokens and blocks in the cache by modality."""
        return KvAccounting.of(s for s in self._streams() if not s.offload_slot.offloaded)

    @property
    def totals(self) -> Totals:
        """Of all sessions since the engine started, those that are closed included."""
        totals = self._gone
        for session in self.sessions.values():
            totals = totals.plus(session)
        return totals

    @property
    def sessions_offloaded(self) -> int:
        return sum(
            bool(session.stream.offload_slot.offloaded) for session in self.sessions.values()
        )

    def _streams(self) -> list[Stream]:
        return [stream for session in self.sessions.values() for stream in session.streams()]

    @property
    def pending_prefill_tokens(self) -> int:
        return sum(session.stream.pending_ahead for session in self.sessions.values())

    def _take_readings(self) -> bool:
        """Add what the reader has read meanwhile to the sessions' conversations."""
        reader = self.parts.services.reader
        if reader is None:
            return False
        reader.collect()
        worked = False
        for session in self.sessions.values():
            if not session.conversation.writing.has_read:
                continue
            self._restore(session)  # it may be idle for long
            try:
                worked |= session.take_readings()
            except EngineError as error:
                session.report(error, about="frame")
        return worked

    def _ready(self) -> list[Session]:
        """Sessions with a command that can be carried out now."""
        self._try_refused_again()
        ready = (s for s in self.sessions.values() if s.commands and not s.commands.is_blocked)
        open_to = (session for session in ready if self._passes.admits(session))
        return [session for session in open_to if not session.waits_for_reading()]

    def _carry_out_commands(self) -> bool:
        """Carry out commands and go on with passes by deadline, up to and including the first that
        is heavy."""
        worked = False
        while True:
            waiting = sorted(self._ready(), key=lambda session: session.commands.due_ns)
            heard = self._passes.go_on(waiting[0].commands.due_ns if waiting else None)
            if heard:
                self._served.update(session.name for session in heard)
                return True
            if not waiting:
                return worked
            worked = True
            if self._recognise(waiting):
                if not self._passes.is_beside:
                    return True
                continue
            command = waiting[0].commands.pop()
            self._carry_out(waiting[0], command)
            if _is_heavy(command):
                return True

    def _recognise(self, waiting: Sequence[Session]) -> bool:
        """Begin the recogniser's pass that the first session's next command needs, if any."""
        first = waiting[0]
        if first.needs_final_pass:
            self._served.add(first.name)
            self._passes.begin_final(first)
        elif first.commands.next_is_audio:
            sounding = [s for s in waiting if s.commands.next_is_audio and not s.needs_final_pass]
            heard = sounding[: self.parts.heard_together.of(len(sounding))]
            self._served.update(session.name for session in heard)
            self._passes.begin_sound(heard)
        else:
            return False
        return True

    def _carry_out(
        self, session: Session, command: api.Command, error: EngineError | None = None
    ) -> None:
        """Carry out a command, or report that its final pass failed with `error`."""
        self._served.add(session.name)
        self._restore(session)
        try:
            if error is not None:
                raise error
            session.run(command)
        except EngineError as failure:
            _report(self._emit, command, failure)
        if self.parts.services.encoding is not None:
            self.parts.services.encoding.release(_pictures(command))
        self._report_consumed(session, api.picture_bytes(command))

    def _restore(self, session: Session) -> None:
        """Restore a session's K/V before work is done for it."""
        self._admission.restore(session, self.sessions.values(), self.parts.clock())

    @property
    def _awaits_first_token(self) -> bool:
        """Whether an answer, speculated ones included, waits for its first token."""
        return any(
            answer.wants_steps and not answer.tokens
            for session in self.sessions.values()
            for answer in session.answers()
        )


def _is_heavy(command: api.Command) -> bool:
    """Whether it may take more than a millisecond or two."""
    if isinstance(command, api.Respond):
        return command.items is not None
    return isinstance(command, _HEAVY)


def _pictures(command: api.Command) -> list[api.Image]:
    """The pictures that a command brings to the image encoder."""
    match command:
        case api.Frame():
            return [command.image]
        case api.AddItem():
            return [part for part in command.item.parts if isinstance(part, api.Image)]
        case _:
            return []


def _report(emit: Emit, command: api.Command, error: EngineError) -> None:
    """Report a failed command. For `Respond` that is a failed answer."""
    assert not isinstance(command, api.Ping | api.Leave)
    if isinstance(command, api.Respond):
        emit(
            api.Finished(
                session=command.session,
                generation=command.generation,
                reason=api.FinishReason.FAILED,
                text="",
                usage=api.Usage(),
                kv=api.KvStats(),
                code=error.code,
                message=error.public_message,
            )
        )
        return
    about = type(command).__struct_config__.tag
    ref_id = command.item_id if isinstance(command, api.RemoveItem | api.BeginSpeech) else ""
    ref_id = command.clip if isinstance(command, api.Clip) else ref_id
    ref_id = command.item.item_id if isinstance(command, api.AddItem) else ref_id
    retry_after_s = error.retry_after_s if isinstance(error, SessionRefused) else 0.0
    message = error.public_message
    emit(api.Failed(command.session, str(about), error.code, message, ref_id, retry_after_s))
