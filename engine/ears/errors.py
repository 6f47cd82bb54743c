"""What a caller can get wrong about the ears; weights that are wrong raise `BadWeights`."""

from __future__ import annotations

from engine.errors import EngineError


class BadAudio(EngineError):
    """Samples of a wrong shape or type, or not finite."""

    code = "bad_audio"

    def __init__(self, what: str, expected: str, got: object) -> None:
        self.what, self.expected, self.got = what, expected, got
        super().__init__(f"audio {what}: expected {expected}, got {got}")
