"""headstart.engine.asr.whisper.settings: derived sizes."""

from __future__ import annotations

from headstart.engine.asr.whisper.settings import WhisperSettings


def test_derived_sizes() -> None:
    """Heads share the width."""
    tiny = WhisperSettings(80, 384, 6, 1536, 4, 4, vocabulary=51_864)
    assert tiny.head_width == 64
