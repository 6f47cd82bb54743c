"""Planning of steps: which tokens of which streams run next. No I/O, no clock, no torch.

A step takes every decode row first (a generating stream with one pending token), so that no answer
waits for another session's prefill longer than one step. The rest of the token budget, and at least
a quarter of it, goes to prefill by earliest deadline; a long prefill is split into chunks.

No stream starves: streams are ranked by their deadline clamped to [since, since + max_wait], where
`since` is when the stream was last served (or first seen waiting). Deadlines of streams that were
served later are clamped to later instants, however early they are. Being served renews `since`, so
a stream that always wants more cannot stay in front either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.batch_size import BatchSize

NS_PER_MS = 1_000_000
LEAST_BUDGET = 8  # tokens; a step of fewer is hardly shorter
PREFILL_SHARE = 4  # prefill gets at least 1/4 of the budget, however many sessions decode


@dataclass(frozen=True, slots=True)
class Request:
    """One stream's request for the next step. Streams without pending tokens are skipped."""

    stream: Stream
    deadline_ns: int
    generating: bool = False
    wants_logits: bool = False  # of its last pending token; implied by `generating`
    probe: int | None = None  # index of another token whose logits are wanted


@dataclass(frozen=True, slots=True)
class Work:
    """One stream's part of a step: its next `num_scheduled_tokens` pending tokens."""

    stream: Stream
    num_scheduled_tokens: int
    wants_logits: bool
    deadline_ns: int
    probe_row: int | None = None  # which of these tokens is the probe


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one step, decode rows first."""

    works: tuple[Work, ...] = ()
    decode_tokens: int = 0
    prefill_tokens: int = 0

    def __bool__(self) -> bool:
        return bool(self.works)


class Scheduler:
    """Plans steps of `token_budget` tokens, or more if more sessions than that decode at once.

    With a `step_target_ms` it plans fewer, so many that steps take about that time, down to
    `LEAST_BUDGET`: what `observe` is told decides.

    The only other state is the time since which each stream has been waiting. A stream that is
    missing from a call is forgotten.
    """

    def __init__(
        self, token_budget: int, max_wait_ms: int = 2_000, step_target_ms: float = 0.0
    ) -> None:
        assert token_budget > 0
        least = min(LEAST_BUDGET, token_budget)
        self._budget = BatchSize(token_budget, step_target_ms, least)
        self.max_wait_ns = max_wait_ms * NS_PER_MS
        self._since_ns: dict[Stream, int] = {}

    @property
    def token_budget(self) -> int:
        return self._budget.size

    @property
    def min_prefill_tokens(self) -> int:
        return max(1, self.token_budget // PREFILL_SHARE)

    def observe(self, plan: Plan, took_ns: int) -> None:
        """Learn what a step took. One without prefill tells nothing of the budget."""
        if plan.prefill_tokens:
            self._budget.observe(plan.decode_tokens + plan.prefill_tokens, took_ns)

    def plan(self, requests: Iterable[Request], now_ns: int) -> Plan:
        """Plan the next step for `requests`, at most one per stream."""
        waiting = [request for request in requests if request.stream.pending > 0]
        streams = {request.stream for request in waiting}
        assert len(streams) == len(waiting), "a stream was requested twice"
        self._since_ns = {stream: self._since_ns.get(stream, now_ns) for stream in streams}
        decode = [r for r in waiting if r.generating and r.stream.pending == 1]
        prefill = [r for r in waiting if not (r.generating and r.stream.pending == 1)]
        prefill.sort(key=self._rank)
        room = max(self.token_budget - len(decode), self.min_prefill_tokens)
        works = [Work(r.stream, 1, True, r.deadline_ns) for r in decode]
        for request in prefill:
            if room == 0:
                break
            count = min(room, request.stream.pending)
            whole = count == request.stream.pending
            wants_logits = whole and (request.generating or request.wants_logits)
            probe_row = _probe_row(request, count)
            works.append(Work(request.stream, count, wants_logits, request.deadline_ns, probe_row))
            room -= count
        for work in works:
            self._since_ns[work.stream] = now_ns
        prefilled = sum(work.num_scheduled_tokens for work in works[len(decode) :])
        return Plan(tuple(works), len(decode), prefilled)

    def _rank(self, request: Request) -> tuple[int, int]:
        since_ns = self._since_ns[request.stream]
        due_ns = min(max(request.deadline_ns, since_ns), since_ns + self.max_wait_ns)
        return due_ns, since_ns


def _probe_row(request: Request, count: int) -> int | None:
    """The probe's number among the next `count` pending tokens, if it is one of them."""
    if request.probe is None:
        return None
    row = request.probe - request.stream.kv_len
    return row if 0 <= row < count else None
