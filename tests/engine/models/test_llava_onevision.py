"""LLaVA-OneVision streamed, against one `transformers` forward."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from engine.models.interface import TailPolicy
from engine.models.llava_onevision import LlavaOnevision, our_name
from engine.models.siglip import Siglip
from engine.models.tensors import Dummy
from tests.engine.models import twins
from tests.engine.models.loading import loaded
from tests.engine.models.playing import Sounded, camera, play
from tests.engine.models.rig import Rig


class Twins(NamedTuple):
    theirs: Any
    ours: LlavaOnevision
    rig: Rig


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    theirs = twins.llava_onevision()
    folder = twins.save(theirs, tmp_path_factory.mktemp("llava"))
    ours = loaded(LlavaOnevision, folder, torch.float64)
    return Twins(theirs, ours, Rig(ours, torch.float64))


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_video_frame_by_frame(pair: Twins, count: int) -> None:
    """Frames one by one, a newline behind the last: the logits of the whole video, to 1e-9."""
    chance = random.Random(count)
    stream = pair.rig.stream()
    stream.append([1, 2])
    frames = camera(chance, count, 1.0)
    play(pair.rig, stream, Sounded(frames=frames), TailPolicy.PROVISIONAL, chance)
    stream.append([4, 5])
    logits = pair.rig.settle(stream, chance)
    assert logits is not None
    ids = torch.tensor([[twins.VIDEO if stream.soft.place(t) else t for t in stream.tokens]])
    assert int((ids == twins.VIDEO).sum()) == count * 9 + 1  # 5 x 5 patches pooled to 3 x 3
    with twins.in_double("qwen2"), torch.inference_mode():
        wanted = pair.theirs(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values_videos=pair.ours.pixels(frames)[None].double(),
        ).logits[0, -1]
    assert wanted.abs().max() > 1
    assert (logits - wanted).abs().max() <= 1e-9
    stream.close()


def test_the_encoder_takes_what_fits_its_patches(pair: Twins) -> None:
    """A picture whose side is no multiple of the patch is cut, as a convolution would; fewer layers
    are another output."""
    sizes = replace(pair.ours.tower.sizes, image_px=75)
    tower = Siglip(Dummy(torch.float32), sizes, layers=2)
    pixels = torch.randn(2, 3, 75, 75)
    seen = tower.encode(pixels)
    assert seen.shape == (2, 25, 32)
    assert torch.equal(seen, tower.encode(pixels[..., :70, :70]))
    shallow = Siglip(Dummy(torch.float32), sizes, layers=1)
    assert not torch.allclose(shallow.encode(pixels), seen)


def test_names_of_both_layouts() -> None:
    """Released checkpoints and those of today."""
    old, new = "vision_tower.vision_model.", "model.vision_tower."
    assert our_name(f"{old}encoder.layers.0.mlp.fc1.bias") == "vision.encoder.layers.0.mlp.fc1.bias"
    assert our_name(f"{new}encoder.layers.0.mlp.fc1.bias") == "vision.encoder.layers.0.mlp.fc1.bias"
    assert our_name("language_model.model.norm.weight") == "decoder.norm.weight"
    assert our_name("language_model.lm_head.weight") == "lm_head.weight"
    assert our_name("model.language_model.norm.weight") == "decoder.norm.weight"
    assert our_name("image_newline") == our_name("model.image_newline") == "image_newline"
