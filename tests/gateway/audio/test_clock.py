"""The two clocks agree with each other and with milliseconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.audio import clock


@given(ms=st.integers(0, 10**8))
def test_milliseconds_survive_both_rates(ms: int) -> None:
    """Whole milliseconds go to samples of either rate and back unchanged."""
    assert clock.engine_samples_to_ms(clock.ms_to_engine_samples(ms)) == ms
    assert clock.engine_samples_to_exact_ms(clock.ms_to_engine_samples(ms)) == ms
    assert clock.client_samples_to_exact_ms(clock.ms_to_client_samples(ms)) == ms
    assert clock.engine_samples_to_ns(clock.ms_to_engine_samples(ms)) == ms * clock.NS_PER_MS
    assert clock.ns_to_client_samples(ms * clock.NS_PER_MS) == clock.ms_to_client_samples(ms)


def test_conversions_round_down() -> None:
    """A sample short of a millisecond is not one; a nanosecond short of a sample is none."""
    assert clock.engine_samples_to_ms(15) == 0
    assert clock.engine_samples_to_ms(31) == 1
    assert clock.ns_to_client_samples(41_666) == 0
    assert clock.ns_to_client_samples(41_667) == 1


def test_the_rates_are_the_protocols_and_the_engines() -> None:
    """24 kHz on the wire, 16 kHz to hear, two bytes a sample."""
    assert clock.ms_to_client_samples(1000) == 24_000
    assert clock.ms_to_engine_samples(1000) == 16_000
    assert clock.engine_samples_to_bytes(160) == 320
    assert clock.ns_to_ms(1_234_567) == 1.235
