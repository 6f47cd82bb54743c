"""Retries are few, late, and cost a budget that only work earns."""

from __future__ import annotations

import pytest

from headstart.engine.errors import BadSettings
from headstart.engine.placement import RetryBudget, RetryRules


def test_work_is_sent_at_most_so_often() -> None:
    """With three attempts, two retries; the first waits less than the second may."""
    budget = RetryBudget(RetryRules(attempts=3, delay_ms=100, longest_delay_ms=1_000))
    first, second = budget.retry("a", 1), budget.retry("a", 2)
    assert first is not None
    assert second is not None
    assert 50 <= first <= 100 <= second <= 200
    assert budget.retry("a", 3) is None


def test_waits_have_a_ceiling() -> None:
    """The wait doubles up to the longest, whatever the number of attempts."""
    budget = RetryBudget(RetryRules(attempts=100, most=100, delay_ms=50, longest_delay_ms=400))
    waits = [budget.retry("a", attempt) for attempt in range(1, 60)]
    assert all(wait is not None and wait <= 400 for wait in waits)


def test_waits_differ_between_sessions_and_are_the_same_each_time() -> None:
    """Sessions that lost the same node do not all come back at the same instant."""
    rules = RetryRules(most=1_000, delay_ms=1_000, longest_delay_ms=1_000)
    waits = [RetryBudget(rules).retry(f"s{n}", 1) for n in range(50)]
    assert len(set(waits)) > 40
    assert waits == [RetryBudget(rules).retry(f"s{n}", 1) for n in range(50)]


def test_a_server_in_trouble_gets_a_fifth_more_work_and_no_more() -> None:
    """Everything fails: of 1,000 pieces of work the budget retries its store and a fifth."""
    budget = RetryBudget(RetryRules(share=0.2, most=10))
    retried = 0
    for number in range(1_000):
        budget.first()
        retried += budget.retry(str(number), 1) is not None
    assert 200 <= retried <= 210


@pytest.mark.parametrize(
    ("field", "value"), [("attempts", 0), ("share", 2.0), ("most", 0), ("longest_delay_ms", 1)]
)
def test_rules_out_of_range_are_named(field: str, value: float) -> None:
    """The error says which setting, what was expected and what came."""
    with pytest.raises(BadSettings, match=field):
        RetryRules(**{field: value})  # type: ignore[arg-type]
