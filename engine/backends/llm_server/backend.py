"""The backend over an LLM server: which request is due for which session, and what came of it.

    words come      tokens pending      ─▶ warm-up, one in flight for each session, up to the end of
                                           the last whole block; newer words wait for it, and one
                                           whose words were revised is cancelled
    hush            answer speculated   ─▶ the real, streamed request; its tokens are held back
                                           (`Answer.speculative`); beside it a request for the
                                           likeliest tokens behind the last word
    endpoint        answer adopted      ─▶ what has come is sent
    speech resumes, cancelled           ─▶ the answer is gone: its stream is closed

A stream's K/V counters model the server's prefix cache: `kv_len` is what the server has computed
for this prefix, by what it was sent. Each `step` compares the requests in flight with what the
sessions want now, so nothing has to be told when an answer is given up.

A broken request is sent again up to `MAX_TRIES` times. Completions are stateless, so an answer that
broke off goes on behind what has come of it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headstart.engine import api
from headstart.engine.backends.llm_server.capabilities import Capabilities, PromptForm
from headstart.engine.backends.llm_server.errors import (
    LlmConnectionLost,
    LlmGarbage,
    LlmModelChanged,
    LlmServerError,
)
from headstart.engine.backends.llm_server.http_client import (
    Arrived,
    Broken,
    Ended,
    HttpClient,
    HttpRequest,
    Outcome,
)
from headstart.engine.backends.llm_server.wire import (
    Piece,
    Prompt,
    answer_body,
    path_of,
    probability,
    probe_body,
    read,
    warm_up_body,
)
from headstart.engine.errors import CacheFull, EngineError
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.step_log import StepWork
from headstart.engine.session.generation import Answer
from headstart.engine.session.session import Session

log = logging.getLogger("headstart.engine")

MAX_TRIES = 3
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0
WARM_UP_REST_NS = 2_000_000_000
"""After a warm-up that failed, a session sends none for so long."""
SPARE_PIECES = 16
"""Pieces without a token that a stream may have: usage, and the reason of its end."""
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The server's tokens. `prompt_of`: tokens in the form that the server takes. `encode`: tokens
    of an answer's text, if the server does not tell them. `stop_ids`: end an answer. `end_token`:
    closes a user's message, None if none does, and its spelling `end_spelling`."""

    prompt_of: Callable[[Sequence[int]], Prompt]
    encode: Callable[[str], Sequence[int]]
    stop_ids: frozenset[int]
    end_token: int | None = None
    end_spelling: str = ""


class Kind(StrEnum):
    """Of a request: a prompt sent ahead, an answer, or whether the message is over."""

    WARM_UP = "warm_up"
    ANSWER = "answer"
    END_PROBE = "end_probe"


class Totals:
    """Counters behind `api.LlmServerTotals`, which explains them."""

    def __init__(self) -> None:
        self.requests: Counter[Kind] = Counter()
        self.cancelled: Counter[Kind] = Counter()
        self.computed: Counter[Kind] = Counter()
        self.cached: Counter[Kind] = Counter()
        self.unknown: Counter[Kind] = Counter()
        self.failures: Counter[str] = Counter()
        self.retries = 0

    def prompt(self, kind: Kind, num_tokens: int, cached: int | None) -> None:
        """Count a prompt; `cached` is the server's count, None if it did not tell."""
        if cached is None:
            self.unknown[kind] += num_tokens
        else:
            self.cached[kind] += min(cached, num_tokens)
            self.computed[kind] += max(0, num_tokens - cached)

    def report(self) -> api.LlmServerTotals:
        fates = {"computed": self.computed, "cached": self.cached, "unknown": self.unknown}
        return api.LlmServerTotals(
            requests={kind.value: count for kind, count in self.requests.items()},
            cancelled={kind.value: count for kind, count in self.cancelled.items()},
            prompt_tokens={
                kind.value: {fate: counts[kind] for fate, counts in fates.items() if counts[kind]}
                for kind in self.requests
            },
            failures=dict(self.failures),
            retries=self.retries,
        )


@dataclass(slots=True)
class _Run:
    """A request in flight. `sent`: the tokens of its prompt; `cached`: how many of them the server
    had, once it has told. `answer`: whose it is; None for a warm-up. `ending`: the server's reason
    to end, once it has come."""

    kind: Kind
    session: Session
    stream: Stream
    sent: list[int]
    began_ns: int
    answer: Answer | None = None
    speculated: bool = False
    single: bool = False  # the first token alone, with some barred
    max_tokens: int = 1
    pieces: int = 0  # with tokens
    cached: int | None = None
    is_over: bool = False  # all tokens have come, but not the end of the stream
    ending: str | None = None


@dataclass(slots=True)
class _State:
    """What is kept of an answer between its requests."""

    answer: Answer
    tries: int = 0
    call: int | None = None
    delay_s: float = 0.0


