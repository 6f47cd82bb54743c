"""A set of voices for benchmarks, so that what is tuned on one voice is tested on others.

joe, and Kokoro's (neural, of real people; their English has an accent); eSpeak NG's (by rules); and
Flite's and Festival's (units of recordings) if the system has them (Debian's `flite`, `festival`
with `festvox-kdlpc16k`). A hum has no spelling that a voice could read ("em em aitch…"), so a line
may give its phonemes in IPA instead.
"""

# ruff: noqa: RUF001  (IPA)
from __future__ import annotations

import ctypes
import importlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs.recordings import load_s16
from headstart.engine.weights import ensure
from headstart.gateway.tts.espeak import Espeak
from headstart.gateway.tts.kept_halves import session
from headstart.gateway.tts.synthesiser import RATE_HZ, VoiceUnavailable
from headstart.gateway.tts.vits import Vits, read_vits

Samples = npt.NDArray[np.int16]  # 24 kHz mono

PEAK = 12_000  # all voices are scaled to the same peak
FLITE_PHONES = {"m": "m", "h": "hh", "ʌ": "ah", "ɑ": "aa", "ə": "ah", "ɜ": "er"}


@dataclass(frozen=True)
class Line:
    """A text; `phonemes`: its pronunciation in IPA, where spelling would mislead."""

    text: str
    phonemes: str = ""


Say = Callable[[Line], Samples]


def cast(names: tuple[str, ...]) -> Iterator[tuple[str, Say]]:
    """The voices of `names` that this machine has, each loaded when it is needed.

    Raises `VoiceUnavailable` where the extra 'voice' is not installed.
    """
    for name in names:
        kind, _, voice = name.partition(" ")
        match kind:
            case "joe":
                yield name, _joe()
            case "kokoro":
                yield name, _kokoro(voice)
            case "espeak":
                yield name, _espeak(voice)
            case "flite" if shutil.which("flite"):
                yield name, _flite(voice)
            case "festival" if shutil.which("text2wave"):
                yield name, _festival(voice)
            case "flite" | "festival":
                continue
            case _:
                raise VoiceUnavailable(f"there is no voice {name!r}")


def _level(sound: Samples) -> Samples:
    peak = max(int(np.abs(sound.astype(np.int32)).max(initial=0)), 1)
    return np.rint(sound.astype(np.float64) * (PEAK / peak)).astype(np.int16)


def _joe() -> Say:
    """The same sound for the same line, whatever was said before."""
    model = read_vits(ensure("joe"), seed=1.0)
    decoder = session(model.decoder)

    def say(line: Line) -> Samples:
        voice = Vits("joe", session(model.encoder), decoder, model.config)
        spoken = voice.pronounce(line.phonemes, 1.0) if line.phonemes else voice.speak(line.text, 1)
        return _level(np.concatenate(list(spoken)))

    return say


def _kokoro(voice: str) -> Say:
    folder = ensure("kokoro")
    runtime: Any = importlib.import_module("onnxruntime")
    phonemizer = importlib.import_module("piper.phonemize_espeak").EspeakPhonemizer()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    model = runtime.InferenceSession(
        str(folder / "kokoro-v1.0.int8.onnx"), options, ["CPUExecutionProvider"]
    )
    ids = json.loads((folder / "vocab.json").read_text())["vocab"]
    styles = np.load(folder / "voices_ja.npz")[voice]  # [tokens, 1, 256]

    def say(line: Line) -> Samples:
        sentences = phonemizer.phonemize("en-us", line.text)
        spelt = line.phonemes or "".join(phoneme for one in sentences for phoneme in one)
        tokens = [ids[letter] for letter in spelt if letter in ids]
        feed = {
            "tokens": np.array([[0, *tokens, 0]], np.int64),
            "style": styles[len(tokens)].reshape(1, -1).astype(np.float32),
            "speed": np.array([1.0], np.float32),
        }
        sound = np.asarray(model.run(None, feed)[0]).reshape(-1)
        return _level((np.clip(sound, -1, 1) * 32767).astype(np.int16))

    return say


@cache
def _only_espeak() -> Espeak:
    """The library calls back the newest instance alone."""
    return Espeak()


def _espeak(voice: str) -> Say:
    espeak = _only_espeak()
    library: ctypes.CDLL = espeak._library

    def say(line: Line) -> Samples:
        if line.phonemes:  # its IPA differs from the others', and its hums sound like nobody's
            return np.empty(0, np.int16)
        library.espeak_SetVoiceByName(voice.encode())
        return _level(np.concatenate(list(espeak.speak(line.text, 1.0))))

    return say


def _festival(voice: str) -> Say:
    def say(line: Line) -> Samples:
        if line.phonemes:
            return np.empty(0, np.int16)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "said.wav"
            command = ["text2wave", "-eval", f"(voice_{voice})", "-o", str(path)]
            said = line.text.replace("\N{HORIZONTAL ELLIPSIS}", "...").encode("ascii", "ignore")
            subprocess.run(command, input=said, check=True, capture_output=True, timeout=60)
            return _level(load_s16(path, RATE_HZ))

    return say


def _flite(voice: str) -> Say:
    def say(line: Line) -> Samples:
        words = ["-t", line.text]
        if line.phonemes:
            phones = [FLITE_PHONES[p] for p in line.phonemes if p in FLITE_PHONES]
            words = ["-p", " ".join(["pau", *phones, "pau"])]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "said.wav"
            command = ["flite", "-voice", voice, *words, "-o", str(path)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            return _level(load_s16(path, RATE_HZ))

    return say
