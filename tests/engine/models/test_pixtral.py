"""Pixtral streamed, against one `transformers` forward."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine import api
from headstart.engine.errors import BadWeights, UnsupportedModel
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.decoder.choice import in_int8
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.interface import TailPolicy, VideoFrame
from headstart.engine.models.perception.picture_sizes import frame_size, still_size
from headstart.engine.models.perception.pixels import Rgb
from headstart.engine.models.perception.pixtral_tower import fit_edge
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.pixtral import Pixtral, RowTokens, our_name, row_tokens
from tests.engine.models import twins
from tests.engine.models.loading import loaded
from tests.engine.models.playing import Sounded, camera, play
from tests.engine.models.rig import Rig
from tests.numerics import assert_as_near

BREAK, END = RowTokens()
FP64_TOLERANCE = 1e-9


class Twins(NamedTuple):
    theirs: Any
    exact: Any  # theirs in fp64
    ours: Pixtral
    rig: Rig
    dtype: torch.dtype
    folder: Path


def make(dtype: torch.dtype, folder: Path, **changes: Any) -> Twins:
    theirs = twins.pixtral(**changes).to(dtype)
    ours = loaded(Pixtral, twins.save(theirs, folder), dtype)
    exact = copy.deepcopy(theirs).double()
    return Twins(theirs, exact, ours, Rig(ours, dtype), dtype, folder)


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=["fp32", "fp64"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return make(request.param, tmp_path_factory.mktemp("pixtral"))


def compare(pair: Twins, stream: Stream, logits: Tensor | None, frames: list[VideoFrame]) -> None:
    """Final logits against one forward of theirs over all that `stream` reads: in fp64 to 1e-9, in
    fp32 as near as `transformers` in fp32 is."""
    media_of = stream.soft.media_position
    ids = torch.tensor([[twins.IMAGE if media_of(t) else t for t in stream.tokens]])
    pictures = [pair.ours.pixels(frame) for frame in frames]
    sizes = [tuple(picture.shape[1:]) for picture in pictures]
    high, wide = (max(side) for side in zip(*sizes, strict=True))
    padded = torch.stack([F.pad(p, (0, wide - p.shape[2], 0, high - p.shape[1])) for p in pictures])

    def last(model: Any) -> Tensor:
        with torch.inference_mode():
            told = model(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                pixel_values=padded.to(model.dtype),
                image_sizes=torch.tensor(sizes),
            )
        row: Tensor = told.logits[0, -1]
        return row

    with twins.in_double("mistral"), twins.in_double("pixtral"):
        wanted = last(pair.exact)
    assert logits is not None
    assert wanted.abs().max() > 1
    if pair.dtype == torch.float64:
        assert (logits - wanted).abs().max() <= FP64_TOLERANCE
    else:
        assert_as_near(logits, last(pair.theirs), wanted)


def still(height: int, width: int, seed: int = 0) -> api.Image:
    rng = np.random.default_rng([height, width, seed])
    return api.Image(width, height, rng.integers(0, 256, (height, width, 3), np.uint8).tobytes())


def frame_of(picture: api.Image) -> VideoFrame:
    rgb: Rgb = np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3)
    return VideoFrame(rgb)


@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_with_videos(pair: Twins, seed: int) -> None:
    """Clips of random length and size with words between, in random pieces, endings thrown away and
    answers rolled back: the logits of one forward."""
    chance = random.Random(seed)
    stream = pair.rig.stream()
    frames: list[VideoFrame] = []
    for turn in range(2):
        clip = Sounded(frames=camera(chance, chance.randint(1, 4), 1.0))
        stream.append([1, 2, turn])
        play(pair.rig, stream, clip, TailPolicy.PROVISIONAL, chance)
        stream.append([4, 5])
        frames += clip.frames
    logits = pair.rig.settle(stream, chance)
    compare(pair, stream, logits, frames)
    stream.close()
    pair.rig.pool.check_accounting([])


# Height and width, and rows and columns of patches.
STILLS = [
    ((64, 64), (4, 4)),
    ((50, 90), (4, 6)),
    ((16, 16), (1, 1)),
    ((1, 90), (1, 6)),
    ((120, 17), (8, 2)),
]


@pytest.mark.parametrize(("size", "grid"), STILLS)
@pytest.mark.parametrize("live", [True, False])
def test_a_picture_row_by_row(
    pair: Twins, size: tuple[int, int], grid: tuple[int, int], live: bool
) -> None:
    """A still or a live picture of any shape: a token for each patch, one behind each row."""
    stream = pair.rig.stream()
    stream.append([1, 2])
    picture = still(*size)
    view = ModelImageEncoder(pair.ours).encode_image(picture, stream, live=live)
    rows, columns = grid
    own = [token if token in (BREAK, END) else None for token in view.ids]
    row = [*[None] * columns, BREAK]
    assert own == [*(row * rows)[:-1], END]
    stream.append([*view.ids, 4, 5])
    compare(pair, stream, pair.rig.settle(stream, random.Random(1)), [frame_of(picture)])
    stream.close()


def test_two_streams_share_what_they_read_the_same(pair: Twins) -> None:
    """An equal beginning with a picture is computed once: the second stream takes over whole blocks
    of it, a picture of other pixels shares only the words before it, and all answer as computed."""
    gained, streams = [], []
    for name, seed in (("first", 0), ("same", 0), ("other", 1)):
        stream = pair.rig.stream(name)
        stream.share_within(b"everyone")
        picture = still(64, 64, seed)
        seen = ModelImageEncoder(pair.ours).encode_image(picture, stream)
        stream.append([1, 2, 3, 6, *seen.ids, 4, 5])
        gained.append(stream.adopt())
        compare(pair, stream, pair.rig.settle(stream), [frame_of(picture)])
        streams.append(stream)
    for stream in streams:
        stream.close()
    # 4 words, 4 rows of 4 patches and a row end, 2 words: 6 blocks of 4, and the last two words.
    assert gained == [0, 24, 4]


def test_another_activation_and_layer(tmp_path: Path) -> None:
    """`transformers`' default activation, GELU; features of the layer before the last."""
    pair = make(torch.float64, tmp_path, hidden_act="gelu")
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**told, "vision_feature_layer": -2}))
    pair.exact.config.vision_feature_layer = -2
    ours = loaded(Pixtral, tmp_path, torch.float64)
    pair = pair._replace(ours=ours, rig=Rig(ours, torch.float64))
    stream = pair.rig.stream()
    picture = still(40, 60)
    view = ModelImageEncoder(ours).encode_image(picture, stream)
    stream.append([1, *view.ids, 4])
    compare(pair, stream, pair.rig.settle(stream), [frame_of(picture)])
    stream.close()


