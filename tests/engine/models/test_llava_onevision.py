"""LLaVA-OneVision streamed, against one `transformers` forward."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from headstart.engine import api
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.llava_onevision import LlavaOnevision, our_name
from headstart.engine.models.perception.interface import TailPolicy, VideoFrame
from headstart.engine.models.perception.pixels import Rgb
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.perception.siglip import Siglip
from tests.engine.models import twins
from tests.engine.models.loading import loaded
from tests.engine.models.playing import Sounded, camera, play
from tests.engine.models.rig import Rig
from tests.numerics import assert_as_near


class Twins(NamedTuple):
    theirs: Any
    exact: Any  # theirs in fp64
    ours: LlavaOnevision
    rig: Rig
    dtype: torch.dtype


FP64_TOLERANCE = 1e-9


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=["fp32", "fp64"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    dtype: torch.dtype = request.param
    theirs = twins.llava_onevision().to(dtype)
    folder = twins.save(theirs, tmp_path_factory.mktemp("llava"))
    ours = loaded(LlavaOnevision, folder, dtype)
    return Twins(theirs, copy.deepcopy(theirs).double(), ours, Rig(ours, dtype), dtype)


def compare(pair: Twins, logits: Tensor | None, ids: Tensor, **seen: Tensor) -> None:
    """Final logits against one forward of theirs over `ids`: in fp64 to 1e-9, in fp32 as near as
    `transformers` in fp32 is."""

    def last(model: Any) -> Tensor:
        given = {k: v.to(model.dtype) if v.is_floating_point() else v for k, v in seen.items()}
        with torch.inference_mode():
            told = model(input_ids=ids, attention_mask=torch.ones_like(ids), **given)
        row: Tensor = told.logits[0, -1]
        return row

    with twins.in_double("qwen2"):
        wanted = last(pair.exact)
    assert logits is not None
    assert wanted.abs().max() > 1
    if pair.dtype == torch.float64:
        assert (logits - wanted).abs().max() <= FP64_TOLERANCE
    else:
        assert_as_near(logits, last(pair.theirs), wanted)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_video_frame_by_frame(pair: Twins, count: int) -> None:
    """Frames one by one, a newline behind the last: the logits of the whole video."""
    chance = random.Random(count)
    stream = pair.rig.stream()
    stream.append([1, 2])
    frames = camera(chance, count, 1.0)
    play(pair.rig, stream, Sounded(frames=frames), TailPolicy.PROVISIONAL, chance)
    stream.append([4, 5])
    logits = pair.rig.settle(stream, chance)
    media_of = stream.soft.media_position
    ids = torch.tensor([[twins.VIDEO if media_of(t) else t for t in stream.tokens]])
    assert int((ids == twins.VIDEO).sum()) == count * 9 + 1  # 5 x 5 patches pooled to 3 x 3
    compare(pair, logits, ids, pixel_values_videos=pair.ours.pixels(frames)[None].to(pair.dtype))
    stream.close()


# height, width, and tokens: those of the whole picture (25), and those of its tiles with newlines
STILLS = [
    (70, 70, 25 + 5 * 6),
    (64, 200, 25 + 5 * 16),  # three tiles across, barely a margin
    (200, 60, 25 + 15 * 6),
    (90, 120, 25 + 8 * 11),  # four tiles, margins above and below
    (333, 500, 25 + 10 * 16),
    (400, 400, 25 + 12 * 13),  # nine tiles, more than six may take
    (12, 150, 25 + 1 * 16),
    (1, 90, 25 + 1 * 11),  # so thin that nearly all rows are margin
]


@pytest.mark.parametrize(("height", "width", "tokens"), STILLS)
def test_a_still_in_tiles(pair: Twins, height: int, width: int, tokens: int) -> None:
    """A picture in a message, of any shape: the logits of `transformers` on the same tiles."""
    chance = random.Random(height)
    stream = pair.rig.stream()
    stream.append([1, 2])
    picture = still(height, width)
    view = ModelImageEncoder(pair.ours).encode_image(picture, stream)
    stream.append([*view.ids, 4, 5])
    logits = pair.rig.settle(stream, chance)
    media_of = stream.soft.media_position
    ids = torch.tensor([[twins.IMAGE if media_of(t) else t for t in stream.tokens]])
    assert int((ids == twins.IMAGE).sum()) == tokens
    tiles = pair.ours.tiles(VideoFrame(pixels_of(picture)))[None].to(pair.dtype)
    sizes = torch.tensor([[height, width]])
    compare(pair, logits, ids, pixel_values=tiles, image_sizes=sizes)
    stream.close()


def test_a_live_picture_is_a_video_of_one_frame(pair: Twins) -> None:
    """A camera's picture outside of an utterance: pooled, a newline behind it, and no tiles."""
    stream = pair.rig.stream()
    stream.append([1, 2])
    picture = still(90, 120)
    view = ModelImageEncoder(pair.ours).encode_image(picture, stream, live=True)
    stream.append([*view.ids, 4, 5])
    logits = pair.rig.settle(stream)
    ids = torch.tensor([[1, 2, *[twins.VIDEO] * (9 + 1), 4, 5]])
    frames = pair.ours.pixels([VideoFrame(pixels_of(picture))])[None].to(pair.dtype)
    compare(pair, logits, ids, pixel_values_videos=frames)
    stream.close()


def test_frames_of_one_size_are_encoded_as_one_stack(pair: Twins) -> None:
    """As an encoder's batch: the features of each by itself, but for the order of sums; stills are
    tiled one by one."""
    encoder = ModelImageEncoder(pair.ours)
    pictures = [still(90, 120, seed) for seed in range(3)]
    calls: list[int] = []
    encode = pair.ours.tower.encode

    def counted(pixels: Tensor) -> Tensor:
        calls.append(len(pixels))
        return encode(pixels)

    for live in (True, False):
        alone = [encoder.features([picture], [b""], live=live)[0] for picture in pictures]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pair.ours.tower, "encode", counted)
            together = encoder.features(pictures, [b""] * len(pictures), live=live)
        assert len(together) == 3
        for one, other in zip(alone, together, strict=True):
            if live:
                assert torch.allclose(one.units[0][1], other.units[0][1], atol=1e-5)
            else:
                assert one.still is not None
                assert other.still is not None
                assert torch.equal(one.still, other.still)
    assert calls[0] == 3
    assert set(calls[1:]) == {1}


def still(height: int, width: int, seed: int = 0) -> api.Image:
    rng = np.random.default_rng(height * width + seed)
    return api.Image(width, height, rng.integers(0, 256, (height, width, 3), np.uint8).tobytes())


def pixels_of(picture: api.Image) -> Rgb:
    return np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3)


def test_the_encoder_takes_what_fits_its_patches(pair: Twins) -> None:
    """A picture whose side is no multiple of the patch is cut, as a convolution would; fewer layers
    are another output."""
    sizes = replace(pair.ours.tower.sizes, image_px=75)
    tower = Siglip(RandomTensors(torch.float32), sizes, layers=2)
    pixels = torch.randn(2, 3, 75, 75)
    seen = tower.encode(pixels)
    assert seen.shape == (2, 25, 32)
    assert torch.equal(seen, tower.encode(pixels[..., :70, :70]))
    shallow = Siglip(RandomTensors(torch.float32), sizes, layers=1)
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
