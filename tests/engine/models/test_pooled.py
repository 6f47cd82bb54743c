"""Models with pooled frames: streamed as offline, positions by the family's rule, budgets."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headstart.engine import api
from headstart.engine.chat.render import Modality
from headstart.engine.config import EngineConfig
from headstart.engine.errors import BadSettings, BadWeights
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.clips import ClipEncoder
from headstart.engine.models.perception.interface import StreamModel, TailPolicy, VideoFrame
from headstart.engine.models.perception.pooling import (
    MeanPooling,
    Pooling,
    SimilarityMerging,
)
from headstart.engine.models.perception.query_pooling import PoolerSizes
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.pooled import Pooled, pooled
from tests.engine.models import twins
from tests.engine.models.omni_twin import tiny_twin, write_directory
from tests.engine.models.perception.test_query_pooling import Reference, pair
from tests.engine.models.playing import Sounded, camera, play, speech
from tests.engine.models.rig import Rig

BASES: dict[str, Callable[[Path], Path]] = {
    "qwen2_vl": lambda folder: twins.save(twins.qwen2_vl(), folder),
    "llava_onevision": lambda folder: twins.save(twins.llava_onevision(), folder),
    "pixtral": lambda folder: twins.save(twins.pixtral(), folder),
    "qwen2_5_omni": lambda folder: write_directory(tiny_twin(), folder),
}


@pytest.fixture(scope="module", params=BASES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StreamModel:
    family: str = request.param
    return load(BASES[family](tmp_path_factory.mktemp(family)), Loading(torch.float64))


WAYS = ("merge", "mean", "learned")


def pooling_of(base: StreamModel, way: str, group: int, tokens: int = 4) -> Pooled:
    sizes = PoolerSizes(base.spec.decoder.hidden, 16, tokens, 2, group)
    made: dict[str, Callable[[], Pooling]] = {
        "merge": SimilarityMerging,
        "mean": MeanPooling,
        "learned": lambda: pair(sizes, torch.float64)[1],
    }
    return Pooled(base, made[way](), tokens, group)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("seed", range(2))
def test_streamed_is_offline(base: StreamModel, way: str, group: int, seed: int) -> None:
    """Frames (and sound, where the family hears) in random pieces with endings that do not come:
    the tokens, positions and logits of the whole clip at once."""
    chance = random.Random(seed)
    model = pooling_of(base, way, group)
    rig = Rig(model, torch.float64)
    frames = camera(chance, chance.randint(3, 19), 1.0)
    sound = speech(chance, 20_000) if base.spec.audio is not None else None
    streamed, whole = rig.stream("streamed"), rig.stream("whole")
    for stream in (streamed, whole):
        stream.append([1, 2])
    play(rig, streamed, Sounded(sound, frames), TailPolicy.PROVISIONAL, chance)
    clip = ClipEncoder(model, whole.soft, TailPolicy.PROVISIONAL)
    clip.see(frames)
    if sound is not None:
        clip.feed(sound)
    clip.finish()
    whole.append(clip.ids())
    results = []
    for stream in (streamed, whole):
        stream.append([4, 5])
        results.append(rig.settle(stream, chance))
    assert placed(streamed) == placed(whole)
    one, two = results
    assert one is not None
    assert two is not None
    assert (one - two).abs().max() < 1e-9
    per_unit = base.spec.vision.frames_per_unit if base.spec.vision else 1
    units = -(-len(frames) // per_unit)
    closing = len(base.clip_closing())
    pictured = sum(stream_media(streamed)) - (0 if sound is None else sounds(streamed))
    assert pictured <= -(-units // group) * 4 + closing
    for stream in (streamed, whole):
        stream.close()


def placed(stream: Stream) -> list[tuple[object, ...]]:
    """Each token with its position: words by id, others by their place in their medium."""
    axes = stream.axes(0, len(stream)).T.tolist()
    return [
        (stream.soft.media_position(token) or token, *at)
        for token, at in zip(stream.tokens, axes, strict=True)
    ]


def described(stream: Stream) -> list[tuple[object, ...]]:
    """Each token by content, with its position."""
    axes = stream.axes(0, len(stream)).T.tolist()
    soft = stream.soft
    return [
        (soft.digest(token) if token in soft else token, *at)
        for token, at in zip(stream.tokens, axes, strict=True)
    ]


def stream_media(stream: Stream) -> list[bool]:
    return [token in stream.soft for token in stream.tokens]


def sounds(stream: Stream) -> int:
    media = [stream.soft.media_position(token) for token in stream.tokens]
    return sum(one is not None and one.kind.value == "audio" for one in media)


def test_without_a_budget_nothing_changes(base: StreamModel) -> None:
    """The default way, `auto`: the same tokens as the model alone."""
    frames = camera(random.Random(1), 4, 1.0)
    alone, never_asked = (tokens_of(model, frames) for model in (base, Pooled(base, MERGING)))
    assert alone == never_asked


MERGING = SimilarityMerging()


def tokens_of(model: StreamModel, frames: Sequence[VideoFrame]) -> list[tuple[object, ...]]:
    """Content and positions of a clip of `frames` between words."""
    stream = Rig(model, torch.float64).stream()
    stream.append([1, 2])
    clip = ClipEncoder(model, stream.soft, TailPolicy.CLOSED)
    clip.see(frames)
    clip.finish()
    stream.append([*clip.ids(), 4, 5])
    return described(stream)


def pictures(count: int) -> list[VideoFrame]:
    """Pictures of 4 by 5 tokens in Qwen's families, two a second."""
    rng = np.random.default_rng(count)
    shape = (4 * 28, 5 * 28, 3)
    return [VideoFrame(rng.integers(0, 256, shape, dtype=np.uint8), i / 2) for i in range(count)]


