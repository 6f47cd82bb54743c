"""A client's stamps on our clock."""

from __future__ import annotations

from headstart.gateway.audio.client_clock import ClientClock


def test_delay_is_counted_from_the_quickest_packet() -> None:
    """A packet later than the quickest one seems captured by so much earlier than it came."""
    clock = ClientClock()
    assert clock.to_ours(1000.0, 5_000_000) == 5_000_000
    assert clock.to_ours(1020.0, 55_000_000) == 25_000_000  # 30 ms late
    assert clock.to_ours(1040.0, 40_000_000) == 40_000_000  # quicker than the first by 5 ms
