import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.protocol.limits import MAX_EVENT_PICTURES
from headstart.gateway.video.sampling import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH
from headstart.talk.long_file.choice import Allowance, ByMotion, Candidate, choosers


def candidate(at_s: float, level: int) -> Candidate:
    return Candidate(at_s, np.full((THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH), level, np.uint8))


@given(
    st.lists(
        st.tuples(st.integers(0, 119), st.integers(0, 255)),
        max_size=120,
        unique_by=lambda pair: pair[0],
    ),
    st.integers(1, 40),
    st.sampled_from(sorted(choosers())),
)
def test_every_policy_keeps_its_promises(
    made: list[tuple[int, int]], at_most: int, name: str
) -> None:
    """In order, no more than allowed, never nothing of something, the first always."""
    candidates = [candidate(at / 4, level) for at, level in sorted(made)]
    chosen = choosers()[name].choose(candidates, at_most)
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= at_most
    assert bool(chosen) == bool(candidates)
    if chosen:
        assert chosen[0] == 0


def test_a_still_part_has_one_picture() -> None:
    """What looks the same is shown once."""
    assert ByMotion().choose([candidate(n / 4, 100) for n in range(120)], 12) == [0]


def test_what_moves_gets_the_pictures() -> None:
    """Ten still seconds, then ten in which much happens: those have nearly all of them."""
    still = [candidate(n / 4, 100) for n in range(40)]
    moving = [candidate(10 + n / 4, (n * 61) % 256) for n in range(40)]
    chosen = ByMotion().choose(still + moving, 12)
    assert len(chosen) == 12
    assert sum(index >= 40 for index in chosen) >= 11


def test_a_short_glimpse_is_not_missed() -> None:
    """One different picture in thirty seconds is among the chosen."""
    candidates = [candidate(n / 4, 200 if n == 77 else 100) for n in range(120)]
    assert 77 in ByMotion().choose(candidates, 4)


def test_what_still_parts_leave_over_is_kept_for_later() -> None:
    """Twice the pictures at most, and never more than four a second."""
    allowance = Allowance(12)
    assert allowance.of(30) == 12
    allowance.took(1)
    assert allowance.of(30) == 23
    allowance.took(1)
    assert allowance.of(30) == 24
    allowance.took(24)
    assert allowance.of(30) == 12
    assert allowance.of(2) == pytest.approx(8)


def test_a_part_has_no_more_pictures_than_an_event_may() -> None:
    """Though a still part has left many over."""
    allowance = Allowance(60)
    allowance.took(1)
    assert allowance.of(30) == MAX_EVENT_PICTURES