@pytest.mark.parametrize("group", [1, 3])
def test_words_behind_merged_frames_stay_in_place(base: StreamModel, group: int) -> None:
    """A merged token has the position of one of its cells, and what follows has that of a clip
    whose frames have all their tokens."""
    frames = [replace(frame, max_tokens=5) for frame in pictures(6)]
    full, few = tokens_of(base, frames), tokens_of(Pooled(base, MERGING, 5, group), frames)
    assert len(few) < len(full)
    if base.new_positions() is None:  # positions count tokens
        assert [at for _, *at in few] == [[i] * 3 for i in range(len(few))]
        return
    assert {tuple(at) for _, *at in few} <= {tuple(at) for _, *at in full}
    if group == 1 or base.spec.audio is not None:  # else time counts groups
        assert few[-3:] == full[-3:]  # the delimiter and both words


def test_a_group_has_the_time_of_its_last_frame(tmp_path: Path) -> None:
    """TMRoPE: two ids apart for every pair of frames; in groups of two pairs, every second one."""
    base = load(BASES["qwen2_5_omni"](tmp_path), Loading(torch.float64))
    frames = camera(random.Random(0), 8, 2.0)
    times = [
        {at for content, at, *_ in tokens_of(model, frames) if isinstance(content, bytes)}
        for model in (base, Pooled(base, MERGING, 4, 2))
    ]
    every = sorted(at for at in times[0] if isinstance(at, int))
    assert len(every) == 4
    assert times[1] == set(every[1::2])


def test_the_least_budget_of_a_unit_counts(tmp_path: Path) -> None:
    """Of the two frames of a unit, and of the setting."""
    base = load(BASES["qwen2_vl"](tmp_path), Loading(torch.float64))
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (140, 140, 3), dtype=np.uint8) for _ in range(8)]
    budgets = (0, 0, 0, 20, 16, 20, 4096, 4096)
    frames = [
        VideoFrame(p, i, budget)
        for i, (p, budget) in enumerate(zip(pictures, budgets, strict=True))
    ]
    assert lengths(Pooled(base, MERGING), frames) == [25, 20, 16, 25]
    assert lengths(Pooled(base, MERGING, 18), frames) == [18, 18, 16, 18]
    assert lengths(Pooled(base, MERGING, 18, group=2), frames) == [18, 16]
    state = Pooled(base, MERGING).open_frames()
    for frame in frames[:3]:  # one by one, the budgets wait with their frames
        _, state = Pooled(base, MERGING).encode_frames([frame], state, False)
    assert state.budgets == (0,)


@pytest.mark.parametrize("group", [1, 2])
def test_frames_of_different_sessions_are_never_pooled_together(tmp_path: Path, group: int) -> None:
    """A batch of an encoder holds pictures of several sessions. A model that makes units of single
    frames stacks them, but for groups."""
    base = load(BASES["llava_onevision"](tmp_path), Loading(torch.float64))
    encoder = ModelImageEncoder(Pooled(base, MERGING, 16, group), base)
    rng = np.random.default_rng(0)
    images = [
        api.Image(70, 70, rng.integers(0, 256, 3 * 70 * 70, dtype=np.uint8).tobytes())
        for _ in range(4)
    ]
    together = encoder.features(images, [b""] * 4, live=True)
    alone = [encoder.features([image], [b""], live=True)[0] for image in images]
    for one, other in zip(together, alone, strict=True):
        ((_, found),), ((_, wanted),) = one.units, other.units
        assert torch.allclose(found, wanted)


FRAMES = [(1, 700), (700, 1), (3, 5_000), (200, 300)]


