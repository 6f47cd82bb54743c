"""Errors of a caller about the speech recogniser; weights that are wrong raise `BadWeights`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headstart.engine.errors import EngineError


class BadAudio(EngineError):
    """Samples of a wrong shape or type, or not finite."""

    code = "bad_audio"

    def __init__(self, what: str, expected: str, got: object) -> None:
        self.what, self.expected, self.got = what, expected, got
        super().__init__(f"audio {what}: expected {expected}, got {got}")


class UnknownLanguage(EngineError):
    """The recogniser knows several languages, not this one."""

    code = "unknown_language"

    def __init__(self, wanted: str, known: Sequence[str]) -> None:
        self.wanted, self.known = wanted, tuple(known)
        super().__init__(
            f"these ears know no language {wanted!r}: set ears_language to auto or to one of "
            f"{', '.join(self.known)}"
        )


class EnglishOnly(EngineError):
    """Another language was asked for, and the recogniser knows English only."""

    code = "english_only"

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(
            f"these ears hear English only, not {wanted!r}: set ears_language to en, or choose a "
            f"multilingual Whisper with --ears"
        )


class BadRecognizer(EngineError):
    """The Whisper that was chosen cannot be used."""

    code = "bad_ears"

    def __init__(self, directory: Path, cause: str) -> None:
        self.directory, self.cause = directory, cause
        super().__init__(
            f"the ears in {directory} cannot be used: {cause}; --ears takes the folder of a "
            f"Whisper, CTranslate2's (model.bin) or Hugging Face's (model.safetensors), with its "
            f"config.json and tokenizer.json"
        )


class NoSuchRecognizer(EngineError):
    """`--ears` names neither a folder nor weights."""

    code = "no_such_ears"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"--ears {name}: there is no such folder, and no weights of that name; known: "
            f"{', '.join(self.known)}"
        )
