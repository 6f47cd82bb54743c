"""The speech recogniser chosen with `--ears`: a Whisper's folder, weights by name, or `auto`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headstart.engine.asr.choice import Demand, choose
from headstart.engine.asr.chunk_timing import ChunkTimer
from headstart.engine.asr.errors import BadRecognizer
from headstart.engine.asr.languages import ENGLISH_CODE
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from headstart.engine.asr.whisper.prepared import Prepared
from headstart.engine.errors import BadWeights, DeviceFull
from headstart.engine.weights import Weight, WeightsMissing, locate, whispers

log = logging.getLogger("headstart.engine")

Load = Callable[[Path], Checkpoint]
"""Loads a Whisper's folder. Raises `BadWeights`, and `DeviceFull` where it is loaded onto a GPU."""


@dataclass(frozen=True)
class ChosenRecognizer:
    """A loaded recogniser, its folder, why it was chosen, if that was measured, and where it is."""

    recognizer: WhisperRecognizer
    directory: Path
    reason: str = ""
    device: str = "cpu"


def candidates(own: Path, language: str) -> tuple[Path, ...]:
    """What `auto` chooses from: fetched Whispers larger than `own`, the largest first, then `own`.

    Only those that hear `language`, if there are such. Larger ones that are not fetched are told to
    the log, with how to get them.
    """
    found: list[Path] = []
    own_bytes = next((w.size_bytes for w in whispers() if w.name == own.name), 0)
    for weight in sorted(whispers(), key=lambda w: w.size_bytes, reverse=True):
        if weight.size_bytes <= own_bytes or not _hears(weight, language):
            continue
        try:
            found.append(locate(weight.name))
        except WeightsMissing:
            log.info(
                "ears: %s (%.0f MB) is not fetched, so it is not tried: headstart models fetch %s",
                weight.name,
                weight.size_bytes / 1e6,
                weight.name,
            )
    hears = all(_hears(weight, language) for weight in whispers() if weight.name == own.name)
    return (*found, own) if hears or not found else tuple(found)


def _hears(weight: Weight, language: str) -> bool:
    return language == ENGLISH_CODE or not weight.english_only


def load_recognizer(
    directory: Path,
    language: str = ENGLISH_CODE,
    prepared: Prepared | None = None,
    load: Load | None = None,
) -> WhisperRecognizer:
    """Load a Whisper's folder, so that whatever is wrong with it is one sentence. `prepared`: as of
    `WhisperRecognizer.load`, or `load`, which may load it onto a GPU.

    Raises `BadRecognizer`, `UnknownLanguage`, `EnglishOnly`, and what `load` does.
    """
    with _one_sentence(directory):
        made = (
            load(directory) if load is not None else load_checkpoint(directory, prepared=prepared)
        )
        recognizer = WhisperRecognizer.over(made, directory, language=language)
    return _told(recognizer, directory, language)


def load_best(
    directories: Sequence[Path], language: str, demand: Demand, load: Load = load_checkpoint
) -> ChosenRecognizer:
    """Of `directories`, best first, the first that this machine has time for, else the last.

    One that cannot be used is passed over, unless it is the last. Raises as `load_recognizer`.
    """
    timing = _Timing(directories, demand, load)
    choice = choose([directory.name for directory in directories], timing.chunk_ms, demand)
    directory = directories[choice.place]
    log.info("ears: %s is chosen: %s", directory.name, choice.reason)
    try:
        recognizer = _loaded(timing.loaded, directory, language, load)
    except (BadRecognizer, DeviceFull) as error:
        later = directories[choice.place + 1 :]
        if not later:
            raise
        log.warning("%s", error)
        return load_best(later, language, demand, load)
    return ChosenRecognizer(recognizer, directory, choice.reason)


def _loaded(
    checkpoint: Checkpoint | None, directory: Path, language: str, load: Load
) -> WhisperRecognizer:
    if checkpoint is None:
        return load_recognizer(directory, language, load=load)
    with _one_sentence(directory):
        recognizer = WhisperRecognizer.over(checkpoint, directory, language=language)
    return _told(recognizer, directory, language)


class _Timing:
    """Loads and times one of `directories` after the other; `loaded`: the newest, while no other
    was asked for."""

    def __init__(self, directories: Sequence[Path], demand: Demand, load: Load) -> None:
        self._directories, self._demand, self._load = directories, demand, load
        self.loaded: Checkpoint | None = None

    def chunk_ms(self, place: int) -> float | None:
        self.loaded = None  # first: two at once would need the memory of both
        directory = self._directories[place]
        try:
            with _one_sentence(directory):
                checkpoint = self._load(directory)
            timer = ChunkTimer(checkpoint, self._demand.chunk_ms)
            took_ms = timer.median_ms(self._demand.limit_ms)
        except (BadRecognizer, DeviceFull) as error:
            log.warning("%s", error)
            return None
        if took_ms <= self._demand.limit_ms:
            self.loaded = checkpoint
        return took_ms


@contextmanager
def _one_sentence(directory: Path) -> Iterator[None]:
    """What is wrong with a folder as `BadRecognizer`."""
    try:
        yield
    except BadWeights as error:
        raise BadRecognizer(directory, str(error)) from error
    except OSError as error:
        raise BadRecognizer(directory, f"{error.filename}: {error.strerror}") from error


def _told(recognizer: WhisperRecognizer, directory: Path, language: str) -> WhisperRecognizer:
    log.info("ears: %s, %s; language: %s", directory.name, recognizer.about, language)
    return recognizer
