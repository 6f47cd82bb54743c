"""Planning of steps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.scheduler import NS_PER_MS, Plan, Request, Scheduler

POOL = BlockPool(num_blocks=100_000, block_size=16)


def make_stream(pending: int, name: str = "s") -> Stream:
    stream = Stream(name, POOL, vocab_size=10, limit=1_000_000)
    stream.append([1] * pending)
    return stream


def carry_out(plan: Plan) -> None:
    for work in plan.works:
        work.stream.reserve(work.num_scheduled_tokens)
        work.stream.advance(work.num_scheduled_tokens)


def scheduled(plan: Plan) -> dict[str, int]:
    return {work.stream.name: work.num_scheduled_tokens for work in plan.works}


def test_decode_comes_first_whatever_the_deadlines() -> None:
    """A generating stream with one pending token is in every step, before urgent prefill."""
    late = Request(make_stream(1, "decode"), deadline_ns=10**12, generating=True)
    urgent = Request(make_stream(500, "prefill"), deadline_ns=0)
    plan = Scheduler(64).plan([urgent, late], now_ns=0)
    assert [work.stream.name for work in plan.works] == ["decode", "prefill"]
    assert (plan.decode_tokens, plan.prefill_tokens) == (1, 63)


def test_prefill_goes_by_deadline_within_the_budget() -> None:
    """The earliest deadline gets what it needs, the next one the rest of the budget."""
    requests = [
        Request(make_stream(50, "third"), deadline_ns=300),
        Request(make_stream(40, "first"), deadline_ns=100),
        Request(make_stream(40, "second"), deadline_ns=200),
    ]
    assert scheduled(Scheduler(64).plan(requests, now_ns=0)) == {"first": 40, "second": 24}


def test_logits_are_wanted_for_the_last_pending_token_only() -> None:
    """A chunk of a longer prefill asks for none; the chunk that ends it does."""
    request = Request(make_stream(100), deadline_ns=0, wants_logits=True)
    scheduler = Scheduler(64)
    first = scheduler.plan([request], now_ns=0)
    assert [work.wants_logits for work in first.works] == [False]
    carry_out(first)
    last = scheduler.plan([request], now_ns=1)
    assert [work.wants_logits for work in last.works] == [True]


def test_prefill_without_an_answer_asks_for_no_logits() -> None:
    """Words prefilled while somebody speaks cost no output head; a turn's suffix does."""
    plan = Scheduler(64).plan(
        [
            Request(make_stream(3, "listening"), 0),
            Request(make_stream(3, "answering"), 1, generating=True),
        ],
        now_ns=0,
    )
    assert {work.stream.name: work.wants_logits for work in plan.works} == {
        "listening": False,
        "answering": True,
    }


def test_many_decoding_sessions_do_not_lock_out_prefill() -> None:
    """200 answers at once all advance, and prefill still gets a quarter of the budget."""
    requests = [Request(make_stream(1, f"d{i}"), 0, generating=True) for i in range(200)]
    plan = Scheduler(64).plan([*requests, Request(make_stream(90, "new"), 0)], now_ns=0)
    assert (plan.decode_tokens, plan.prefill_tokens) == (200, 16)


def test_nothing_pending_gives_an_empty_plan() -> None:
    """An idle engine has no step to run."""
    assert not Scheduler(64).plan([Request(make_stream(0), 0, generating=True)], now_ns=0)


def test_an_endless_stream_of_urgent_work_does_not_starve_a_patient_one() -> None:
    """A stream with a far deadline is served within max_wait of virtual time, under overload."""
    scheduler = Scheduler(token_budget=8, max_wait_ms=100)
    patient = make_stream(8, "patient")
    step_ns = 10 * NS_PER_MS
    for step in range(30):
        now_ns = step * step_ns
        fresh = Request(make_stream(20, f"urgent{step}"), deadline_ns=0)
        plan = scheduler.plan([fresh, Request(patient, deadline_ns=1 << 62)], now_ns)
        carry_out(plan)
        if patient.pending == 0:
            assert now_ns <= 100 * NS_PER_MS + step_ns
            return
    raise AssertionError("the patient stream was never served")


@dataclass
class Load:
    """One session of the property test: `arrivals` tokens come at each step."""

    arrivals: int
    deadline_ns: int
    generating: bool


loads = st.lists(
    st.builds(Load, st.integers(0, 30), st.integers(-(10**9), 10**12), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(loads, st.integers(1, 64))
def test_every_session_is_served_again_and_again(sessions: list[Load], budget: int) -> None:
    """Under any overload, deadlines and order: the budget holds, decode rows are never left out,
    and no stream waits longer than max_wait and two rounds."""
    scheduler = Scheduler(budget, max_wait_ms=50)
    streams = [make_stream(1, str(i)) for i in range(len(sessions))]
    last_served = dict.fromkeys(streams, 0)
    # A stream overtakes all others' deadlines after 50 ms = 5 steps, then they go in turns.
    longest_wait_steps = 6 + 2 * len(sessions)
    for step in range(3 * longest_wait_steps):
        requests = []
        for stream, load in zip(streams, sessions, strict=True):
            stream.append([1] * load.arrivals)
            requests.append(Request(stream, load.deadline_ns, load.generating))
        plan = scheduler.plan(requests[:: 1 if step % 2 else -1], step * 10 * NS_PER_MS)
        assert plan.prefill_tokens <= max(budget, scheduler.min_prefill_tokens)
        decoding = {r.stream for r in requests if r.generating and r.stream.pending == 1}
        assert decoding == {work.stream for work in plan.works[: plan.decode_tokens]}
        for work in plan.works:
            assert 0 < work.num_scheduled_tokens <= work.stream.pending
        for stream in streams:
            idle = stream.pending == 0
            if idle or stream in {work.stream for work in plan.works}:
                last_served[stream] = step
            assert step - last_served[stream] <= longest_wait_steps
        carry_out(plan)


@pytest.mark.parametrize(
    ("probe", "rows"), [(0, (0, None)), (63, (63, None)), (64, (None, 0)), (79, (None, 15))]
)
def test_a_probed_place_is_named_in_the_step_that_computes_it(
    probe: int, rows: tuple[int | None, int | None]
) -> None:
    """A prefill of 100 tokens in steps of 64 probes its 64th in the first step, as row 63, and its
    80th in the second, as row 15; and each in one step only."""
    request = Request(make_stream(100), deadline_ns=0, probe=probe)
    scheduler = Scheduler(64)
    for now_ns, row in enumerate(rows):
        plan = scheduler.plan([request], now_ns)
        assert [work.probe_row for work in plan.works] == [row]
        carry_out(plan)


def test_steps_follow_a_target_time() -> None:
    """A step that takes 2 ms a token is planned for some 50 of them where 100 ms are wanted; decode
    rows are never left out; without a target the budget stays."""
    scheduler = Scheduler(512, step_target_ms=100)
    prefill = Request(make_stream(50_000, "prefill"), deadline_ns=0)
    decode = Request(make_stream(1, "decode"), deadline_ns=0, generating=True)
    took_ms = []
    for step in range(40):
        plan = scheduler.plan([prefill, decode], now_ns=step)
        tokens = plan.prefill_tokens + plan.decode_tokens
        took_ms.append(2 * tokens)
        assert plan.decode_tokens == 1
        assert plan.prefill_tokens > 0
        scheduler.observe(plan, took_ms[-1] * NS_PER_MS)
    assert all(80 <= took <= 120 for took in took_ms[10:])
    always = Scheduler(512)
    always.observe(always.plan([prefill], now_ns=0), 10**12)
    assert always.token_budget == 512
