"""engine.ears.settings: derived sizes."""

from __future__ import annotations

from engine.ears.settings import WhisperSettings


def test_derived_sizes() -> None:
    """Head width divides the width; the English-only vocabulary tells itself apart by size."""
    tiny = WhisperSettings(80, 384, 6, 1536, 4, 4, vocabulary=51_864)
    assert tiny.head_width == 64
    assert not tiny.multilingual
    assert WhisperSettings(80, 384, 6, 1536, 4, 4, vocabulary=51_865).multilingual