def test_the_int8_decoder_takes_its_heads(pair: Twins) -> None:
    """Heads that are together wider than the model, on the packed kernels: the same choice as in
    float, and nearly the same logits."""
    if pair.dtype == torch.float64:
        pytest.skip("the packed decoder computes in fp32")
    ours = load(pair.folder, Loading(torch.float32, build=in_int8))
    rig = Rig(ours, torch.float32)
    logits = []
    for one in (pair.rig, rig):
        stream = one.stream()
        view = ModelImageEncoder(one.model).encode_image(still(50, 90), stream)
        stream.append([1, 2, *view.ids, 4, 5])
        found = one.settle(stream)
        assert found is not None
        logits.append(found)
    exact, quantised = logits
    assert torch.nn.functional.cosine_similarity(exact, quantised, dim=0) > 0.99


@pytest.mark.parametrize(
    "size", [(64, 64), (50, 90), (1000, 3000), (2047, 1025), (17, 16), (31, 1)]
)
def test_sizes_are_theirs(size: tuple[int, int]) -> None:
    """The size that `transformers` resizes to."""
    from transformers.models.pixtral import image_processing_pil_pixtral as processing

    picture = np.zeros((3, *size), np.uint8)
    wanted = processing.get_resize_output_image_size(picture, 1024, 16, "channels_first")
    assert fit_edge(*size, 1024, 16) == wanted


def test_a_picture_thinner_than_any_patch_has_one_row() -> None:
    """Theirs would round its height to nothing."""
    assert fit_edge(1, 10_000, 1024, 16) == (16, 1024)


def test_pixels_are_theirs(pair: Twins) -> None:
    """Resized and normalised as by their processor, but for how it rounds: Pillow rounds after each
    of two passes, to one step of 256 more or less."""
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    ramp = np.linspace(0, 255, 90, dtype=np.uint8)
    rgb = np.stack([np.tile(ramp, (50, 1))] * 3, axis=2)
    theirs = PixtralImageProcessorPil()(images=rgb, return_tensors="pt")
    wanted = theirs["pixel_values"][0]
    ours = pair.ours.pixels(VideoFrame(rgb))
    assert ours.shape == wanted.shape
    step = 1 / 255 / 0.26
    assert (ours - wanted).abs().max() <= 1.01 * step


def test_frames_are_smaller_than_stills(pair: Twins) -> None:
    """The sizes that a client's pictures are scaled to: 256 patches of a frame, 4,096 of a still,
    or half of a short session."""
    seen = pair.ours.spec.vision
    assert frame_size(seen) == api.PictureSize(pixels=256 * 256)
    assert still_size(seen, 8192) == api.PictureSize(pixels=1024 * 1024)
    assert still_size(seen, 1024) == api.PictureSize(pixels=512 * 256)


def test_the_tokens_between_rows_are_the_tokenizers(tmp_path: Path) -> None:
    """Their ids by name; without a tokenizer the published ones; a tokenizer of another model is
    refused by name."""
    assert row_tokens(tmp_path) == (12, 13)
    names = [{"id": 7, "content": "[IMG_BREAK]"}, {"id": 9, "content": "[IMG_END]"}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": names}))
    assert row_tokens(tmp_path) == (7, 9)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": names[:1]}))
    with pytest.raises(BadWeights, match=r"expected .*IMG_END.*, got no \[IMG_END\]"):
        row_tokens(tmp_path)


def test_another_llava_is_refused(tmp_path: Path) -> None:
    """`llava` names a family of models; ours is the one with Pixtral's encoder."""
    config = {"model_type": "llava", "vision_config": {"model_type": "clip_vision_model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="clip_vision_model"):
        load(tmp_path, Loading())


def test_names_of_both_layouts() -> None:
    """Released checkpoints and those of today."""
    layer = "transformer.layers.0.attention.q_proj.weight"
    for tower in ("vision_tower.", "model.vision_tower."):
        assert our_name(tower + layer) == f"vision.{layer}"
    assert our_name("multi_modal_projector.linear_1.bias") == "projector.linear_1.bias"
    for decoder in ("language_model.model.", "model.language_model."):
        assert our_name(f"{decoder}norm.weight") == "decoder.norm.weight"
    assert our_name("language_model.lm_head.weight") == our_name("lm_head.weight")
    assert our_name("something.else") is None
