"""Our models against written values, which `make_golden.py` made by `transformers` 4.57.6.

The tests beside this one ask the installed `transformers`, whose rules move: since 5.x its Qwen2-VL
places words behind a long video elsewhere than the model was trained with. These values stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headstart.engine.asr.mel import LogMel, MaxPolicy
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models import llava_onevision
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception import anyres
from headstart.engine.models.perception.clips import ClipEncoder
from headstart.engine.models.perception.interface import StreamModel, TailPolicy
from headstart.engine.models.perception.senses import ModelImageEncoder
from tests.engine.models import golden_cases as cases
from tests.engine.models.golden_pixels import player
from tests.engine.models.rig import Rig

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text())
# Theirs turns by fp32 angles and takes its norms in fp32, in an fp64 model too.
TOLERANCE = 1e-5


def model_of(family: str, folder: Path) -> StreamModel:
    """A directory as 4.57.6 writes it: its config.json, its names."""
    told = GOLDEN[family]
    (folder / "config.json").write_text(json.dumps(told["config"]))
    budget = {"min_pixels": 28 * 28, "max_pixels": 64 * 28 * 28}  # frames keep their own size
    (folder / "preprocessor_config.json").write_text(json.dumps(budget))
    tensors = {name: cases.weight(name, shape) for name, shape in told["shapes"].items()}
    save_file(tensors, folder / "model.safetensors")
    return load(folder, Loading(torch.float64))


def read(rig: Rig, stream: Stream, family: str) -> None:
    """Prefill what `stream` reads: the golden ids, and the golden logits behind them."""
    told, names = GOLDEN[family], {"IMAGE": cases.IMAGE, "VIDEO": cases.VIDEO, "AUDIO": cases.AUDIO}
    ids = []
    for token in stream.tokens:
        place = stream.soft.media_position(token)
        ids.append(token if place is None else names[place.kind.name])
    if family == "llava_onevision":  # the newline behind a video is no frame of it
        ids[-len(cases.WORDS_BEHIND) - 1] = cases.VIDEO
    assert ids == told["ids"]
    logits = rig.settle(stream)
    assert logits is not None
    wanted = torch.tensor(told["logits"], dtype=torch.float64)
    assert wanted.abs().max() > 1
    assert (logits - wanted).abs().max() <= TOLERANCE
    if "positions" in told:
        assert stream.axes(0, len(stream)).tolist() == told["positions"]


def test_words_behind_a_long_video(tmp_path: Path) -> None:
    """Qwen2-VL, a video of eight units of 2 x 3: words go on behind its last moment, and the logits
    are those of the version that placed them so."""
    model = model_of("qwen2_vl", tmp_path)
    rig = Rig(model, torch.float64)
    stream = rig.stream()
    clip = ClipEncoder(model, stream.soft, TailPolicy.CLOSED)
    clip.see(cases.frames(16))
    clip.finish()
    stream.append([*cases.WORDS_BEFORE, *clip.ids(), *cases.WORDS_BEHIND])
    read(rig, stream, "qwen2_vl")
    video_ends, words = GOLDEN["qwen2_vl"]["positions"][0][-4], GOLDEN["qwen2_vl"]["positions"][0]
    assert words[-3:] == [video_ends + i for i in (1, 2, 3)]


@pytest.mark.parametrize("tail", TailPolicy)
def test_a_clip_with_sound_and_pictures(tmp_path: Path, tail: TailPolicy) -> None:
    """Qwen2.5-Omni: 2.4 s of sound in pieces, two units of frames."""
    model = model_of("qwen2_5_omni", tmp_path)
    rig = Rig(model, torch.float64)
    stream = rig.stream()
    clip = ClipEncoder(model, stream.soft, tail)
    sound = cases.sound()
    for at in range(0, len(sound), 8_000):
        clip.feed(sound[at : at + 8_000])
        clip.see(cases.frames(4)[at // 8_000 : at // 8_000 + 1])
    clip.finish()
    stream.append([*cases.WORDS_BEFORE, *clip.ids(), *cases.WORDS_BEHIND])
    read(rig, stream, "qwen2_5_omni")


def test_a_still_and_a_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLaVA-OneVision: a still in tiles, words, a video of three frames, words. Pixels are rounded
    as they were then; ours differ by one where their sum lies near a half, and nowhere else."""
    as_written = player(GOLDEN["llava_onevision"]["halves"])
    monkeypatch.setattr(anyres, "resize", as_written)
    monkeypatch.setattr(llava_onevision, "resize", as_written)
    model = model_of("llava_onevision", tmp_path)
    rig = Rig(model, torch.float64)
    stream = rig.stream()
    view = ModelImageEncoder(model).encode_image(cases.still(), stream)
    clip = ClipEncoder(model, stream.soft, TailPolicy.CLOSED)
    clip.see(cases.frames(3))
    clip.finish()
    stream.append([*cases.WORDS_BEFORE, *view.ids, *cases.WORDS_BEHIND])
    stream.append([*clip.ids(), *cases.WORDS_BEHIND])
    read(rig, stream, "llava_onevision")


def test_features_of_sound() -> None:
    """Log-mel under the whole sound's maximum, at twenty places."""
    mel = LogMel(80, torch.float64)
    state = mel.open()
    mel.push(state, cases.sound()[:16_000])
    features = mel.features(state, MaxPolicy.FINAL).numpy()
    ours = [features[band, frame] for frame, band in cases.MEL_AT]
    assert np.abs(np.array(ours) - GOLDEN["mel"]).max() <= 1e-5
