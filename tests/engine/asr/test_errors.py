"""headstart.engine.asr.errors: what the caller is told."""

from __future__ import annotations

from headstart.engine.asr.errors import BadAudio
from headstart.engine.errors import EngineError


def test_bad_audio_says_what_and_why() -> None:
    """The sentence names the fault, the facts are attributes, the code is for the client."""
    error = BadAudio("type", "float32", "int16")
    assert isinstance(error, EngineError)
    assert str(error) == "audio type: expected float32, got int16"
    assert (error.code, error.what, error.expected, error.got) == (
        "bad_audio",
        "type",
        "float32",
        "int16",
    )
