"""Pixtral streamed, against one `transformers` forward."""

from __future__ import annotations

import copy
import json
import random
import select
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.engine import Engine
from headstart.engine.errors import BadWeights, UnsupportedModel
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.decoder.choice import in_int8
from headstart.engine.models.families import Loading, load
from headstart.engine.models.footprint import weights_bytes
from headstart.engine.models.perception.interface import TailPolicy, VideoFrame
from headstart.engine.models.perception.picture_sizes import frame_size, still_size
from headstart.engine.models.perception.pixels import Rgb
from headstart.engine.models.perception.pixtral_tower import fit_edge
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.pixtral import Pixtral, RowTokens, our_name, row_tokens
from headstart.engine.models.source import source_of
from headstart.engine.process.model_directory import assemble_source
from tests.engine.models import twins
from tests.engine.models.loading import loaded
from tests.engine.models.playing import Sounded, camera, play
from tests.engine.models.rig import Rig
from tests.engine.models.served import write_mistral_tokenizer, write_pixtral
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


def test_the_int8_decoder_takes_its_heads(tmp_path: Path) -> None:
    """Heads that are together wider than the model, on the packed kernels: nearly the logits of the
    float decoder, and the same choice."""
    pair = make(torch.float32, tmp_path)
    quantised = load(pair.folder, Loading(torch.float32, build=in_int8))
    logits = []
    for model in (pair.ours, quantised):
        rig = Rig(model, torch.float32)
        stream = rig.stream()
        view = ModelImageEncoder(model).encode_image(still(50, 90), stream)
        stream.append([1, 2, *view.ids, 4, 5])
        found = rig.settle(stream)
        assert found is not None
        logits.append(found)
    assert F.cosine_similarity(logits[0], logits[1], dim=0) > 0.99
    assert logits[0].argmax() == logits[1].argmax()


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


# config.json of Pixtral-12B as published: what it leaves out are `transformers`' defaults.
PUBLISHED: dict[str, Any] = {
    "architectures": ["LlavaForConditionalGeneration"],
    "image_token_index": 10,
    "model_type": "llava",
    "projector_hidden_act": "gelu",
    "text_config": {
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 14336,
        "max_position_embeddings": 1024000,
        "model_type": "mistral",
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 1e9,
        "sliding_window": None,
        "vocab_size": 131072,
    },
    "vision_config": {
        "head_dim": 64,
        "hidden_act": "silu",
        "image_size": 1024,
        "model_type": "pixtral",
        "patch_size": 16,
        "rope_theta": 10000.0,
    },
    "vision_feature_layer": -1,
    "vision_feature_select_strategy": "full",
}


class Shapes:
    """Tensors without data, which notes what is asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[int, ...]] = {}

    def has(self, name: str) -> bool:
        return True

    def copied(self, name: str) -> None:
        """Nothing to release."""

    def take(self, name: str, *shape: int) -> Tensor:
        self.asked[name] = shape
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def test_the_published_size_is_known_before_anything_is_loaded(tmp_path: Path) -> None:
    """From the published config.json alone: every weight that `transformers` makes of it, and no
    other; 25.4 GB in bf16, 14 GB with an int8 decoder."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    write_mistral_tokenizer(tmp_path)
    with torch.device("meta"):
        config = twins.transformers.LlavaConfig(**PUBLISHED)
        theirs = twins.transformers.LlavaForConditionalGeneration(config).state_dict()
    shapes = Shapes()
    model = load(tmp_path, Loading(tensors=lambda directory, rename: shapes))
    assert shapes.asked == {our_name(name): tuple(t.shape) for name, t in theirs.items()}
    assert model.spec.decoder.context_tokens == 1_024_000
    source = source_of(EngineConfig(model=str(tmp_path), weights="dummy"))
    assert source is not None
    parameters = sum(tensor.numel() for tensor in theirs.values())
    assert weights_bytes(source, Loading()) == 2 * parameters
    assert round(parameters / 1e9, 2) == 12.68
    assert 13.5e9 < weights_bytes(source, Loading(build=in_int8)) < 14.5e9


def test_a_picture_in_a_conversation_is_answered(tmp_path: Path) -> None:
    """The whole directory, served: a picture and words, twice; the tokens are the template's, and
    greedy, each answer is what one `transformers` forward says."""
    theirs = write_pixtral(tmp_path)
    events: list[api.Event] = []
    config = EngineConfig(
        model=str(tmp_path), kv_pool_bytes=1 << 22, threads=1, weights="fp32", encoders="beside"
    )
    source = source_of(config)
    assert source is not None
    engine, info = assemble_source(source, config, events.append, lambda *told: None)
    assert info.frame == api.PictureSize(pixels=256 * 256)
    warmed = [event for event in events if isinstance(event, api.Finished)]
    assert [event.usage.input_image for event in warmed] == [72]  # 8 rows of 8, and their ends
    engine.receive(api.Open("s", "Be brief."))
    pictures = [still(50, 90, seed) for seed in range(2)]
    for turn, picture in enumerate(pictures, 1):
        item = api.Item(f"u{turn}", api.Role.USER, (picture, api.Text("What?")))
        engine.receive(api.AddItem("s", item, None))
        sampling = api.Sampling(repetition_penalty=1.0, max_tokens=4)
        engine.receive(api.Respond("s", turn, f"a{turn}", sampling))
        settle(engine)
    assert not [event for event in events if isinstance(event, api.Failed)]
    finished = [event for event in events if isinstance(event, api.Finished)][-2:]
    assert [f.usage.input_image for f in finished] == [28, 56]  # 4 rows of 6, and their ends
    session = engine.sessions["s"]
    tokenizer = source.words().tokenizer
    img, row_end, end = (
        tokenizer.encode(name, special=True)[0] for name in ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
    )
    media_of = session.stream.soft.media_position
    ids = [img if media_of(token) else token for token in session.stream.tokens]
    rows = "[IMG]" * 6 + "[IMG_BREAK]"
    seen = (rows * 4).removesuffix("[IMG_BREAK]") + "[IMG_END]"
    told = tokenizer.decode(ids, special=True)
    assert told.startswith(f"<s>[INST]Be brief.\n\n{seen}What?[/INST]")
    assert (ids.count(row_end), ids.count(end)) == (6, 2)
    theirs.config.image_token_id = theirs.model.config.image_token_id = img
    ours = loaded(Pixtral, tmp_path, torch.float32)
    with torch.inference_mode():
        logits = theirs(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            pixel_values=torch.stack([ours.pixels(frame_of(picture)) for picture in pictures]),
            image_sizes=torch.tensor([[64, 96]] * 2),
        ).logits[0]
    entries = session.conversation.now()
    for answer in (entry for entry in entries if entry.role is api.Role.ASSISTANT):
        said = [token for segment in answer.segments for token in segment.ids]
        at = next(i for i in range(len(ids)) if ids[i : i + len(said)] == said)
        assert logits[at - 1 : at - 1 + len(said)].argmax(dim=-1).tolist() == said
    engine.close()


def settle(engine: Engine) -> None:
    """Step until nothing is to be done, and no picture is being encoded."""
    while engine.step() or engine.is_encoding:
        if engine.is_encoding:
            assert select.select(engine.wake_fds, [], [], 60)[0]
    engine.check_accounting()
