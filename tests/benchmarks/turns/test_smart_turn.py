"""Smart-turn's features, without its weights."""

from __future__ import annotations

import numpy as np

from headstart.benchmarks.turns.smart_turn import MELS, RATE_HZ, _mel_filters


def test_mel_filters_are_triangles_of_equal_area() -> None:
    """80 of them over 8 kHz, each wider and lower than the one before, beginning at 0 Hz."""
    filters = _mel_filters()
    assert filters.shape == (MELS, 201)
    assert (filters >= 0).all()
    peaks = filters.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all()
    wide = filters[40:].sum(axis=1) * (RATE_HZ / 2 / 200)
    assert np.allclose(wide, 1.0, atol=0.1)
