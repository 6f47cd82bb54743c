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
broke off goes on behind what has come of it: at the same server, or at another one if that is down
(`servers`). The K/V of a session that moves are computed again there, at once.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headstart.engine import api
from headstart.engine.backends.llm_server.capabilities import PromptForm
from headstart.engine.backends.llm_server.errors import (
    LlmConnectionLost,
    LlmGarbage,
    LlmModelChanged,
    LlmNoServer,
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
from headstart.engine.backends.llm_server.servers import Server, Servers
from headstart.engine.backends.llm_server.totals import Kind, Totals
from headstart.engine.backends.llm_server.wire import (
    Json,
    Piece,
    answer_body,
    path_of,
    probability,
    probe_body,
    read,
    warm_up_body,
)
from headstart.engine.errors import EngineError
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


@dataclass(slots=True)
class _Run:
    """A request in flight. `sent`: the tokens of its prompt; `cached`: how many of them the server
    had, once it has told. `answer`: whose it is; None for a warm-up. `ending`: the server's reason
    to end, once it has come."""

    kind: Kind
    server: Server
    session: Session
    stream: Stream
    sent: list[int]
    began_ns: int
    answer: Answer | None = None
    speculated: bool = False
    single: bool = False  # the first token alone, with some barred
    max_tokens: int = 1
    pieces: int = 0  # with tokens
    is_over: bool = False  # all tokens have come, but not the end of the stream
    ending: str | None = None
    cached: int | None = None


@dataclass(slots=True)
class _State:
    """What is kept of an answer between its requests."""

    answer: Answer
    tries: int = 0  # that broke, at servers that are still up
    moves: int = 0
    call: int | None = None
    delay_s: float = 0.0


@dataclass(slots=True)
class _Tally:
    streams: set[Stream] = field(default_factory=set)
    prefilled: int = 0
    decoded: int = 0
    worked: bool = False


class LlmServerBackend:
    """`headstart.engine.engine.Backend` over `servers`, which `client` speaks to. `clock` is
    `time.monotonic_ns`."""

    def __init__(self, client: HttpClient, servers: Servers, clock: Callable[[], int]) -> None:
        self.client = client
        self.servers = servers
        self.capabilities = servers.capabilities
        self._clock = clock
        self._runs: dict[int, _Run] = {}
        self._warm_ups: dict[str, int] = {}  # by session
        self._rests_until_ns: dict[str, int] = {}  # no warm-ups of these sessions before
        self._states: dict[int, _State] = {}  # by id of the answer, which is kept in it
        self._homeless_until_ns: dict[str, int] = {}  # sessions that no server took
        self._tally = _Tally()
        self._told: set[str] = set()  # codes of warm-ups' errors that are in the log

    @property
    def busy(self) -> bool:
        """Whether a request is in flight."""
        return bool(self._runs)

    @property
    def totals(self) -> Totals:
        """Of all servers."""
        return functools.reduce(Totals.plus, (s.totals for s in self.servers), Totals())

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

    def admit(self, session: Session) -> None:
        """Choose a new session's server. Raises `LlmNoServer`."""
        self._place(session)

    def remove(self, session: str) -> None:
        self.servers.release(session, self._clock())
        self._homeless_until_ns.pop(session, None)

    def status(self) -> list[api.LlmServerStatus]:
        return self.servers.status(self._clock())

    def step(self, sessions: Sequence[Session]) -> StepWork | None:
        """Cancel what nobody wants any more, take what has come, and send what is due."""
        self._tally = _Tally()
        self._cancel_unwanted(sessions)  # first: what has come for them must not be taken
        for outcome in self.client.take():
            if not self.servers.takes(outcome, self._clock()):
                self._take(outcome)
        self.servers.check(self._clock())
        self._cut_lost()
        for session in sessions:
            self._stay_or_move(session)
            self._send_due(session)
        tally = self._tally
        if not tally.worked:
            return None
        return StepWork(frozenset(tally.streams), tally.prefilled, tally.decoded)

    # --- where a session is ----------------------------------------------------------------------

    def _stay_or_move(self, session: Session) -> None:
        """Move a session whose server is down or drains, while it has nothing in flight, so that
        its K/V are computed elsewhere before they are needed."""
        server, now_ns = self.servers.of(session.name), self._clock()
        if server is not None and not server.drains:
            return
        if any(run.session is session and run.answer is not None for run in self._runs.values()):
            return
        if server is not None and session.answer is not None:
            return  # its prompt is warm there
        if now_ns < self._homeless_until_ns.get(session.name, 0):
            return
        try:
            self._place(session)
        except LlmNoServer as refused:
            wait_ns = round(refused.retry_after_s * 1e9)
            self._homeless_until_ns[session.name] = now_ns + wait_ns

    def _place(self, session: Session) -> Server:
        """The session's server; its streams are there then. Raises `LlmNoServer`."""
        now_ns = self._clock()
        server, left = self.servers.place(session.name, now_ns)
        self._homeless_until_ns.pop(session.name, None)
        lost_tokens = 0
        for stream in session.streams():
            if left is not None or stream.place != server.place:
                lost_tokens += stream.move_to(server.place, server.capabilities.block_tokens)
        if left is not None:  # it may be the same one, started again
            self._tally.worked = True
            self._cancel_warm_up(session)
            self._rests_until_ns.pop(session.name, None)  # what failed was at the other one
            for answer in session.answers():
                if not answer.tokens:
                    answer.cached_tokens = 0
            session.moved(api.Move(left.url, server.url, left.code, lost_tokens, now_ns))
        return server

    def _cancel_warm_up(self, session: Session) -> None:
        call = self._warm_ups.get(session.name)
        if call is not None:
            self._cancel(call, self._runs[call])

    def _cut_lost(self) -> None:
        """Close what is in flight at servers that went down; answers go on elsewhere."""
        for server in self.servers.take_lost():
            for call, run in list(self._runs.items()):
                if run.server is not server:
                    continue
                if run.kind is Kind.ANSWER:
                    self.client.cancel(call)
                    self._broken(call, run, LlmConnectionLost(server.reason))
                else:
                    self._cancel(call, run)

    # --- sending ---------------------------------------------------------------------------------

    def _cancel_unwanted(self, sessions: Sequence[Session]) -> None:
        present = {session.name: session for session in sessions}
        wanted = {id(answer) for session in sessions for answer in session.answers()}
        for call, run in list(self._runs.items()):
            if run.answer is not None:
                goes_on = run.answer.finished is None or run.is_over
                # A whole answer may be there before the estimate of the end behind its question.
                keep = id(run.answer) in wanted and (goes_on or run.kind is Kind.END_PROBE)
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
        self.servers.finished(run.server, self._clock(), ok=False)
        run.server.totals.cancelled[run.kind] += 1
        self._tally.worked = True

    def _remove(self, call: int, run: _Run) -> None:
        del self._runs[call]
        run.server.totals.prompt(run.kind, len(run.sent), run.cached)
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

    def _send(self, run: _Run, body: Json, delay_s: float = 0.0, pieces: int = 1) -> int:
        url = run.server.url + path_of(run.server.capabilities)
        call = self.client.send(HttpRequest(url, body, delay_s, pieces))
        self.servers.began(run.server)
        self._runs[call] = run
        run.server.totals.requests[run.kind] += 1
        self._tally.worked = True
        return call

    def _send_warm_up(self, session: Session) -> None:
        stream, server = session.stream, self.servers.of(session.name)
        if server is None or session.name in self._warm_ups:
            return
        if not server.capabilities.warms_up or not stream.pending_ahead:
            return
        self._tally.prefilled += stream.adopt()  # what another session has sent
        due = stream.pending_ahead
        if not due or self._clock() < self._rests_until_ns.get(session.name, 0):
            return
        sent = list(stream.tokens[: stream.kv_len + due])
        run = _Run(Kind.WARM_UP, server, session, stream, sent, self._clock())
        prompt = server.vocabulary.prompt_of(sent)
        body = warm_up_body(server.capabilities, prompt, stream.share_domain)
        self._warm_ups[session.name] = self._send(run, body)

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
            server = self._server_for(session, answer)
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
            self._send_probe(server, session, answer, sent[: answer.probe + 1])
        banned = answer.calling.banned if not answer.tokens else frozenset()
        max_tokens = 1 if banned else room
        body = answer_body(
            server.capabilities,
            server.vocabulary.prompt_of(sent),
            answer.sampling,
            max_tokens,
            stop_ids=server.vocabulary.stop_ids,
            banned=banned,
            domain=stream.share_domain,
        )
        run = _Run(Kind.ANSWER, server, session, stream, sent, now_ns, answer)
        run.speculated, run.single = answer.speculative, bool(banned)
        run.max_tokens = max_tokens
        state.call = self._send(run, body, state.delay_s, max_tokens + SPARE_PIECES)
        state.delay_s = 0.0

    def _server_for(self, session: Session, answer: Answer) -> Server:
        """Where an answer's request goes. Raises `LlmNoServer` at once: nobody waits in vain."""
        server = self.servers.of(session.name)
        warm = answer.stream.kv_len > 0
        if server is not None and warm and server.drains:
            return server  # the last one there
        return self._place(session)

    def _send_probe(
        self, server: Server, session: Session, answer: Answer, sent: list[int]
    ) -> None:
        answer.probe = None
        if not server.capabilities.probes_end:
            return
        run = _Run(Kind.END_PROBE, server, session, answer.stream, sent, self._clock(), answer)
        prompt = server.vocabulary.prompt_of(sent)
        body = probe_body(server.capabilities, prompt, answer.stream.share_domain)
        self._send(run, body)

    # --- receiving -------------------------------------------------------------------------------

    def _take(self, outcome: Outcome) -> None:
        run = self._runs.get(outcome.call)
        if run is None:
            return  # cancelled
        self._tally.worked = True
        dropped = run.answer is not None and not run.session.is_running(run.answer)
        if dropped and run.kind is Kind.ANSWER:
            # The outcome before this one ended another answer, and the window moved on: for that a
            # summary is dropped.
            self._cancel(outcome.call, run)
            return
        try:
            match outcome:
                case Arrived():
                    piece = self._read(run.server, outcome)
                    self._took(outcome.call, run, piece, outcome.at_ns)
                case Ended():
                    self._ended(outcome.call, run, closed=outcome.closed)
                case Broken():
                    self._broken(outcome.call, run, outcome.error)
        except LlmServerError as error:
            if outcome.call in self._runs:
                self.client.cancel(outcome.call)
                self._broken(outcome.call, run, error)

    @staticmethod
    def _read(server: Server, arrived: Arrived) -> Piece:
        piece = read(arrived.piece)
        known = server.capabilities.reply_model
        if known and piece.model and piece.model != known:
            raise LlmModelChanged(known, piece.model)
        return piece

    def _took(self, call: int, run: _Run, piece: Piece, at_ns: int) -> None:
        if piece.cached_tokens is not None:
            run.cached = piece.cached_tokens
        if run.kind is Kind.WARM_UP:
            self._warmed_up(run, piece, at_ns)
        elif run.kind is Kind.END_PROBE:
            vocabulary = run.server.vocabulary
            token, spelling = vocabulary.end_token, vocabulary.end_spelling
            chance = None if token is None else probability(piece, token, spelling)
            if chance is not None:
                run.session.report_end(min(chance, 1.0))
        else:
            self._answered(call, run, piece, at_ns)

    def _warmed_up(self, run: _Run, piece: Piece, at_ns: int) -> None:
        """Record what the server has computed ahead."""
        if not self._is_valid(run) or run.stream.place != run.server.place:
            return
        self._advance(run.stream, len(run.sent))
        run.session.prefilled(run.began_ns, at_ns)

    def _advance(self, stream: Stream, until: int) -> None:
        """Record that the server has K/V for the first `until` tokens."""
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
            ids = tuple(run.server.vocabulary.encode(piece.text))
        if ids and answer.finished is None:
            self._note_time(run, piece, at_ns)
            try:
                if stream.place == run.server.place:  # else the session has moved meanwhile
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
            self._finish(call, run)
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
            self._finish(call, run)
            return
        answer = run.answer
        assert answer is not None
        if not closed and run.ending is None:
            raise LlmConnectionLost("the stream has no end")
        if run.ending not in ("stop", "length", "eos", "limit", "tool_calls", None):
            raise LlmGarbage("a completed answer", f"finish_reason {run.ending!r}")
        self._finish(call, run)
        if answer.finished is not None:
            run.session.flush(answer)
            return
        if run.single and run.ending == "length" and answer.tokens:
            return  # the rest is due now
        reason = api.FinishReason.LENGTH if run.ending == "length" else api.FinishReason.STOP
        answer.end(reason)
        run.session.flush(answer)

    def _finish(self, call: int, run: _Run) -> None:
        """A request is over, and was answered. Closes what is left of its connection."""
        self.client.cancel(call)
        self._remove(call, run)
        self.servers.finished(run.server, self._clock())

    def _broken(self, call: int, run: _Run, error: LlmServerError) -> None:
        run.server.totals.failures[error.code] += 1
        self._remove(call, run)
        self.servers.finished(run.server, self._clock(), error)
        if run.kind is not Kind.ANSWER:
            self._warm_up_failed(run, error)
            return
        answer = run.answer
        assert answer is not None
        if answer.finished is not None:  # all of it has come
            run.session.flush(answer)
            return
        state = self._states.setdefault(id(answer), _State(answer))
        can_go_on = run.server.capabilities.prompt is not PromptForm.MESSAGES or not answer.tokens
        if not can_go_on or not self._tries_again(state, run, error):
            log.warning("session %s: the answer failed: %s", run.session.name, error)
            run.session.fail(answer, error)
            return
        state.call = None
        run.server.totals.retries += 1
        log.warning("session %s: %s: trying again", run.session.name, error)

    def _tries_again(self, state: _State, run: _Run, error: LlmServerError) -> bool:
        """Whether an answer's request is sent again. One whose server has just gone down moves, at
        once, and that is none of its tries; it moves once for each other server at most."""
        if self.servers.of(run.session.name) is not run.server:
            state.moves += 1
            return state.moves < len(self.servers)
        state.tries += 1
        if not error.retryable or state.tries >= MAX_TRIES:
            return False
        pause_s = max(error.retry_after_s, RETRY_FIRST_S * 2 ** (state.tries - 1))
        state.delay_s = min(pause_s, RETRY_MAX_S)
        return True

    def _warm_up_failed(self, run: _Run, error: LlmServerError) -> None:
        """Nobody waits for a warm-up: the next one is sent later, and errors are logged once."""
        self._rests_until_ns[run.session.name] = self._clock() + WARM_UP_REST_NS
        if error.code not in self._told:
            self._told.add(error.code)
            log.warning("a request ahead of an answer failed: %s", error)
