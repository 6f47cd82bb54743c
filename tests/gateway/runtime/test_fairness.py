import pytest

from headstart.gateway.runtime.fairness import BURST_S, RESERVE_S, SHARE, TURN_S, LoopTimeBudget


def test_a_microphone_never_waits() -> None:
    """25 messages a second of a millisecond each: a fortieth of the loop, for an hour."""
    share, now_s = LoopTimeBudget(0.0), 0.0
    for _ in range(25 * 3600):
        now_s += 0.04
        assert not share.spend(0.001, now_s)


def test_a_flood_gets_its_share_and_no_more() -> None:
    """Work without end for ten seconds takes `SHARE` of them, and the first burst."""
    share, now_s, worked_s = LoopTimeBudget(0.0), 0.0, 0.0
    while now_s < 10.0:
        now_s += 0.001
        worked_s += 0.001
        now_s += share.spend(0.001, now_s) or 0.0
    assert worked_s == pytest.approx(10 * SHARE + BURST_S, rel=0.05)


def test_others_get_a_turn_within_a_burst() -> None:
    """Inside what it may spend, a session stands back after every `TURN_S`."""
    share = LoopTimeBudget(0.0)
    waits = [share.spend(TURN_S / 2, 0.0) for _ in range(10)]
    assert waits == [None, 0.0] * 5


def test_a_long_message_is_paid_for_afterwards() -> None:
    """A second of work on one message keeps its reader away for four."""
    wait_s = LoopTimeBudget(0.0).spend(1.0, 1.0)
    assert wait_s == pytest.approx((1.0 - BURST_S) / SHARE)


def test_what_was_overdrawn_comes_back() -> None:
    """By `SHARE` of the time that passes, noticed when something is spent."""
    share = LoopTimeBudget(0.0)
    share.spend(1.0, 1.0)
    assert share.overdrawn
    share.spend(0.0, 1.0 + (1.0 - BURST_S) / SHARE + 0.01)
    assert not share.overdrawn


def test_packets_are_admitted_until_the_reserve_is_gone() -> None:
    """What cannot wait overdraws the bucket, by `RESERVE_S` and one packet at most; then a flood
    gets its share and no more."""
    share, now_s, worked_s, refused = LoopTimeBudget(0.0), 0.0, 0.0, 0
    while now_s < 20.0:
        now_s += 0.0002
        if share.admits(now_s):
            now_s += 0.0004
            worked_s += 0.0004
            share.spend(0.0004, now_s)
        else:
            refused += 1
    assert worked_s == pytest.approx(20 * SHARE + BURST_S + RESERVE_S, rel=0.02)
    assert refused > 20_000


def test_what_a_silent_network_delivers_at_once_is_admitted() -> None:
    """Twelve seconds of a microphone's packets in one go: their words are worth having."""
    share = LoopTimeBudget(0.0)
    for number in range(600):
        now_s = number * 0.0009
        assert share.admits(now_s)
        share.spend(0.0008, now_s + 0.0008)


def test_a_call_pays_for_its_packets_and_its_messages_together() -> None:
    """Whoever floods the one is read no further on the other."""
    share, now_s = LoopTimeBudget(0.0), 0.0
    while share.admits(now_s):
        now_s += 0.001
        share.spend(0.001, now_s)
    assert share.spend(0.0, now_s) == pytest.approx(RESERVE_S / SHARE, rel=0.02)
