"""A Piper voice that streams: VITS split in two, with its second half run piece by piece.

    text ─espeak─▶ phonemes ─▶ encoder, durations, flow ─▶ frames [192, n] ─▶ decoder ─▶ audio
                               once per clause                              PIECE_FRAMES at a time

The decoder (HiFi-GAN) depends on `CONTEXT_FRAMES` to either side of a frame and no more, so joined
pieces that were decoded with this context equal the result of one pass (tested). The first audio is
ready after one short piece instead of the whole clause.

"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.gateway.tts.kept_halves import KeptHalves
from headstart.gateway.tts.synthesiser import Samples, ToWire, VoiceUnavailable

Frames = npt.NDArray[np.float32]  # [1, channels, frames]

CUT_TENSOR = "/Mul_7_output_0"  # the flow's output and the decoder's input, in Piper's exports
CUT_CONSUMER = "/dec/conv_pre/Conv"
CONTEXT_FRAMES = 10  # measured: at 8 the error is 1e-3, from 10 on 1e-6
FIRST_PIECE_FRAMES = 16
PIECE_GROWTH = 2
PIECE_FRAMES_MAX = 64
HOP_SAMPLES = 256  # audio of one frame
GAIN = 32_767.0


def pieces(frames: int) -> Iterator[tuple[int, int]]:
    """[start, end) of each piece: a short one first, then longer ones, because the context of each
    is decoded twice."""
    start, size = 0, FIRST_PIECE_FRAMES
    while start < frames:
        yield start, min(start + size, frames)
        start, size = start + size, min(size * PIECE_GROWTH, PIECE_FRAMES_MAX)


class Vits:
    """One Piper voice in two ONNX Runtime sessions. `config`: the JSON file of its weights."""

    def __init__(self, name: str, encoder: Any, decoder: Any, config: dict[str, Any]) -> None:
        self.name = name
        self._encoder = encoder
        self._decoder = decoder
        self._ids_of: dict[str, Sequence[int]] = config["phoneme_id_map"]
        self._language = str(config["espeak"]["voice"])
        self._rate_hz = int(config["audio"]["sample_rate"])
        scales = config["inference"]
        self._noise = float(scales["noise_scale"])
        self._noise_w = float(scales["noise_w"])
        self._length = float(scales["length_scale"])
        self._phonemizer = _import("piper.phonemize_espeak").EspeakPhonemizer()
        self._to_ids = _import("piper.phoneme_ids").phonemes_to_ids

    def speak(self, text: str, speed: float) -> Iterator[Samples]:
        """See `Synthesiser.speak`."""
        return self._say(self._phonemizer.phonemize(self._language, text), speed)

    def pronounce(self, phonemes: str, speed: float) -> Iterator[Samples]:
        """The same for phonemes in eSpeak's IPA."""
        return self._say([list(phonemes)], speed)

    def _say(self, clauses: Iterable[Sequence[str]], speed: float) -> Iterator[Samples]:
        resampler = ToWire(self._rate_hz)
        for phonemes in clauses:
            if not any(phoneme.isalpha() for phoneme in phonemes):
                continue
            latent = self._encode(phonemes, speed)
            for start, end in pieces(latent.shape[-1]):
                yield resampler.feed(self._decode(latent, start, end))
        rest = resampler.flush()
        if len(rest):
            yield rest

    def _encode(self, phonemes: Sequence[str], speed: float) -> Frames:
        ids = self._to_ids(phonemes, self._ids_of)
        scales = [self._noise, self._length / speed, self._noise_w]
        feed = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array(scales, np.float32),
        }
        latent: Frames = self._encoder.run(None, feed)[0]
        return latent

    def _decode(self, latent: Frames, start: int, end: int) -> Samples:
        """The audio of frames [start, end)."""
        low = max(0, start - CONTEXT_FRAMES)
        around = latent[:, :, low : end + CONTEXT_FRAMES]
        sound = self._decoder.run(None, {CUT_TENSOR: around})[0].reshape(-1)
        sound = sound[(start - low) * HOP_SAMPLES : (end - low) * HOP_SAMPLES]
        pcm: Samples = (np.clip(sound, -1.0, 1.0) * GAIN).astype(np.int16)
        return pcm


@dataclass(frozen=True)
class VitsModel:
    """A Piper voice's two halves as ONNX models, and its configuration."""

    encoder: bytes
    decoder: bytes
    config: dict[str, Any]


def load_vits(name: str, folder: Path) -> Vits:
    """The voice whose `.onnx` and `.onnx.json` are in `folder`. Raises `VoiceUnavailable`."""
    weights, config = _files(folder)
    try:
        kept = KeptHalves(name, weights, Path(__file__))
    except ImportError as error:
        raise _not_installed(error) from error
    halves = kept.load()
    if halves is None:
        model = read_vits(folder)
        halves = kept.make((model.encoder, model.decoder))
    encoder, decoder = halves
    return Vits(name, encoder, decoder, config)


def read_vits(folder: Path, seed: float | None = None) -> VitsModel:
    """The model in `folder`. A voice draws noise for the lengths and sounds of its phonemes: with a
    `seed`, each session draws the same. Raises `VoiceUnavailable`."""
    onnx = _import("onnx")
    weights, config = _files(folder)
    model = onnx.load(str(weights))
    consumers = [node.name for node in model.graph.node if CUT_TENSOR in node.input]
    if consumers != [CUT_CONSUMER]:
        raise VoiceUnavailable(f"{weights} cannot be cut before its decoder: found {consumers}")
    if seed is not None:
        for node in model.graph.node:
            if node.op_type == "RandomNormalLike":
                node.attribute.append(onnx.helper.make_attribute("seed", seed))
    extractor = onnx.utils.Extractor(model)
    encoder, decoder = (
        extractor.extract_model(inputs, outputs).SerializeToString()
        for inputs, outputs in (
            (["input", "input_lengths", "scales"], [CUT_TENSOR]),
            ([CUT_TENSOR], ["output"]),
        )
    )
    return VitsModel(encoder, decoder, config)


def _files(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The voice's ONNX file, and its configuration. Raises `VoiceUnavailable`."""
    try:
        (weights,) = folder.glob("*.onnx")
        return weights, json.loads(weights.with_name(weights.name + ".json").read_text())
    except (OSError, ValueError) as error:
        raise VoiceUnavailable(f"{folder} holds no voice: {error}") from error


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _not_installed(error) from error


def _not_installed(error: ImportError) -> VoiceUnavailable:
    return VoiceUnavailable(
        f"the extra 'voice' is not installed ({error}); pip install 'headstart[voice]'"
    )
