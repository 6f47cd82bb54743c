"""A Whisper by the name that `--ears` gives it. No torch: it is found before that is imported."""

from __future__ import annotations

from pathlib import Path

from headstart.engine.asr.errors import NoSuchRecognizer
from headstart.engine.weights import Progress, ensure, known_recognizers

AUTO = "auto"
"""In place of a name: the largest fetched Whisper that this machine has time for."""


def find_recognizer(name: str, progress: Progress | None = None) -> Path:
    """The folder that `name` stands for; weights of that name are fetched if need be.

    Raises `NoSuchRecognizer`, or `FetchFailed`.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if name not in known_recognizers():
        raise NoSuchRecognizer(name, known_recognizers())
    return ensure(name, progress)
