"""headstart.engine.asr.whisper.settings: derived sizes."""

from __future__ import annotations

from headstart.engine.asr.whisper.settings import WhisperSettings


def test_derived_sizes() -> None:
    """Heads share the width."""
    tiny = WhisperSettings(80, 384, 6, 1536, 4, 4, vocabulary=51_864)
    assert tiny.head_width == 64


def test_tiny_is_not_deep_and_base_is() -> None:
    """By the encoder's layers: four and six."""
    tiny = WhisperSettings(80, 384, 6, 1536, 4, 4, vocabulary=51_864)
    base = WhisperSettings(80, 512, 8, 2048, 6, 6, vocabulary=51_865)
    assert (tiny.is_deep, base.is_deep) == (False, True)
