"""The windowed audio encoder, against `transformers`' on the same features."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from headstart.engine.models.perception.audio_tower import AudioTower, tokens_of
from headstart.engine.models.perception.interface import TailPolicy
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from tests.engine.models.loading import loaded
from tests.engine.models.omni_twin import offline_mel, tiny_twin, write_directory


class Towers(NamedTuple):
    theirs: Any
    ours: AudioTower


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Towers:
    theirs = tiny_twin(torch.float64)
    folder = write_directory(theirs, tmp_path_factory.mktemp("omni"))
    return Towers(theirs.model.audio_tower, loaded(Qwen25Omni, folder, torch.float64).audio_encoder)


def offline(towers: Towers, mel: Tensor) -> Tensor:
    frames = torch.tensor([mel.shape[1]])
    with torch.inference_mode():
        out = towers.theirs(mel.double(), feature_lens=frames, aftercnn_lens=(frames - 1) // 2 + 1)
    features: Tensor = out.last_hidden_state
    return features


def encode(towers: Towers, pcm: Tensor, cuts: list[int], tail: TailPolicy) -> Tensor:
    state, committed = towers.ours.open(tail), []
    with torch.inference_mode():
        for start, stop in zip([0, *cuts], [*cuts, len(pcm)], strict=True):
            out = towers.ours.encode(pcm[start:stop], state, final=stop == len(pcm))
            state = out.state
            committed.append(out.committed)
        return towers.ours.project(torch.cat(committed))


@pytest.mark.parametrize("tail", TailPolicy)
@pytest.mark.parametrize(
    "samples", [800, 2_719, 16_000, 31_999, 32_000, 32_161, 32_480, 64_000, 70_017]
)
def test_any_cut_gives_what_one_pass_gives(towers: Towers, samples: int, tail: TailPolicy) -> None:
    """Sounds that end in, at and just behind a window, in random pieces: the encoding of the whole
    sound's features, to 1e-9."""
    torch.manual_seed(samples)
    pcm = torch.randn(samples) * torch.linspace(0.001, 1, samples)
    wanted = offline(towers, offline_mel(pcm))
    chance = random.Random(samples)
    for _ in range(3):
        cuts = sorted(chance.sample(range(1, samples), chance.randint(1, 9)))
        got = encode(towers, pcm, cuts, tail)
        assert got.shape == wanted.shape
        assert (got - wanted).abs().max() <= 1e-9


def test_the_open_window_is_encoded_as_the_end_of_its_sound(towers: Towers) -> None:
    """What is provisional after a chunk is what an offline pass over the sound so far says; the
    state before is as good as new."""
    torch.manual_seed(0)
    pcm = torch.randn(40_000)
    state = towers.ours.open(TailPolicy.PROVISIONAL)
    with torch.inference_mode():
        first = towers.ours.encode(pcm[:20_000], state, final=False)
        second = towers.ours.encode(pcm[20_000:], first.state, final=False)
        again = towers.ours.encode(pcm[20_000:], first.state, final=False)
        got = towers.ours.project(torch.cat([second.committed, second.provisional]))
    assert not len(first.committed)
    assert torch.equal(second.committed, again.committed)
    assert (got - offline(towers, offline_mel(pcm))).abs().max() <= 1e-9


def test_closed_policy_encodes_nothing_of_an_open_window(towers: Towers) -> None:
    """Under `closed` a chunk within a window costs no encoder work and gives nothing."""
    out = towers.ours.encode(torch.ones(20_000), towers.ours.open(TailPolicy.CLOSED), final=False)
    assert len(out.committed) == len(out.provisional) == 0


def test_tokens_of_a_window() -> None:
    """25 tokens a second, and the lengths that fall short of one."""
    lengths = {0: 0, 2: 0, 3: 1, 5: 1, 17: 4, 19: 5, 39: 10, 50: 12, 100: 25, 150: 37, 200: 50}
    assert {frames: tokens_of(frames) for frames in lengths} == lengths
