"""The local backend: one decoder step for all sessions at a time.

A step reads all weights, however few tokens it takes, and a chunk of speech brings two or three. So
where the recogniser runs between the steps and more sound waits for it, words wait a little
(`HOLD_NS`) for those of that sound and are prefilled with them, unless an answer is decoded or
a chunk would miss its deadline by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from headstart.engine import api
from headstart.engine.decoder.sampling import Draw, HostSampler, Sampled, StepSampler
from headstart.engine.errors import CacheFull, EngineError
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.admission import AdmissionController
from headstart.engine.scheduling.runner import StepResult
from headstart.engine.scheduling.scheduler import Plan, Request, Scheduler
from headstart.engine.scheduling.step_log import StepWork
from headstart.engine.session.generation import Answer
from headstart.engine.session.session import Session

_NO_DEADLINE_NS = 1 << 62
# How long words may wait while sound waits too: some three passes of the recogniser.
HOLD_NS = 120_000_000
# A chunk that is due sooner than this is prefilled at once; one that is late already may wait.
NEAR_NS = HOLD_NS + 80_000_000


class StepRunner(Protocol):
    """Carries out plans and moves (`headstart.engine.scheduling.runner.Runner`)."""

    def step(self, plan: Plan) -> StepResult: ...
    def move(self, move: KvMove) -> None: ...


class LocalBackend:
    """`headstart.engine.engine.Backend` over our decoder. `end_token`: closes a user's message;
    None for a template that closes none. `marks`: the tokens that end a sentence. `sampler`: where
    logits are sampled; by default on the host. `clock` is `time.monotonic_ns`. `holds`: whether
    words wait for sound that waits, as described above."""

    def __init__(
        self,
        runner: StepRunner,
        scheduler: Scheduler,
        admission: AdmissionController,
        end_token: int | None,
        clock: Callable[[], int],
        marks: frozenset[int] = frozenset(),
        sampler: StepSampler | None = None,
        *,
        holds: bool = False,
    ) -> None:
        self.runner = runner
        self._scheduler = scheduler
        self._admission = admission
        self._end_token = end_token
        self._clock = clock
        self._marks = marks
        self._sampler = sampler or HostSampler()
        self._holds = holds
        self._held_since_ns: int | None = None

    def move(self, move: KvMove) -> None:
        self.runner.move(move)

    def admit(self, session: Session) -> None:
        """Room for K/V is `engine.scheduling.admission`'s business."""

    def remove(self, session: str) -> None:
        """Nothing is kept of a session."""

    def status(self) -> Sequence[api.LlmServerStatus]:
        return ()

    def close(self) -> None:
        """Nothing runs between steps."""

    def server_totals(self) -> None:
        """No LLM server is asked."""

    def fileno(self) -> None:
        """Nothing comes by itself."""

    def step(self, sessions: Sequence[Session]) -> StepWork | None:
        """Plan and run one decoder step. None if no token is pending, or all may wait for sound."""
        if self._holds and self._held(sessions):
            return None
        plan, has_refused = self._plan(sessions)
        if not plan:
            # What was refused may have left tokens for the next step, such as a failed answer's.
            return StepWork() if has_refused else None
        self._run(plan, sessions)
        streams = frozenset(work.stream for work in plan.works)
        return StepWork(streams, plan.prefill_tokens, plan.decode_tokens)

    def _held(self, sessions: Sequence[Session]) -> bool:
        """Whether the pending tokens wait for those of sound that waits."""
        now_ns = self._clock()
        wanting = [session for session in sessions if session.stream.pending_ahead]
        if not wanting or not _may_wait(sessions, wanting, now_ns):
            self._held_since_ns = None
            return False
        if self._held_since_ns is None:
            self._held_since_ns = now_ns
        if now_ns - self._held_since_ns >= HOLD_NS:
            self._held_since_ns = None
            return False
        return True

    def _plan(self, sessions: Sequence[Session]) -> tuple[Plan, bool]:
        """The step's plan, and whether any stream was refused."""
        now_ns = self._clock()
        requests = [request for request in _requests(sessions) if request.stream.pending]
        for request in requests:  # reuse what another session has computed meanwhile
            request.stream.adopt(until=None if request.probe is None else max(request.probe - 1, 0))
        refused = self._refuse(requests, sessions, now_ns)
        left = [r for r in requests if r.stream not in refused and not r.stream.closed]
        return self._scheduler.plan(left, now_ns), bool(refused)

    def _refuse(
        self, requests: Sequence[Request], sessions: Sequence[Session], now_ns: int
    ) -> Collection[Stream]:
        """Refuse streams whose pending tokens will not fit, before they take blocks."""
        asked = {request.stream for request in requests}
        owners = [(session, stream) for session in sessions for stream in session.streams()]
        wants = [(session, stream) for session, stream in owners if stream in asked]
        refused = self._admission.refuse(wants, sessions, now_ns)
        for session, stream in wants:
            # The end of one answer may move K/V, for which a summary is dropped.
            if stream in refused and not stream.closed:
                _fail_stream(session, stream, refused[stream])
        return refused

    def _run(self, plan: Plan, sessions: Sequence[Session]) -> None:
        began_ns = self._clock()
        result = self.runner.step(plan)
        ended_ns = self._clock()
        asked = self._asked(result, sessions)
        sampled = self._sampler([*asked.draws.values()], asked.probed, self._watched)
        if self._sampler.ends_steps:
            ended_ns = self._clock()
        self._scheduler.observe(plan, ended_ns - began_ns)
        in_step = {work.stream for work in plan.works}
        for session in sessions:
            if session.stream in in_step:
                self._admission.touch(session.name, ended_ns)
                session.prefilled(began_ns, ended_ns)
            if session.stream in asked.ends:
                session.report_end(*self._end(asked.ends[session.stream], sampled))
            for answer in session.answers():
                # The end of one answer may move K/V, for which a summary is dropped.
                if answer.stream not in in_step or answer.stream.closed:
                    continue
                if answer.first_text_ns is None:
                    stage = "decode_first" if answer.tokens else "prefill"
                    answer.spans.append(api.Span(stage, began_ns, ended_ns))
                if answer.stream in result.refused:
                    session.fail(answer, result.refused[answer.stream])
                else:
                    self._advance(session, answer, asked, sampled, ended_ns)
            if session.stream in result.refused and session.answer is None:
                session.drop_pending(result.refused[session.stream])

    @property
    def _watched(self) -> tuple[int, ...]:
        """Tokens whose probabilities are reported: the end of a message, then the marks."""
        return () if self._end_token is None else (self._end_token, *self._marks)

    def _asked(self, result: StepResult, sessions: Sequence[Session]) -> _Asked:
        """What is to be sampled of a step's logits."""
        asked = _Asked()
        for session in sessions:
            stream, answer = session.stream, session.answer
            if stream in result.probed and self._end_token is not None:
                behind, before = asked.probe(result.probed[stream]), None
                probe = None if answer is None else answer.probe
                marked = probe is not None and stream.tokens[probe] in self._marks
                if marked and stream in result.before:
                    before = asked.probe(result.before[stream])
                asked.ends[stream] = behind, before
            for answer in session.answers():
                logits = result.logits.get(answer.stream)
                if logits is None:
                    continue
                if forced := answer.calling.take_forced():
                    asked.forced[answer.stream] = forced
                else:
                    limits = answer.calling.limits(answer.tokens)
                    asked.draws[answer.stream] = Draw(answer.sampler, logits, *limits)
        return asked

    def _end(self, rows: tuple[int, int | None], sampled: Sampled) -> tuple[float, float | None]:
        """How likely the message ends behind its words, and, where these end with a mark, how
        likely that mark was, or the end, behind the last word."""
        behind, before = rows
        marked = None if before is None else min(1.0, sum(sampled.probabilities(before)))
        return sampled.probabilities(behind)[0], marked

    def _advance(
        self,
        session: Session,
        answer: Answer,
        asked: _Asked,
        sampled: Sampled,
        ended_ns: int,
    ) -> None:
        """Add what was forced, or drawn, to one answer, if the step gave it anything."""
        draw, forced = asked.draws.get(answer.stream), asked.forced.get(answer.stream, ())
        if not forced and draw is None:
            return
        try:
            tokens = forced if draw is None else (sampled.token(draw),)
            sampled_ns = self._clock()
            answer.take_all(tokens, sampled_ns)
        except EngineError as error:
            session.fail(answer, error)
            return
        if answer.sent_chars == 0:
            answer.spans.append(api.Span("decode_first", ended_ns, sampled_ns))
            answer.spans.append(api.Span("detokenize", sampled_ns, self._clock()))
        session.flush(answer)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is wanted of a step's logits. `probed`: rows whose probabilities are; `ends`: by stream
    the numbers of those behind its message and, perhaps, before its mark."""

    draws: dict[Stream, Draw] = field(default_factory=dict)
    forced: dict[Stream, tuple[int, ...]] = field(default_factory=dict)
    probed: list[Tensor] = field(default_factory=list)
    ends: dict[Stream, tuple[int, int | None]] = field(default_factory=dict)

    def probe(self, row: Tensor) -> int:
        """The number of one more probed row."""
        self.probed.append(row)
        return len(self.probed) - 1


def _may_wait(sessions: Sequence[Session], wanting: Sequence[Session], now_ns: int) -> bool:
    """Whether nobody waits for the tokens of `wanting`, and more will come without waiting."""
    if any(session.answers() for session in sessions):
        return False
    if any(not session.traces for session in wanting):  # an item, or an end: not a chunk's words
        return False
    if any(0 <= session.deadline_ns - now_ns < NEAR_NS for session in wanting):
        return False
    return any(session.commands.next_is_audio for session in sessions)


def _requests(sessions: Sequence[Session]) -> Iterator[Request]:
    for session in sessions:
        main = session.answer
        if main is None:
            yield Request(session.stream, session.deadline_ns)
        elif main.wants_steps:
            yield Request(session.stream, session.deadline_ns, True, probe=main.probe)
        for answer in session.side_answers:
            yield Request(answer.stream, _NO_DEADLINE_NS, generating=True)


def _fail_stream(session: Session, stream: Stream, full: CacheFull) -> None:
    for answer in session.answers():
        if answer.stream is stream:
            session.fail(answer, full)
            return
    session.drop_pending(full)