@pytest.mark.parametrize(
    ("family", "sides"),
    [("pixtral", sides) for sides in FRAMES]
    + [("qwen2_vl", sides) for sides in (*FRAMES, (900, 1_000))],
)
def test_an_encoder_knows_about_how_large_a_frame_becomes(
    tmp_path: Path, family: str, sides: tuple[int, int]
) -> None:
    """Narrow ones too: the memory of a batch is bounded by this. Row ends come on top."""
    base = load(twins.save(getattr(twins, family)(), tmp_path), Loading(torch.float32))
    width, height = sides
    image = api.Image(width, height, bytes(3 * width * height))
    encoder = ModelImageEncoder(base)
    tokens, _ = encoder.size(image, live=True)
    cells = sum(len(vectors) for _, vectors in encoder.features([image], [b""], live=True)[0].units)
    assert tokens >= cells / 2
    assert tokens <= 2 * cells or max(sides) > 1_024  # Pixtral makes those smaller


def lengths(model: StreamModel, frames: Sequence[VideoFrame]) -> list[int]:
    found, _ = model.encode_frames(frames, model.open_frames(), True)
    return [len(unit.features) for unit in found]


# --- from the settings ---------------------------------------------------------------------------


def directory(folder: Path) -> tuple[StreamModel, EngineConfig]:
    twins.save(twins.qwen2_vl(), folder)
    config = EngineConfig(model=str(folder), frame_pooling="learned", pooled_frames=2)
    return load(folder, Loading(torch.float32)), config


def test_a_pooler_from_a_file_of_its_own(tmp_path: Path) -> None:
    """Narrower than the model, for groups of two."""
    model, config = directory(tmp_path)
    theirs = Reference(PoolerSizes(64, 32, 6, 2, frames=2))
    tensors = {name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}
    save_file(tensors, tmp_path / "pooler.safetensors")
    (tmp_path / "pooler.json").write_text(json.dumps({"num_attention_heads": 2}))
    check_learned(pooled(model, config), model, theirs)


def test_a_pooler_in_the_checkpoint(tmp_path: Path) -> None:
    """Beside the model's own tensors, its settings in config.json."""
    model, config = directory(tmp_path)
    theirs = Reference(PoolerSizes(64, 64, 6, 4, frames=2))
    tensors = {f"model.pooler.{name}": t.contiguous() for name, t in theirs.state_dict().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["pooler_config"] = {"num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    check_learned(pooled(model, config), model, theirs)


def check_learned(ours: StreamModel, base: StreamModel, theirs: Reference) -> None:
    frames = [
        replace(frame, time_s=i / 2) for i, frame in enumerate(camera(random.Random(3), 8, 1))
    ]
    found, _ = ours.encode_frames(frames, ours.open_frames(), True)
    single, _ = base.encode_frames(frames, base.open_frames(), True)
    assert len(found) == 2
    for number, unit in enumerate(found):
        seen_units = single[2 * number : 2 * number + 2]
        seen = torch.stack([base.project(one.features, Modality.IMAGE) for one in seen_units])
        with torch.inference_mode():
            wanted = theirs.double()(seen.double(), seen_units[0].rows, seen_units[0].columns)
        assert (unit.features - wanted).abs().max() < 1e-4 * wanted.abs().max()
        assert unit.time_s == seen_units[-1].time_s


def test_no_pooler_is_named(tmp_path: Path) -> None:
    """A directory without one: its settings, or its tensors, are what is missing."""
    model, config = directory(tmp_path)
    with pytest.raises(BadWeights, match="pooler_config"):
        pooled(model, config)
    (tmp_path / "pooler.json").write_text(json.dumps({"num_attention_heads": 3}))
    with pytest.raises(BadWeights, match="queries"):
        pooled(model, config)
    theirs = Reference(PoolerSizes(64, 32, 6, 2))
    save_file(dict(theirs.state_dict()), tmp_path / "pooler.safetensors")
    with pytest.raises(BadWeights, match="multiple of 4 x 3 heads"):
        pooled(model, config)


def test_settings_choose_the_way(tmp_path: Path) -> None:
    """`off` is the model itself; `auto` limits nothing by itself; a text model has no frames."""
    seeing = load(BASES["qwen2_vl"](tmp_path / "vl"), Loading(torch.float32))
    frames = pictures(4)
    assert pooled(seeing, EngineConfig(frame_pooling="off")) is seeing
    assert lengths(pooled(seeing, EngineConfig()), frames) == lengths(seeing, frames)
    for way in ("mean", "merge"):
        config = EngineConfig(frame_pooling=way, frame_tokens=16, pooled_frames=2)
        assert lengths(pooled(seeing, config), frames) == [{"mean": 12, "merge": 16}[way]]
    reading = load(twins.save(twins.qwen2(), tmp_path / "text"), Loading(torch.float32))
    assert pooled(reading, EngineConfig()) is reading
    with pytest.raises(BadSettings, match="takes no pictures"):
        pooled(reading, EngineConfig(frame_pooling="mean"))
    with pytest.raises(BadSettings, match="a bare size has no pooler"):
        pooled(seeing, EngineConfig(frame_pooling="learned", size="3b", weights="dummy"))
