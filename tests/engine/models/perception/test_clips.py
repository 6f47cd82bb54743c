"""Streamed equals offline: a conversation in pieces against one `transformers` forward."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.clips import ClipEncoder
from headstart.engine.models.perception.interface import TailPolicy
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from tests.engine.models.loading import loaded
from tests.engine.models.omni_twin import in_double, offline, tiny_twin, write_directory
from tests.engine.models.playing import Sounded, camera, play, speech
from tests.engine.models.rig import Rig
from tests.numerics import assert_as_near

FP64_TOLERANCE = 1e-9


class Twins(NamedTuple):
    theirs: Any
    exact: Any  # theirs in fp64
    ours: Qwen25Omni
    rig: Rig
    dtype: torch.dtype


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=["fp32", "fp64"])
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    dtype: torch.dtype = request.param
    theirs = tiny_twin(dtype)
    folder = write_directory(theirs, tmp_path_factory.mktemp("omni"))
    ours = loaded(Qwen25Omni, folder, dtype)
    return Twins(theirs, copy.deepcopy(theirs).double(), ours, Rig(ours, dtype), dtype)


def compare(twins: Twins, stream: Stream, clips: list[Sounded]) -> None:
    """Final logits against one forward over everything: in fp64 to 1e-9, in fp32 as near as
    `transformers` in fp32 is."""
    chance = random.Random(1)
    logits = twins.rig.settle(stream, chance)
    assert logits is not None
    with in_double():
        wanted = offline(twins.exact, twins.ours, stream, clips)[-1]
    assert wanted.abs().max() > 1  # or a small difference would mean nothing
    if twins.dtype == torch.float64:
        assert (logits - wanted).abs().max() <= FP64_TOLERANCE
    else:
        assert_as_near(logits, offline(twins.theirs, twins.ours, stream, clips)[-1], wanted)
    twins.rig.pool.check_accounting([stream.table])


@pytest.mark.parametrize("tail", TailPolicy)
@pytest.mark.parametrize("seed", range(4))
def test_a_clip_with_sound_and_pictures(twins: Twins, tail: TailPolicy, seed: int) -> None:
    """Sound and frames interleaved by TMRoPE, arriving in any order: the logits of one forward."""
    chance = random.Random(seed)
    spacing = chance.choice([0.5, 0.75, 1.0, 1.25, 2.0])
    frames = camera(chance, chance.randint(1, 12), spacing)
    sound = speech(chance, chance.randint(3_000, 100_000))
    stream = twins.rig.stream()
    stream.append([1, 2, 3])
    clip = Sounded(sound, frames, spacing)
    play(twins.rig, stream, clip, tail, chance)
    stream.append([4, 5, 6])
    compare(twins, stream, [clip])
    stream.close()


@pytest.mark.parametrize("tail", TailPolicy)
@pytest.mark.parametrize("kind", ["sound", "pictures"])
def test_a_clip_of_one_sense(twins: Twins, tail: TailPolicy, kind: str) -> None:
    """Sound alone counts like words; pictures alone stand at their times."""
    chance = random.Random(kind)
    clip = (
        Sounded(pcm=speech(chance, 77_777))
        if kind == "sound"
        else Sounded(frames=camera(chance, 7, 0.75), seconds_per_unit=0.75)
    )
    stream = twins.rig.stream()
    stream.append([1, 2])
    play(twins.rig, stream, clip, tail, chance)
    stream.append([4, 5])
    compare(twins, stream, [clip])
    stream.close()


@pytest.mark.parametrize("tail", TailPolicy)
def test_turns_with_answers_between(twins: Twins, tail: TailPolicy) -> None:
    """Three clips with generated text between them, each generated from what was streamed: one
    forward over the whole conversation gives the logits of its end."""
    chance = random.Random(7)
    stream = twins.rig.stream()
    stream.append([1, 2, 3])
    clips = []
    for turn in range(3):
        frames = camera(chance, 4 + turn, 1.0)
        clip = Sounded(speech(chance, 30_000 + 9_000 * turn), frames, 1.0)
        play(twins.rig, stream, clip, tail, chance)
        stream.append([4, 5])
        clips.append(clip)
        for _ in range(4):
            logits = twins.rig.settle(stream, chance)
            assert logits is not None
            stream.append([int(logits[:180].argmax())])
    compare(twins, stream, clips)
    stream.close()


def test_policies_differ_only_while_the_clip_is_open(twins: Twins) -> None:
    """Until a window is closed, `closed` reads nothing of it and `provisional` reads what is
    there; a closed window and the end read the same under both."""
    chance = random.Random(3)
    sound = speech(chance, 50_000)
    read = {}
    for tail in TailPolicy:
        stream = twins.rig.stream()
        perception = ClipEncoder(twins.ours, stream.soft, tail)
        lengths = []
        for at in range(0, 50_000, 12_500):
            perception.feed(sound[at : at + 12_500])
            lengths.append(len(perception.ids()) - 1)
        perception.finish()
        lengths.append(len(perception.ids()) - 2)
        read[tail] = lengths
    # 0.78 s a chunk; a window is 2 s and 50 tokens
    assert read[TailPolicy.CLOSED] == [0, 0, 50, 50, 78]
    assert read[TailPolicy.PROVISIONAL] == [20, 39, 59, 78, 78]


def test_the_release_layout_in_shards_is_the_same_model(twins: Twins, tmp_path: Path) -> None:
    """A checkpoint keyed "thinker.", split in three files and with a talker beside it, loads into
    the same weights as today's layout."""
    folder = write_directory(twins.theirs, tmp_path / "old", "thinker.", shards=3)
    old = loaded(Qwen25Omni, folder, twins.dtype)
    mine, other = (model.decoder.weights for model in (twins.ours, old))  # type: ignore[attr-defined]
    assert torch.equal(mine.head.weight, other.head.weight)
    assert torch.equal(mine.layers[1].down.weight, other.layers[1].down.weight)
    sound = speech(random.Random(1), 8_000)
    again, ours, exact = (
        model.encode_audio(sound, model.open_audio(TailPolicy.PROVISIONAL), True).committed
        for model in (old, twins.ours, loaded(Qwen25Omni, folder, torch.float64))
    )
    if twins.dtype == torch.float64:
        assert (again - ours).abs().max() <= FP64_TOLERANCE / 10
    else:
        assert_as_near(again, ours, exact)
