"""The available voices. Each is imported on loading, because they need their own packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headstart.gateway.tts.synthesiser import Synthesiser, VoiceUnavailable


def _joe(path: Path | None) -> Synthesiser:
    if path is None:
        raise VoiceUnavailable("the voice 'joe' needs the folder of its weights")
    from headstart.gateway.tts.vits import load_vits

    return load_vits("joe", path)


def _espeak(_path: Path | None) -> Synthesiser:
    from headstart.gateway.tts.espeak import Espeak

    return Espeak()


VOICES: dict[str, Callable[[Path | None], Synthesiser]] = {"joe": _joe, "espeak": _espeak}
"""Loaders by name; each takes the folder of its weights, if it has any."""


def load(name: str, path: Path | None) -> Synthesiser:
    """The voice `name`; `path` is the folder of its weights. Raises `VoiceUnavailable`."""
    if name not in VOICES:
        known = " and ".join(repr(known) for known in VOICES)
        raise VoiceUnavailable(f"there is no voice {name!r}; there are {known}")
    return VOICES[name](path)
