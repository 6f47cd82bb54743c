"""Whisper's encoder in blocks, against its layers under a block-causal mask."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.asr.mel import MaxPolicy
from headstart.engine.errors import BadSettings
from headstart.engine.models.checkpoint.directory import ModelDirectory
from headstart.engine.models.composite import whisper_name, whisper_sizes
from headstart.engine.models.perception.block_whisper import BlockWhisper
from headstart.engine.models.perception.interface import TailPolicy
from tests.engine.models import twins
from tests.engine.models.omni_twin import offline_mel

BLOCK, STACK = 20, 4


class Twins(NamedTuple):
    theirs: Any
    ours: BlockWhisper
    directory: ModelDirectory


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    theirs = twins.whisper()
    directory = ModelDirectory(twins.save(theirs, tmp_path_factory.mktemp("whisper")))
    tensors = directory.checkpoint(whisper_name, torch.float64)
    sizes = whisper_sizes(directory.config, BLOCK, STACK)
    ours = BlockWhisper(tensors, sizes, MaxPolicy.RUNNING)
    return Twins(theirs.model.encoder, ours, directory)


def offline(encoder: Any, mel: Tensor) -> Tensor:
    """Stacked features of the whole sound: each block sees itself and those before."""
    with torch.inference_mode():
        x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel[None].double())))).transpose(1, 2)
        frames = x.shape[1]
        x = x + encoder.embed_positions.weight[:frames]
        block = torch.arange(frames) // BLOCK
        mask = torch.zeros(frames, frames, dtype=torch.float64)
        mask.masked_fill_(block[:, None] < block[None, :], -torch.inf)
        for layer in encoder.layers:
            out = layer(x, mask[None, None])
            x = out[0] if isinstance(out, tuple) else out
        x = encoder.layer_norm(x)[0]
    return F.pad(x, (0, 0, 0, -frames % STACK)).reshape(-1, STACK * x.shape[1])


def streamed(ours: BlockWhisper, pcm: Tensor, cuts: list[int], tail: TailPolicy) -> Tensor:
    state, out = ours.open(tail), []
    with torch.inference_mode():
        for start, stop in zip([0, *cuts], [*cuts, len(pcm)], strict=True):
            encoded = ours.encode(pcm[start:stop], state, final=stop == len(pcm))
            state = encoded.state
            out.append(encoded.committed)
    return torch.cat(out)


@pytest.mark.parametrize("tail", TailPolicy)
@pytest.mark.parametrize("samples", [500, 6_399, 6_400, 6_561, 12_900, 30_001, 63_999])
def test_any_cut_gives_what_one_pass_gives(pair: Twins, samples: int, tail: TailPolicy) -> None:
    """Sounds that end in, at and behind a block, in random pieces: to 1e-9."""
    torch.manual_seed(samples)
    pcm = torch.randn(samples) * torch.linspace(0.01, 1, samples)
    wanted = offline(pair.theirs, offline_mel(pcm))
    chance = random.Random(samples)
    for _ in range(3):
        cuts = sorted(chance.sample(range(1, samples), chance.randint(1, 7)))
        got = streamed(pair.ours, pcm, cuts, tail)
        assert got.shape == wanted.shape
        assert (got - wanted).abs().max() <= 1e-9


def test_sound_beyond_the_positions_begins_a_new_piece(pair: Twins) -> None:
    """Past the last position the encoder goes on without an end, and without growing: what it
    gives there depends on no piece before but for the edge of the convolution."""
    torch.manual_seed(1)
    first, second = torch.randn(64_000), torch.randn(64_000)
    other = torch.cat([torch.randn(63_000), first[63_000:]])
    ours = [
        streamed(pair.ours, torch.cat([head, second]), [50_000], TailPolicy.CLOSED)
        for head in (first, other)
    ]
    piece = 200 // STACK
    assert len(ours[0]) == 2 * piece
    assert (ours[0][:piece] - ours[1][:piece]).abs().max() > 1e-3
    assert (ours[0][piece:] - ours[1][piece:]).abs().max() <= 1e-6


def test_a_block_holds_whole_stacks(pair: Twins) -> None:
    """A block of 18 frames is not made of stacks of 4, one of 60 does not divide the positions."""
    tensors = pair.directory.checkpoint(whisper_name, torch.float64)
    for block in (18, 60):
        sizes = whisper_sizes(pair.directory.config, block, STACK)
        with pytest.raises(BadSettings, match="audio block"):
            BlockWhisper(tensors, sizes, MaxPolicy.RUNNING)
