"""When a node is left alone, for how long, and who may try it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.errors import BadSettings
from headstart.engine.placement import BreakerRules, BreakerState, CircuitBreaker

MS = 1_000_000
RULES = BreakerRules(
    failures=3,
    failure_share=0.5,
    window_ms=1_000,
    cool_down_ms=100,
    longest_cool_down_ms=450,
    calm_ms=5_000,
    probe_timeout_ms=50,
)


def opened(at_ns: int = 0) -> CircuitBreaker:
    breaker = CircuitBreaker(RULES)
    breaker.trip(at_ns)
    return breaker


def test_it_opens_at_the_last_of_enough_failures() -> None:
    """Two failures within the window are no reason; the third is."""
    breaker = CircuitBreaker(RULES)
    assert [breaker.failed(n * MS) for n in range(3)] == [False, False, True]
    assert breaker.state(3 * MS) is BreakerState.OPEN


def test_failures_outside_the_window_do_not_count() -> None:
    """One failure a second never opens it."""
    breaker = CircuitBreaker(RULES)
    assert not any(breaker.failed(n * 1_000 * MS) for n in range(20))


def test_a_small_share_of_failures_does_not_open_it() -> None:
    """Three failures among ten outcomes are a share of 0.3."""
    breaker = CircuitBreaker(RULES)
    for _ in range(7):
        breaker.succeeded(0)
    assert [breaker.failed(0) for _ in range(7)] == 6 * [False] + [True]  # 7 of 14


def test_half_open_lets_one_probe_through() -> None:
    """Of many who ask, one after the other, exactly one probes until it has reported."""
    breaker = opened()
    assert not breaker.probe(99 * MS)
    assert breaker.state(100 * MS) is BreakerState.HALF_OPEN
    assert [breaker.probe((100 + n) * MS) for n in range(10)] == [True] + 9 * [False]


def test_a_lost_probe_is_replaced() -> None:
    """A probe that never reports does not keep the node away for ever."""
    breaker = opened()
    assert breaker.probe(100 * MS)
    assert not breaker.probe(149 * MS)
    assert breaker.probe(150 * MS)


def test_a_probe_that_succeeds_closes_it() -> None:
    """And one that fails opens it again."""
    breaker = opened()
    breaker.probe(100 * MS)
    assert breaker.failed(101 * MS)
    assert breaker.state(102 * MS) is BreakerState.OPEN
    breaker.probe(301 * MS)
    breaker.succeeded(302 * MS)
    assert breaker.state(302 * MS) is BreakerState.CLOSED


def test_outcomes_of_old_work_say_nothing_while_it_is_open() -> None:
    """Work begun before it opened neither closes it nor makes the cool-down longer."""
    breaker = opened()
    breaker.succeeded(10 * MS)
    breaker.failed(20 * MS)
    assert breaker.retry_in_ms(20 * MS) == 80
    breaker.succeeded(120 * MS)  # half-open, but nobody probed
    assert breaker.state(120 * MS) is BreakerState.HALF_OPEN


def test_cool_downs_double_up_to_the_longest() -> None:
    """100, 200, 400, then 450 ms; after a calm time 100 ms again."""
    breaker, now_ms, waits = CircuitBreaker(RULES), 0, []
    for _ in range(5):
        breaker.trip(now_ms * MS)
        waits.append(breaker.retry_in_ms(now_ms * MS))
        now_ms += waits[-1]
        assert breaker.probe(now_ms * MS)
    assert waits == [100, 200, 400, 450, 450]
    breaker.succeeded(now_ms * MS)
    breaker.trip((now_ms + 5_000) * MS)
    assert breaker.retry_in_ms((now_ms + 5_000) * MS) == 100


def test_a_node_that_works_for_a_moment_waits_longer_each_time() -> None:
    """Closed for less than the calm time, the next cool-down goes on growing."""
    breaker = opened()
    breaker.close(100 * MS)
    breaker.trip(200 * MS)
    assert breaker.retry_in_ms(200 * MS) == 200


@given(st.randoms(use_true_random=False))
@settings(deadline=None)
def test_any_order_of_events_keeps_its_promises(chance: random.Random) -> None:
    """Random events: never two probes at once, never one while closed or in its cool-down, and no
    cool-down longer than the longest."""
    breaker, now_ns, probe_ns = CircuitBreaker(RULES), 0, -1
    for _ in range(200):
        now_ns += chance.choice((0, 1, 20, 60, 200, 3_000)) * MS
        before = breaker.state(now_ns)
        match chance.randrange(5):
            case 0:
                if breaker.probe(now_ns):
                    assert before is BreakerState.HALF_OPEN
                    assert probe_ns < 0 or now_ns - probe_ns >= RULES.probe_timeout_ms * MS
                    probe_ns = now_ns
            case 1:
                breaker.succeeded(now_ns)
            case 2:
                breaker.failed(now_ns)
            case 3:
                breaker.trip(now_ns)
            case _:
                breaker.close(now_ns)
        if breaker.state(now_ns) is not BreakerState.HALF_OPEN:
            probe_ns = -1
        assert breaker.retry_in_ms(now_ns) <= RULES.longest_cool_down_ms


@pytest.mark.parametrize(
    ("field", "value"),
    [("failures", 0), ("window_ms", 0), ("failure_share", 1.1), ("longest_cool_down_ms", 10)],
)
def test_rules_out_of_range_are_named(field: str, value: float) -> None:
    """The error says which setting, what was expected and what came."""
    with pytest.raises(BadSettings, match=field):
        BreakerRules(**{field: value})  # type: ignore[arg-type]
