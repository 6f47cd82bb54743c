"""Qwen2-VL and Qwen2.5-VL streamed, against one `transformers` forward."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models import qwen2_5_vl, qwen2_vl
from headstart.engine.models.checkpoint.errors import UnsupportedInput
from headstart.engine.models.perception.interface import TailPolicy
from headstart.engine.models.qwen2_5_vl import Qwen25Vl
from headstart.engine.models.qwen2_vl import Qwen2Vl, our_name
from tests.engine.models import twins
from tests.engine.models.loading import loaded
from tests.engine.models.playing import Sounded, camera, play
from tests.engine.models.rig import Rig


class Twins(NamedTuple):
    theirs: Any
    ours: Qwen2Vl
    rig: Rig


@pytest.fixture(scope="module", params=[qwen2_vl.FAMILY, qwen2_5_vl.FAMILY])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    theirs = getattr(twins, request.param)()
    ours = loaded(Qwen2Vl, twins.save(theirs, tmp_path_factory.mktemp("vl")), torch.float64)
    assert ours.spec.family == request.param
    return Twins(theirs, ours, Rig(ours, torch.float64))


def offline(pair: Twins, stream: Stream, clips: list[Sounded]) -> Tensor:
    """Logits of one forward over all that the stream reads, at the positions of *our* rule: the
    pinned `transformers` moved theirs away from what the models were trained with."""
    ids = [VIDEO if stream.soft.media_position(t) else t for t in stream.tokens]
    units = []
    grids = []
    for clip in clips:
        frames = [*clip.frames, *list(clip.frames)[-1:] * (len(clip.frames) % 2)]
        seen = [pair.ours.vision.patches(frames[i : i + 2]) for i in range(0, len(frames), 2)]
        units += [values for values, _, _ in seen]
        grids.append([len(seen), 2 * seen[0][1], 2 * seen[0][2]])
    inputs = torch.tensor([ids])
    with twins.in_double(pair.ours.family), torch.inference_mode():
        logits: Tensor = pair.theirs(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            pixel_values_videos=torch.cat(units).double(),
            video_grid_thw=torch.tensor(grids),
            position_ids=torch.from_numpy(stream.axes(0, len(stream)).copy())[:, None],
        ).logits[0]
    return logits


VIDEO = twins.VIDEO


@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_with_videos(pair: Twins, seed: int) -> None:
    """Clips of random length and size with words between, in random pieces: to 1e-9."""
    chance = random.Random(seed)
    stream = pair.rig.stream()
    clips = []
    for turn in range(2):
        clip = Sounded(frames=camera(chance, chance.randint(1, 8), chance.choice([0.7, 1.0, 2.0])))
        stream.append([1, 2, turn])
        play(pair.rig, stream, clip, TailPolicy.PROVISIONAL, chance)
        stream.append([4, 5])
        clips.append(clip)
    logits = pair.rig.settle(stream, chance)
    assert logits is not None
    wanted = offline(pair, stream, clips)[-1]
    assert wanted.abs().max() > 1
    assert (logits - wanted).abs().max() <= 1e-9
    stream.close()


def test_where_the_versions_agree_so_do_we(pair: Twins) -> None:
    """Grids at least as wide as long in time, where the pinned rule is the trained one: the same
    positions."""
    chance = random.Random(5)
    stream = pair.rig.stream()
    stream.append([1, 2])
    frames = camera(chance, 4, 1.0)
    clip = Sounded(frames=frames)
    play(pair.rig, stream, clip, TailPolicy.CLOSED, chance)
    stream.append([4, 5])
    _, rows, columns = pair.ours.vision.patches(frames[:2])
    assert max(rows, columns) >= 3
    ids = torch.tensor([[VIDEO if stream.soft.media_position(t) else t for t in stream.tokens]])
    kinds = torch.where(ids == VIDEO, 2, 0)
    wanted, _ = pair.theirs.model.get_rope_index(
        ids,
        mm_token_type_ids=kinds,
        video_grid_thw=torch.tensor([[2, 2 * rows, 2 * columns]]),
        attention_mask=torch.ones_like(ids),
    )
    assert wanted[:, 0].tolist() == stream.axes(0, len(stream)).tolist()
    stream.close()


def test_time_counts_seconds(pair: Twins) -> None:
    """Units of 0.7 s at two ids a second, as `transformers` places them; for Qwen2-VL a unit is one
    id, however long it lasts."""
    stream = pair.rig.stream()
    chance = random.Random(3)
    frames = camera(chance, 8, 0.7)
    clip = Sounded(frames=frames)
    play(pair.rig, stream, clip, TailPolicy.CLOSED, chance)
    _, rows, columns = pair.ours.vision.patches(frames[:2])
    times = [media.time for t in stream.tokens if (media := stream.soft.media_position(t))]
    if isinstance(pair.ours, Qwen25Vl):
        assert times[:: rows * columns] == [0, 1, 2, 4]  # of 0, 1.4, 2.8 and 4.2
        wanted = pair.theirs.model.get_vision_position_ids(
            0, torch.tensor([4, 2 * rows, 2 * columns]), 1, 2, 2 * torch.tensor(0.7), device="cpu"
        )
        assert times == wanted[0].long().tolist()
    else:
        assert times[:: rows * columns] == [0, 1, 2, 3]
    stream.close()


def test_it_does_not_hear(pair: Twins) -> None:
    """Sound is refused by name."""
    with pytest.raises(UnsupportedInput, match=f"{pair.ours.family} takes no sound"):
        pair.ours.open_audio(TailPolicy.CLOSED)


def test_names_of_both_layouts() -> None:
    """Released checkpoints and those of today."""
    assert our_name("visual.blocks.0.norm1.weight") == "vision.blocks.0.norm1.weight"
    assert our_name("model.visual.merger.ln_q.bias") == "vision.merger.ln_q.bias"
    assert our_name("model.layers.0.mlp.up_proj.weight") == "decoder.layers.0.mlp.up_proj.weight"
    assert our_name("model.language_model.norm.weight") == "decoder.norm.weight"
    assert our_name("lm_head.weight") == "lm_head.weight"
    assert our_name("something.else") is None


def test_a_directory_is_read_from_disk(pair: Twins, tmp_path: Path) -> None:
    """What `save_pretrained` writes is enough: no other file is asked for."""
    pair.theirs.save_pretrained(tmp_path)
    again = loaded(Qwen2Vl, tmp_path, torch.float64)
    assert torch.equal(again.embed_text(range(200)), pair.ours.embed_text(range(200)))
