"""How long it has been silent behind an answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.session.idle_clock import IdleClock

TIMEOUT = 80_000


def test_nothing_is_waited_for_before_an_answer() -> None:
    """However long it is silent."""
    clock = IdleClock()
    assert clock.look(0, TIMEOUT, busy=False) is None
    assert clock.look(10 * TIMEOUT, TIMEOUT, busy=False) is None


def test_silence_counts_from_the_last_sound_on() -> None:
    """What is said or played in between starts it anew; once it is time, another answer must come
    first."""
    clock = IdleClock()
    clock.arm()
    assert clock.look(1_000, TIMEOUT, busy=True) is None
    assert clock.look(2_000, TIMEOUT, busy=False) is None
    assert clock.look(70_000, TIMEOUT, busy=True) is None
    assert clock.look(71_000, TIMEOUT, busy=False) is None
    assert clock.look(71_000 + TIMEOUT - 1, TIMEOUT, busy=False) is None
    assert clock.look(71_000 + TIMEOUT, TIMEOUT, busy=False) == (71_000, 71_000 + TIMEOUT)
    assert clock.look(99 * TIMEOUT, TIMEOUT, busy=False) is None
    clock.arm()
    assert clock.look(100 * TIMEOUT, TIMEOUT, busy=False) is None, "counted from here"


@given(st.lists(st.integers(1, 3_000), min_size=60))
def test_packets_of_any_size_end_it_at_the_same_sample(packets: list[int]) -> None:
    """The silence told is as long as was asked for."""
    clock = IdleClock()
    clock.arm()
    now, told = 0, []
    for samples in [0, *packets, TIMEOUT]:
        now += samples
        silence = clock.look(now, TIMEOUT, busy=False)
        told += [] if silence is None else [silence]
    assert told == [(0, TIMEOUT)]
