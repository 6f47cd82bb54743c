"""Several LLM servers that serve the same model: which one a session is at, and how each does.

    every `CHECK_EVERY_MS`    GET /health (or /v1/models), GET /metrics where there is one
    200                       ready
    503                       draining: answers in flight go on, sessions move before their next one
    refused, or silent twice  down: what is in flight there is sent elsewhere
    down, cooled down         asked again all that is asked at start; one that still agrees with the
                              others is ready, and gets sessions again

Where sessions are and which breaker is open is `headstart.engine.placement`'s business. A server
alone is never given up, since there is nowhere else to go: it is not checked either.

Bounds: one check and one join of each server at a time. Joins run in threads of their own, because
they wait; each puts one result, whatever happens.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from headstart.engine import api
from headstart.engine.backends.llm_server.capabilities import Capabilities, PromptForm
from headstart.engine.backends.llm_server.errors import (
    LlmBusy,
    LlmConnectionLost,
    LlmFailed,
    LlmKeyRefused,
    LlmModelChanged,
    LlmNoServer,
    LlmRefused,
    LlmServerError,
    LlmServersDiffer,
    LlmStalled,
    LlmUnreachable,
)
from headstart.engine.backends.llm_server.http_client import (
    TEXT,
    Arrived,
    Broken,
    HttpClient,
    HttpRequest,
    Outcome,
)
from headstart.engine.backends.llm_server.load_metrics import load_of
from headstart.engine.backends.llm_server.probe import AGAIN_S, WAIT_S, Report
from headstart.engine.backends.llm_server.totals import Kind, Totals
from headstart.engine.backends.llm_server.wire import Prompt
from headstart.engine.placement import (
    Node,
    NodeState,
    PlacementRules,
    Placer,
    Refusal,
)

log = logging.getLogger("headstart.engine")

CHECK_EVERY_MS = 2_000
CHECK_LIMIT_S = 2.0
SILENT_CHECKS = 2
"""So many checks in a row without a reply mean that a server is down."""
DRAINS = 503
"""The status of a server that drains. 429 is one that gets too many requests."""
HEALTH, MODELS, METRICS = "/health", "/v1/models", "/metrics"
ABSENT = (LlmUnreachable, LlmBusy)
"""Errors at start of a server that is not there yet."""
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


@dataclass(frozen=True, slots=True)
class Known:
    """What was found out of a server."""

    capabilities: Capabilities
    vocabulary: Vocabulary


@dataclass(slots=True, eq=False)
class Server:
    """One server. `known` None: it has not been reached yet. `reason`: why it is not ready. `code`:
    why it was not ready the last time, in a word. `state`: as the placer has it."""

    url: str
    known: Known | None = None
    reason: str = ""
    code: str = ""
    totals: Totals = field(default_factory=Totals)
    state: NodeState = NodeState.READY
    place: bytes = b""  # of its K/V; empty for a server alone
    health_path: str = HEALTH
    has_metrics: bool = True
    silent: int = 0  # checks in a row that were not answered
    check_due_ns: int = 0
    checks: dict[int, str] = field(default_factory=dict)  # paths by call
    joining: bool = False

    @property
    def drains(self) -> bool:
        return self.state is NodeState.DRAINING

    @property
    def capabilities(self) -> Capabilities:
        assert self.known is not None, "a server that was never reached holds no session"
        return self.known.capabilities

    @property
    def vocabulary(self) -> Vocabulary:
        assert self.known is not None, "a server that was never reached holds no session"
        return self.known.vocabulary


Join = Callable[[str], Known]
"""Finds out what the server at a URL can do. Raises `LlmServerError`."""


class Servers:
    """The servers of one backend, at least one of them known. `join`: for those that are down; None
    without checks."""

    def __init__(
        self,
        client: HttpClient,
        servers: Sequence[Server],
        join: Join | None = None,
        *,
        capacity: int | None = None,
        rules: PlacementRules | None = None,
    ) -> None:
        self._client = client
        self._servers = {server.url: server for server in servers}
        self._join = join
        self._joined: queue.SimpleQueue[tuple[Server, Known | LlmServerError]] = queue.SimpleQueue()
        self._placer = Placer([Node(server.url, capacity) for server in servers], rules)
        self._alone = len(servers) == 1
        self._lost: list[Server] = []
        self.capabilities = _reference(servers)
        """Of a server that was reached, with which the others agree."""
        for server in servers:
            if not self._alone:
                server.place = blake2b(server.url.encode(), digest_size=16).digest()
            if server.known is None:
                self._placer.fail(server.url, 0)
                server.state = NodeState.DOWN

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def __len__(self) -> int:
        return len(self._servers)

    # --- sessions --------------------------------------------------------------------------------

    def place(self, session: str, now_ns: int) -> tuple[Server, Server | None]:
        """The server of a session, and the one that it leaves, if it does. Raises `LlmNoServer`."""
        placed = self._placer.place(session, now_ns)
        if isinstance(placed, Refusal):
            states = [status.state for status in self._placer.status(now_ns)]
            raise LlmNoServer(placed.reason, states, placed.retry_after_ms / 1000)
        left = None if placed.moved_from is None else self._servers[placed.moved_from]
        if left is not None:
            left.totals.sessions_left += 1
        return self._servers[placed.node], left

    def of(self, session: str) -> Server | None:
        """The server that a session is at; None after that was lost."""
        name = self._placer.node_of(session)
        return None if name is None else self._servers[name]

    def release(self, session: str, now_ns: int) -> None:
        self._placer.release(session, now_ns)

    # --- requests --------------------------------------------------------------------------------

    def began(self, server: Server) -> None:
        """A request was sent to `server`; `finished` follows once."""
        self._placer.begin(server.url)

    def finished(
        self, server: Server, now_ns: int, error: LlmServerError | None = None, *, ok: bool = True
    ) -> None:
        """A request ended: well, in `error`, or because we gave it up (not `ok`)."""
        fault = error is not None and _is_fault(error)
        server.totals.faults += fault
        if self._alone or (error is not None and not fault) or not ok:
            self._placer.finish(server.url, now_ns, ok=None)
            return
        self._placer.finish(server.url, now_ns, ok=not fault)
        if error is None or not fault:
            return
        if isinstance(error, LlmUnreachable | LlmModelChanged | LlmKeyRefused):
            self._down(server, error, now_ns)
            return
        server.check_due_ns = now_ns  # is it still there?
        now = self._state_of(server, now_ns)
        if now is not server.state:  # its breaker has opened
            server.state = now
            server.reason, server.code = str(error), error.code
            log.warning("LLM server %s is left alone for a while: %s", server.url, error)

    def _state_of(self, server: Server, now_ns: int) -> NodeState:
        (state,) = (s.state for s in self._placer.status(now_ns) if s.name == server.url)
        return state

    def take_lost(self) -> list[Server]:
        """Servers that went down since the last call: what is in flight there must be sent
        elsewhere."""
        lost, self._lost = self._lost, []
        return lost

    def _down(self, server: Server, error: LlmServerError, now_ns: int) -> None:
        if server.state is NodeState.DOWN:
            return  # known; a join says whether it is back
        self._placer.fail(server.url, now_ns)
        server.state = NodeState.DOWN
        server.reason, server.code = str(error), error.code
        for call in server.checks:
            self._client.cancel(call)
        server.checks.clear()
        log.warning("LLM server %s is down: %s", server.url, error)
        self._lost.append(server)

    # --- checks ----------------------------------------------------------------------------------

    def check(self, now_ns: int) -> None:
        """Take the results of joins, and send the checks that are due."""
        if self._join is None:
            return
        self._take_joined(now_ns)
        for server in self:
            if self._placer.probe(server.url, now_ns):
                self._begin_join(server)
            if server.state is NodeState.DOWN:
                continue
            if not server.checks and now_ns >= server.check_due_ns:
                server.check_due_ns = now_ns + CHECK_EVERY_MS * _NS_PER_MS
                self._send_check(server, server.health_path)
                if server.has_metrics:
                    self._send_check(server, METRICS)

    def _send_check(self, server: Server, path: str) -> None:
        request = HttpRequest(server.url + path, as_text=True, limit_s=CHECK_LIMIT_S)
        server.checks[self._client.send(request)] = path

    def takes(self, outcome: Outcome, now_ns: int) -> bool:
        """Whether `outcome` is of a check, whose result is noted."""
        for server in self:
            path = server.checks.get(outcome.call)
            if path is not None:
                self._checked(server, path, outcome, now_ns)
                return True
        return False

    def _checked(self, server: Server, path: str, outcome: Outcome, now_ns: int) -> None:
        if isinstance(outcome, Arrived):
            if path == METRICS:
                self._report_load(server, str(outcome.piece.get(TEXT, "")), now_ns)
            else:
                self._healthy(server, now_ns)
            return
        del server.checks[outcome.call]
        if not isinstance(outcome, Broken):
            return
        if path == METRICS:
            server.has_metrics = not isinstance(outcome.error, LlmRefused | LlmKeyRefused)
        else:
            self._health_failed(server, path, outcome.error, now_ns)

    def _report_load(self, server: Server, metrics: str, now_ns: int) -> None:
        load = load_of(metrics)
        server.has_metrics = load is not None
        if load is not None:
            self._placer.report(server.url, load, now_ns)

    def _health_failed(self, server: Server, path: str, error: LlmServerError, now_ns: int) -> None:
        """What an error says of the server that was asked at `path` whether it is well."""
        if isinstance(error, LlmBusy) and error.status == DRAINS:
            self._draining(server, error, now_ns)
        elif isinstance(error, LlmRefused | LlmKeyRefused) and path == HEALTH:
            server.health_path, server.check_due_ns = MODELS, now_ns
        elif isinstance(error, LlmRefused | LlmBusy):
            self._healthy(server, now_ns)  # it answers, if only that it lists no models
        elif isinstance(error, LlmUnreachable):
            self._down(server, error, now_ns)
        else:
            server.silent += 1
            server.check_due_ns = now_ns
            if server.silent >= SILENT_CHECKS:
                self._down(server, error, now_ns)

    def _healthy(self, server: Server, now_ns: int) -> None:
        server.silent = 0
        if server.state is NodeState.DRAINING:
            self._ready(server, now_ns)

    def _draining(self, server: Server, error: LlmServerError, now_ns: int) -> None:
        server.silent = 0
        if server.state is NodeState.READY:
            self._placer.drain(server.url)
            server.state = NodeState.DRAINING
            server.reason, server.code = str(error), "draining"
            log.warning("LLM server %s drains: %s", server.url, error)

    def _ready(self, server: Server, now_ns: int) -> None:
        self._placer.recover(server.url, now_ns)
        if self._state_of(server, now_ns) is NodeState.DRAINING:  # before it went down
            self._placer.recover(server.url, now_ns)
        server.state = NodeState.READY
        server.reason, server.silent, server.has_metrics = "", 0, True
        log.info("LLM server %s is ready", server.url)

    # --- joins -----------------------------------------------------------------------------------

    def _begin_join(self, server: Server) -> None:
        if server.joining:
            return
        server.joining = True
        threading.Thread(target=self._find_out, args=(server,), daemon=True).start()

    def _find_out(self, server: Server) -> None:
        """In a thread of its own: ask a server what it can."""
        assert self._join is not None
        found: Known | LlmServerError = LlmFailed(0, "the thread that asked it has ended")
        try:
            found = self._join(server.url)
            check_agreement(self.capabilities, found.capabilities)
        except LlmServerError as error:
            found = error
        finally:
            self._joined.put((server, found))
            self._client.wake()

    def _take_joined(self, now_ns: int) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                server, found = self._joined.get_nowait()
                server.joining = False
                if isinstance(found, LlmServerError):
                    if server.reason != str(found):
                        log.warning("LLM server %s stays out: %s", server.url, found)
                    self._placer.fail(server.url, now_ns)
                    server.reason, server.code = str(found), found.code
                else:
                    server.known = found
                    self._ready(server, now_ns)

    # --- what there is ---------------------------------------------------------------------------

    def status(self, now_ns: int) -> list[api.LlmServerStatus]:
        """Each server, in the order in which they were named."""
        told = []
        for status in self._placer.status(now_ns):
            server = self._servers[status.name]
            totals = server.totals
            told.append(
                api.LlmServerStatus(
                    url=server.url,
                    state=status.state.value,
                    reason=server.reason,
                    sessions=status.sessions,
                    in_flight=status.in_flight,
                    waiting=status.waiting,
                    kv_share=status.kv_share,
                    retry_in_ms=status.retry_in_ms,
                    answers=totals.requests[Kind.ANSWER],
                    warm_ups=totals.requests[Kind.WARM_UP],
                    retries=totals.retries,
                    faults=totals.faults,
                    sessions_left=totals.sessions_left,
                )
            )
        return told


def _is_fault(error: LlmServerError) -> bool:
    """Whether an error says that something is wrong with the server, and not with the request. A
    server that is busy only is none."""
    if isinstance(error, LlmBusy):
        return False
    return error.retryable or isinstance(error, LlmModelChanged | LlmKeyRefused)


def check_agreement(first: Capabilities, other: Capabilities) -> None:
    """Raises `LlmServersDiffer` unless a session could move from one server to the other."""

    def form(found: Capabilities) -> str:
        by_message = found.prompt is PromptForm.MESSAGES
        return "chat messages" if by_message else "prompts in tokens of ours"

    facts: Sequence[tuple[str, object, object]] = (
        ("model", first.model, other.model),
        ("model in replies", first.reply_model, other.reply_model),
        ("form of a conversation", form(first), form(other)),
        ("sight", first.sees, other.sees),
        ("hearing", first.hears, other.hears),
        ("context", *_contexts(first, other)),
    )
    for what, here, there in facts:
        if here != there:
            raise LlmServersDiffer(what, (first.url, here), (other.url, there))


def _contexts(first: Capabilities, other: Capabilities) -> tuple[int, int]:
    """Both contexts to compare. Sessions use the first one's: another that is not told may be the
    same, and where that one is only assumed, a longer one will do."""
    here, there = first.context_tokens, other.context_tokens
    if not other.context_measured or (not first.context_measured and there > here):
        there = here
    return here, there


def find_servers(
    urls: Sequence[str],
    join: Join,
    report: Report = lambda what, done, total: None,
    wait_s: float = WAIT_S,
) -> list[Server]:
    """All servers at `urls`. At least one answers; those that do not yet may join later.

    Waits up to `wait_s` for the first. Raises `LlmServersDiffer`, and what `join` raises: for any
    server that answers wrongly, and if none answers. One of several that fails, or falls silent
    while it is asked, is as one that does not answer: the others can serve.
    """
    until_s = time.monotonic() + wait_s
    told = ""
    absent = ABSENT if len(urls) == 1 else (*ABSENT, LlmFailed, LlmStalled, LlmConnectionLost)
    while True:
        servers = [_first_look(url, join, absent) for url in urls]
        if any(server.known is not None for server in servers):
            first = _reference(servers)
            for server in servers:
                if server.known is None:
                    log.warning("LLM server %s may join later: %s", server.url, server.reason)
                else:
                    check_agreement(first, server.capabilities)
            return servers
        if time.monotonic() + AGAIN_S > until_s:
            join(urls[0])  # raises what is wrong with it
        if servers[0].reason != told:
            told = servers[0].reason
            log.warning("%s; it is asked again, for %.0f s in all", told, wait_s)
        report(f"waiting for the LLM server ({servers[0].code})", 0, 0)
        time.sleep(AGAIN_S)


def _reference(servers: Sequence[Server]) -> Capabilities:
    """Of the first server that was reached, and told its context if any did."""
    known = [server.known.capabilities for server in servers if server.known is not None]
    return next((found for found in known if found.context_measured), known[0])


def _first_look(url: str, join: Join, absent: tuple[type[LlmServerError], ...]) -> Server:
    try:
        return Server(url, join(url))
    except absent as error:
        return Server(url, reason=str(error), code=error.code)
