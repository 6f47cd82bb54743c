"""The ears that a person chose with `--ears`: a Whisper's folder, or weights by name."""

from __future__ import annotations

import logging
from pathlib import Path

from headstart.engine.asr.errors import BadEars, NoSuchEars
from headstart.engine.asr.languages import ENGLISH_CODE
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.errors import BadWeights
from headstart.engine.weights import Progress, ensure, known_ears

log = logging.getLogger("headstart.engine")


def find_ears(name: str, progress: Progress | None = None) -> Path:
    """The folder that `name` stands for; weights of that name are fetched if need be.

    Raises `NoSuchEars`, or `FetchFailed`.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if name not in known_ears():
        raise NoSuchEars(name, known_ears())
    return ensure(name, progress)


def load_ears(directory: Path, language: str = ENGLISH_CODE) -> WhisperRecognizer:
    """Load a Whisper's folder, so that whatever is wrong with it is one sentence.

    Raises `BadEars`, `UnknownLanguage`, `EnglishOnly`.
    """
    try:
        ears = WhisperRecognizer.load(directory, language=language)
    except BadWeights as error:
        raise BadEars(directory, str(error)) from error
    except OSError as error:
        raise BadEars(directory, f"{error.filename}: {error.strerror}") from error
    log.info("ears: %s, %s; language: %s", directory.name, ears.about, language)
    return ears
