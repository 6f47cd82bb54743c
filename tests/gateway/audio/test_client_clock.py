"""A client's stamps on our clock."""

from __future__ import annotations

from headstart.gateway.audio.client_clock import ClientClock


def test_delay_is_counted_from_the_quickest_packet() -> None:
    """A packet later than the quickest one seems captured by so much earlier than it came."""
    clock = ClientClock()
    assert clock.to_ours(1000.0, 5_000_000) == 5_000_000
    assert clock.to_ours(1020.0, 55_000_000) == 25_000_000  # 30 ms late
    assert clock.to_ours(1040.0, 40_000_000) == 40_000_000  # quicker than the first by 5 ms


def test_a_look_learns_nothing() -> None:
    """A stamp is placed by what packets have told, however wrong it is; before them, nowhere."""
    clock = ClientClock()
    assert clock.look(5) is None
    clock.to_ours(1_000, 3_000_000_000)
    assert clock.look(1_500) == 3_500_000_000
    assert clock.look(9_999_999) == 10_001_999_000_000
    assert clock.to_ours(1_100, 3_150_000_000) == 3_100_000_000