@dataclass(slots=True)
class _Tally:
    streams: set[Stream] = field(default_factory=set)
    prefilled: int = 0
    decoded: int = 0
    worked: bool = False


class LlmServerBackend:
    """`headstart.engine.engine.Backend` over `client`. `clock` is `time.monotonic_ns`."""

    def __init__(
        self,
        client: HttpClient,
        capabilities: Capabilities,
        vocabulary: Vocabulary,
        clock: Callable[[], int],
    ) -> None:
        self.client = client
        self.capabilities = capabilities
        self.totals = Totals()
        self._vocabulary = vocabulary
        self._clock = clock
        self._runs: dict[int, _Run] = {}
        self._warm_ups: dict[str, int] = {}  # by session
        self._rests_until_ns: dict[str, int] = {}  # no warm-ups of these sessions before
        self._states: dict[int, _State] = {}  # by id of the answer, which is kept in it
        self._tally = _Tally()
        self._told: set[str] = set()  # codes of warm-ups' errors that are in the log

    @property
    def busy(self) -> bool:
        """Whether a request is in flight."""
        return bool(self._runs)

    def server_totals(self) -> api.LlmServerTotals:
        return self.totals.report()

    def fileno(self) -> int:
        """Readable when `step` has something to do."""
        return self.client.fileno()

    def move(self, move: KvMove) -> None:
        raise AssertionError("a server's K/V cannot be moved: see Stream.movable")

    def close(self) -> None:
        self._runs.clear()
        self.client.close()

    def step(self, sessions: Sequence[Session]) -> StepWork | None:
        """Cancel what nobody wants any more, take what has come, and send what is due."""
        self._tally = _Tally()
        self._cancel_unwanted(sessions)  # first: what has come for them must not be taken
        for outcome in self.client.take():
            self._take(outcome)
        for session in sessions:
            self._send_due(session)
        tally = self._tally
        if not tally.worked:
            return None
        return StepWork(frozenset(tally.streams), tally.prefilled, tally.decoded)

    # --- sending ---------------------------------------------------------------------------------

    def _cancel_unwanted(self, sessions: Sequence[Session]) -> None:
        present = {session.name: session for session in sessions}
        wanted = {id(answer) for session in sessions for answer in session.answers()}
        for call, run in list(self._runs.items()):
            if run.answer is not None:
                goes_on = run.answer.finished is None or run.is_over
                keep = id(run.answer) in wanted and goes_on
            else:
                keep = present.get(run.session.name) is run.session and self._is_valid(run)
            if not keep:
                self._cancel(call, run)
        for key, state in list(self._states.items()):
            if key not in wanted or state.answer.finished is not None:
                del self._states[key]
        for name in [name for name in self._rests_until_ns if name not in present]:
            del self._rests_until_ns[name]

    @staticmethod
    def _is_valid(run: _Run) -> bool:
        """Whether a warm-up's tokens are still the beginning of its stream's."""
        stream = run.stream
        return not stream.closed and stream.common_prefix_len(run.sent) == len(run.sent)

    def _cancel(self, call: int, run: _Run) -> None:
        self.client.cancel(call)
        self._remove(call, run)
        self.totals.cancelled[run.kind] += 1
        self._tally.worked = True

    def _remove(self, call: int, run: _Run) -> None:
        del self._runs[call]
        self.totals.prompt(run.kind, len(run.sent), run.cached)
        if run.kind is Kind.WARM_UP and self._warm_ups.get(run.session.name) == call:
            del self._warm_ups[run.session.name]
        if run.kind is Kind.ANSWER and not run.stream.closed:
            # Of the last block the server keeps nothing once the request is over.
            run.stream.recompute(run.stream.kv_len - run.stream.kv_len % run.stream.ahead)

    def _send_due(self, session: Session) -> None:
        for answer in session.answers():
            if answer.finished is None and not self._waits(session, answer):
                self._send_answer(session, answer)
        if session.answer is None:
            self._send_warm_up(session)

    def _send(self, run: _Run, request: HttpRequest) -> int:
        call = self.client.send(request)
        self._runs[call] = run
        self.totals.requests[run.kind] += 1
        self._tally.worked = True
        return call

    def _send_warm_up(self, session: Session) -> None:
        stream = session.stream
        if not self.capabilities.warms_up or session.name in self._warm_ups:
            return
        if not stream.pending_ahead:
            return
        self._tally.prefilled += stream.adopt()  # what another session has sent
        due = stream.pending_ahead
        if not due or self._clock() < self._rests_until_ns.get(session.name, 0):
            return
        sent = list(stream.tokens[: stream.kv_len + due])
        run = _Run(Kind.WARM_UP, session, stream, sent, self._clock())
        prompt = self._vocabulary.prompt_of(sent)
        body = warm_up_body(self.capabilities, prompt, stream.share_domain)
        self._warm_ups[session.name] = self._send(
            run, HttpRequest(path_of(self.capabilities), body)
        )

    def _waits(self, session: Session, answer: Answer) -> bool:
        """Whether an answer's request is in flight or has to wait.

        It waits for a warm-up of its own beginning: that is work to be done in any case, and a
        second request for it would compute it a second time.
        """
        state = self._states.get(id(answer))
        if state is not None and state.call in self._runs:
            return True
        if answer.speculative and not self.capabilities.warms_up:
            return True
        return answer.stream is session.stream and session.name in self._warm_ups

    def _send_answer(self, session: Session, answer: Answer) -> None:
        state = self._states.setdefault(id(answer), _State(answer))
        stream, now_ns = answer.stream, self._clock()
        try:
            forced = answer.calling.take_forced()
            if forced:
                answer.take_all(forced, now_ns)
        except EngineError as error:
            session.fail(answer, error)
            return
        room = min(answer.sampling.max_tokens - len(answer.tokens), stream.limit - len(stream))
        if answer.finished is None and room < 1:
            answer.end(api.FinishReason.LENGTH)
        if answer.finished is not None:
            session.flush(answer)
            return
        stream.adopt(until=answer.probe)
        sent = list(stream.tokens)
        if answer.probe is not None:
            self._send_probe(session, answer, sent[: answer.probe + 1])
        banned = answer.calling.banned if not answer.tokens else frozenset()
        max_tokens = 1 if banned else room
        body = answer_body(
            self.capabilities,
            self._vocabulary.prompt_of(sent),
            answer.sampling,
            max_tokens,
            stop_ids=self._vocabulary.stop_ids,
            banned=banned,
            domain=stream.share_domain,
        )
        run = _Run(Kind.ANSWER, session, stream, sent, now_ns, answer)
        run.speculated, run.single = answer.speculative, bool(banned)
        run.max_tokens = max_tokens
        path, pieces = path_of(self.capabilities), max_tokens + SPARE_PIECES
        state.call = self._send(run, HttpRequest(path, body, state.delay_s, pieces))
        state.delay_s = 0.0

    def _send_probe(self, session: Session, answer: Answer, sent: list[int]) -> None:
        answer.probe = None
        if not self.capabilities.probes_end:
            return
        run = _Run(Kind.END_PROBE, session, answer.stream, sent, self._clock(), answer)
        prompt = self._vocabulary.prompt_of(sent)
        body = probe_body(self.capabilities, prompt, answer.stream.share_domain)
        self._send(run, HttpRequest(path_of(self.capabilities), body))

    # --- receiving -------------------------------------------------------------------------------

    def _take(self, outcome: Outcome) -> None:
        run = self._runs.get(outcome.call)
        if run is None:
            return  # cancelled
        self._tally.worked = True
        try:
            match outcome:
                case Arrived():
                    piece = self._read(outcome)
                    self._took(outcome.call, run, piece, outcome.at_ns)
                case Ended():
                    self._ended(outcome.call, run, closed=outcome.closed)
                case Broken():
                    self._broken(outcome.call, run, outcome.error)
        except LlmServerError as error:
            if outcome.call in self._runs:
                self.client.cancel(outcome.call)
                self._broken(outcome.call, run, error)

    def _read(self, arrived: Arrived) -> Piece:
        piece = read(arrived.piece)
        known = self.capabilities.reply_model
        if known and piece.model and piece.model != known:
            raise LlmModelChanged(known, piece.model)
        return piece

    def _took(self, call: int, run: _Run, piece: Piece, at_ns: int) -> None:
        if piece.cached_tokens is not None:
            run.cached = piece.cached_tokens
        if run.kind is Kind.WARM_UP:
            self._warmed_up(run, piece, at_ns)
        elif run.kind is Kind.END_PROBE:
            token, spelling = self._vocabulary.end_token, self._vocabulary.end_spelling
            chance = None if token is None else probability(piece, token, spelling)
            if chance is not None:
                run.session.report_end(min(chance, 1.0))
        else:
            self._answered(call, run, piece, at_ns)

    def _warmed_up(self, run: _Run, piece: Piece, at_ns: int) -> None:
        """Record what the server has computed ahead."""
        if not self._is_valid(run):
            return
        try:
            self._advance(run.stream, len(run.sent))
        except CacheFull as full:
            run.session.drop_pending(full)
            return
        run.session.prefilled(run.began_ns, at_ns)

    def _advance(self, stream: Stream, until: int) -> None:
        """Record that the server has K/V for the first `until` tokens. Raises `CacheFull`."""
        count = until - stream.kv_len
        if count <= 0:
            return
        stream.reserve(count)  # nothing is in memory here, so there is nothing to copy
        stream.advance(count)
        self._tally.streams.add(stream)
        self._tally.prefilled += count

    def _answered(self, call: int, run: _Run, piece: Piece, at_ns: int) -> None:
        """Take a piece of an answer."""
        answer, session, stream = run.answer, run.session, run.stream
        assert answer is not None
        if piece.cached_tokens is not None:
            self._note_cached(run, piece.cached_tokens)
        ids = piece.ids
        if ids is None:
            ids = tuple(self._vocabulary.encode(piece.text))
        if ids and answer.finished is None:
            self._note_time(run, piece, at_ns)
            try:
                self._advance(stream, len(stream))
                for token in ids:
                    self._take_token(answer, token, at_ns)
            except EngineError as error:
                self._cancel(call, run)
                session.fail(answer, error)
                return
            run.pieces += 1
            self._tally.decoded += len(ids)
            self._tally.streams.add(stream)
        run.ending = piece.ending or run.ending
        complete = run.ending is not None or run.pieces >= run.max_tokens
        run.is_over = answer.finished is not None and complete
        if run.is_over:
            return  # the count of cached tokens comes last, and the stream's end with it
        if answer.finished is not None:
            self.client.cancel(call)
            self._remove(call, run)
        session.flush(answer)

    @staticmethod
    def _take_token(answer: Answer, token: int, at_ns: int) -> None:
        if answer.finished is None:
            answer.take_all((token,), at_ns)

    @staticmethod
    def _note_cached(run: _Run, cached: int) -> None:
        """Take the server's count of cached tokens, if the answer began at the endpoint. One that
        began at the hush had its whole prompt in the cache by then."""
        answer = run.answer
        assert answer is not None
        if not run.speculated and len(run.sent) == len(answer.prompt.ids):
            answer.cached_tokens = min(cached, len(answer.prompt.ids))

    def _note_time(self, run: _Run, piece: Piece, at_ns: int) -> None:
        """Add spans up to an answer's first text. The server's own share of prefill is used where
        it tells it; the rest is time in its queue, and on the way."""
        answer = run.answer
        assert answer is not None
        if answer.first_text_ns is not None:
            return
        if run.pieces:
            answer.spans.append(api.Span("decode_first", answer.last_token_ns or at_ns, at_ns))
            return
        began_ns = run.began_ns
        if piece.prompt_ms is not None:
            prefill_ns = min(round(piece.prompt_ms * _NS_PER_MS), at_ns - began_ns)
            answer.spans.append(api.Span("queue", began_ns, at_ns - prefill_ns))
            began_ns = at_ns - prefill_ns
        answer.spans.append(api.Span("prefill", began_ns, at_ns))

    def _ended(self, call: int, run: _Run, *, closed: bool) -> None:
        if run.kind is not Kind.ANSWER:
            self._remove(call, run)
            return
        answer = run.answer
        assert answer is not None
        if not closed and run.ending is None:
            raise LlmConnectionLost("the stream has no end")
        if run.ending not in ("stop", "length", "eos", "limit", "tool_calls", None):
            raise LlmGarbage("a completed answer", f"finish_reason {run.ending!r}")
        self._remove(call, run)
        if answer.finished is not None:
            run.session.flush(answer)
            return
        if run.single and run.ending == "length" and answer.tokens:
            return  # the rest is due now
        reason = api.FinishReason.LENGTH if run.ending == "length" else api.FinishReason.STOP
        answer.end(reason)
        run.session.flush(answer)

    def _broken(self, call: int, run: _Run, error: LlmServerError) -> None:
        self.totals.failures[error.code] += 1
        self._remove(call, run)
        if run.kind is not Kind.ANSWER:
            self._warm_up_failed(run, error)
            return
        answer = run.answer
        assert answer is not None
        if answer.finished is not None:  # all of it has come
            run.session.flush(answer)
            return
        state = self._states.setdefault(id(answer), _State(answer))
        state.tries += 1
        can_go_on = self.capabilities.prompt is not PromptForm.MESSAGES or not answer.tokens
        if error.retryable and can_go_on and state.tries < MAX_TRIES:
            pause_s = max(error.retry_after_s, RETRY_FIRST_S * 2 ** (state.tries - 1))
            state.delay_s = min(pause_s, RETRY_MAX_S)
            state.call = None
            self.totals.retries += 1
            log.warning("session %s: %s: trying again", run.session.name, error)
            return
        run.session.fail(answer, error)

    def _warm_up_failed(self, run: _Run, error: LlmServerError) -> None:
        """Nobody waits for a warm-up: the next one is sent later, and errors are logged once."""
        self._rests_until_ns[run.session.name] = self._clock() + WARM_UP_REST_NS
        if error.code not in self._told:
            self._told.add(error.code)
            log.warning("a request ahead of an answer failed: %s", error)
