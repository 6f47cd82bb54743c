"""A stretch of audio keeps its sample numbers while it grows and shrinks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.audio.open_utterance import AudioTail


def ramp(start: int, stop: int) -> bytes:
    return np.arange(start, stop).astype(np.int16).tobytes()


@given(steps=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), max_size=20))
def test_sample_numbers_hold_through_any_appends_and_drops(steps: list[tuple[int, int]]) -> None:
    """Sample n is the n-th ever appended, whatever was dropped before it."""
    tail, total = AudioTail(), 0
    for grow, drop in steps:
        tail.append(ramp(total, total + grow))
        total += grow
        tail.drop_before(tail.start_sample + drop)
        assert tail.end_sample == total
        held = tail.between(tail.start_sample, total)
        assert held == ramp(tail.start_sample, total)
        assert tail.size_bytes == len(held)


def test_audio_that_is_gone_is_not_made_up() -> None:
    """Asking for dropped samples is our mistake, and is caught."""
    tail = AudioTail()
    tail.append(ramp(0, 10))
    tail.drop_before(4)
    with pytest.raises(AssertionError):
        tail.between(3, 6)
