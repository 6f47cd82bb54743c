"""The speech recogniser that the settings ask for: on the CPU's kernels, or on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from headstart.engine.asr.choice import Demand
from headstart.engine.asr.chosen import ChosenRecognizer, Load, load_best, load_recognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from headstart.engine.config import HEARD_TOGETHER_ON_CPU, HEARD_TOGETHER_ON_GPU, EngineConfig
from headstart.engine.device.choice import CPU, Choice, on_gpu_of
from headstart.engine.errors import DeviceFull, NoDevice
from headstart.engine.interfaces import SpeechRecognizer
from headstart.engine.process.packed_ears import packed_recognizer
from headstart.engine.process.worker_thread import WorkerThread
from headstart.engine.session.recognition import PassSharing

log = logging.getLogger("headstart.engine")


def chosen_recognizer(
    directories: Sequence[Path], config: EngineConfig, device: Choice
) -> ChosenRecognizer:
    """Of Whispers' folders, best first, the first that this machine has time for. `device`: of
    `recognising_device`.

    A GPU without room for it, where `ears_device` is "auto", is a warning, and the CPU recognises.
    Raises `BadRecognizer`, `UnknownLanguage`, `EnglishOnly`, `NoDevice`.
    """
    if device.name == CPU.name:
        return _on_cpu(directories, config)
    try:
        found = _loaded(directories, config, on_device(torch.device(device.name)))
    except DeviceFull:
        missing = "its memory has no room for the speech recogniser"
        if config.ears_device != "auto":
            remedy = "use a smaller one (--ears)"
            raise NoDevice(device.name, missing, remedy, instead="--ears-device cpu") from None
        log.warning("ears: %s: %s; the CPU recognises speech instead", device.name, missing)
        torch.cuda.empty_cache()
        return _on_cpu(directories, config)
    log.info("ears: on %s, %s", device.name, device.reason)
    return replace(found, device=device.name)


def on_device(device: torch.device) -> Load:
    """Loads a Whisper onto a GPU, in fp16. Raises `BadWeights`, and `DeviceFull`."""
    from headstart.engine.device.whisper import placed, whisper_place

    def load(directory: Path) -> Checkpoint:
        exact = load_checkpoint(directory, exact=True)
        try:
            return placed(exact, whisper_place(device))
        except torch.OutOfMemoryError:
            raise DeviceFull(str(device)) from None

    return load


def _on_cpu(directories: Sequence[Path], config: EngineConfig) -> ChosenRecognizer:
    if len(directories) == 1:
        return ChosenRecognizer(packed_recognizer(directories[0], config), directories[0])
    return _loaded(directories, config, load_checkpoint)


def _loaded(directories: Sequence[Path], config: EngineConfig, load: Load) -> ChosenRecognizer:
    if len(directories) == 1:
        (directory,) = directories
        recognizer = load_recognizer(directory, config.ears_language, load=load)
        return ChosenRecognizer(recognizer, directory)
    demand = Demand(config.ears_sessions, config.chunk_ms)
    return load_best(directories, config.ears_language, demand, load)


def recognition_worker(
    recognizer: SpeechRecognizer, config: EngineConfig, decoder: object = None
) -> WorkerThread | None:
    """The recogniser's thread, if the settings want one; on "auto" if it, or `decoder`, is on a
    GPU. Not for a recogniser whose results are embeddings: it puts them into its session's stream,
    which belongs to the steps."""
    if not isinstance(recognizer, WhisperRecognizer):
        return None
    on_gpu = recognizer.is_on_gpu or on_gpu_of(decoder) is not None
    beside = on_gpu if config.recognition == "auto" else config.recognition == "beside"
    return WorkerThread("recogniser") if beside else None


def heard_together(recognizer: SpeechRecognizer, config: EngineConfig) -> PassSharing:
    """How many sessions share a pass, by the settings, or by where the recogniser is.

    On a CPU a pass of four takes three quarters of the sum of its sounds' times, and all wait for
    its end, so sounds share one only where many wait (docs/performance.md#shared-passes)."""
    if config.heard_together:
        return PassSharing(config.heard_together)
    on_gpu = isinstance(recognizer, WhisperRecognizer) and recognizer.is_on_gpu
    return (
        PassSharing(HEARD_TOGETHER_ON_GPU)
        if on_gpu
        else PassSharing(HEARD_TOGETHER_ON_CPU, one_in=4)
    )
