"""Where sound belongs whose timestamps jump."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.talk.media.gaps import GAP_MAX_S, GAPS_MAX_S, Gaps, beginning_s

FRAME_S = 0.02


def filled(times: list[float | None], start_s: float = 0.0) -> list[float]:
    gaps = Gaps(start_s)
    return [round(gaps.before(at_s, FRAME_S), 6) for at_s in times]


@pytest.mark.parametrize("start_s", [-1.0, 0.0, 36_000.0])
def test_wherever_timestamps_begin_nothing_is_filled(start_s: float) -> None:
    """Frames one after the other, from any first timestamp on."""
    assert filled([start_s + i * FRAME_S for i in range(9)], start_s) == [0.0] * 9


def test_a_hole_is_filled_once() -> None:
    """Two seconds are missing behind the second frame; what follows is where it belongs."""
    times: list[float | None] = [0.0, 0.02, 2.04, 2.06]
    assert filled(times) == [0.0, 0.0, 2.0, 0.0]


def test_sound_that_begins_after_the_pictures_waits_for_them() -> None:
    """The file's time begins with the pictures."""
    assert filled([11.5, 11.52], 10.0) == [1.5, 0.0]


def test_timestamps_that_begin_anew_leave_no_hole() -> None:
    """Backwards, or further than any hole: from there on they are the new measure."""
    times: list[float | None] = [100.0, 0.0, 0.02, 5000.0, 5000.02, 5001.04]
    assert filled(times, 100.0) == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_missing_timestamps_are_the_next() -> None:
    """None of them, or some."""
    assert filled([None] * 4) == [0.0] * 4
    assert filled([0.0, None, None, 0.06, None]) == [0.0] * 5


@given(
    st.lists(
        st.one_of(st.none(), st.floats(-1e12, 1e12), st.floats(0, 100)), min_size=1, max_size=400
    )
)
def test_silence_is_bounded_whatever_the_timestamps(times: list[float | None]) -> None:
    """Never negative, never longer than a hole may be, and never more than that in all."""
    gaps = Gaps(0.0)
    silences = [gaps.before(at_s, FRAME_S) for at_s in times]
    assert all(math.isfinite(each) and 0 <= each <= GAP_MAX_S for each in silences)
    assert sum(silences) <= GAPS_MAX_S + 1e-3


def test_a_files_time_begins_with_its_first_stream() -> None:
    """The sound's alone if the other's is unknown or from another world."""
    assert beginning_s(12.0, 10.0) == 10.0
    assert beginning_s(10.0, 12.0) == 10.0
    assert beginning_s(10.0, None) == 10.0
    assert beginning_s(10.0, 10_000.0) == 10.0
    assert beginning_s(None, None) == 0.0
