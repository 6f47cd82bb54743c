"""The two clocks agree with each other and with milliseconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.media import timebase


@given(ms=st.integers(0, 10**8))
def test_milliseconds_survive_both_rates(ms: int) -> None:
    """Whole milliseconds go to samples of either rate and back unchanged."""
    assert timebase.hear_ms(timebase.hear_samples(ms)) == ms
    assert timebase.hear_ms_exact(timebase.hear_samples(ms)) == ms
    assert timebase.wire_ms_exact(timebase.wire_samples(ms)) == ms
    assert timebase.hear_ns(timebase.hear_samples(ms)) == ms * timebase.NS_PER_MS
    assert timebase.ns_to_wire_samples(ms * timebase.NS_PER_MS) == timebase.wire_samples(ms)


def test_conversions_round_down() -> None:
    """A sample short of a millisecond is not one; a nanosecond short of a sample is none."""
    assert timebase.hear_ms(15) == 0
    assert timebase.hear_ms(31) == 1
    assert timebase.ns_to_wire_samples(41_666) == 0
    assert timebase.ns_to_wire_samples(41_667) == 1


def test_the_rates_are_the_protocols_and_the_engines() -> None:
    """24 kHz on the wire, 16 kHz to hear, two bytes a sample."""
    assert timebase.wire_samples(1000) == 24_000
    assert timebase.hear_samples(1000) == 16_000
    assert timebase.hear_bytes(160) == 320
    assert timebase.ns_to_ms(1_234_567) == 1.235
