"""headstart.benchmarks.peers.playback: what a person hears of sound that comes in pieces."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.benchmarks.peers.playback import Playback, first_audible_s

RATE_HZ = 24_000


def loud(seconds: float) -> npt.NDArray[np.int16]:
    return np.full(round(seconds * RATE_HZ), 6000, np.int16)


def quiet(seconds: float) -> npt.NDArray[np.int16]:
    return np.full(round(seconds * RATE_HZ), 20, np.int16)


def test_silence_before_the_answer_is_not_its_sound() -> None:
    """It is heard when its first audible sample is played, not when its first piece comes."""
    playback = Playback(RATE_HZ)
    playback.add(10.0, quiet(0.3))
    assert (playback.began_at_s, playback.first_audible_at_s) == (10.0, None)
    playback.add(10.1, np.concatenate([quiet(0.05), loud(0.5)]))
    assert playback.first_audible_at_s == pytest.approx(10.35)
    assert playback.ends_at_s == pytest.approx(10.85)


def test_a_late_piece_leaves_a_gap() -> None:
    """And what follows is heard later."""
    playback = Playback(RATE_HZ)
    playback.add(1.0, loud(0.2))
    playback.add(2.0, loud(0.2))
    assert playback.ends_at_s == pytest.approx(2.2)
    assert playback.heard_s(1.1) == pytest.approx(0.1)


def test_nothing_is_heard_after_a_stop() -> None:
    """Not what had come, nor what comes later."""
    playback = Playback(RATE_HZ)
    playback.add(5.0, loud(2.0))
    playback.stop(5.5)
    playback.add(5.6, loud(1.0))
    assert playback.heard_s(100.0) == pytest.approx(0.5)
    assert playback.played_ms(100.0) == 500


def test_a_stop_before_the_first_audible_sample() -> None:
    """Then nothing of it was heard."""
    playback = Playback(RATE_HZ)
    playback.add(5.0, np.concatenate([quiet(0.5), loud(0.5)]))
    playback.stop(5.2)
    assert playback.first_audible_at_s is None
    assert playback.heard_s(100.0) == 0.0


def test_no_sound_at_all() -> None:
    """Then nothing began, and nothing was played."""
    playback = Playback(RATE_HZ)
    playback.add(1.0, np.empty(0, np.int16))
    playback.stop(2.0)
    assert playback.began_at_s is None
    assert playback.played_ms(3.0) == 0
    assert playback.heard_s(3.0) == 0.0


@given(st.floats(0, 1.5), st.floats(0.02, 1))
def test_where_sound_begins(silence_s: float, sound_s: float) -> None:
    """To 10 ms."""
    found = first_audible_s(np.concatenate([quiet(silence_s), loud(sound_s)]), RATE_HZ)
    assert found == pytest.approx(silence_s, abs=0.011)
    assert first_audible_s(quiet(silence_s), RATE_HZ) is None
