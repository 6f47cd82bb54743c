"""Model directories with K/V of pictures in fewer bytes: streamed as offline, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headstart.engine.models.decoder.choice import in_int8, in_torch
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.interface import TailPolicy
from tests.engine.models.omni_twin import tiny_twin, write_directory
from tests.engine.models.playing import Sounded, camera, play, speech
from tests.engine.models.rig import BLOCK, Rig


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tiny_twin(), tmp_path_factory.mktemp("omni"))


def answer(rig: Rig, cut: int) -> Tensor:
    """Logits behind words, three seconds of sound and frames, and a question; `cut`: how it
    arrives, what is guessed and taken back, and how long the steps are."""
    clip = Sounded(speech(random.Random(4), 40_000), camera(random.Random(5), 6, 1.0), 1.0)
    chance, stream = random.Random(cut), rig.stream()
    stream.append([1, 2])
    play(rig, stream, clip, TailPolicy.CLOSED, chance)
    stream.append([4, 5, 6])
    logits = rig.settle(stream, chance)
    assert logits is not None
    pictures = sum(map(stream.soft.is_picture, stream.tokens))
    sounds = len(stream.tokens) - 5 - pictures
    assert min(pictures, sounds) > 10
    if rig.pool.is_mixed:
        assert 0 < stream.narrow_tokens <= pictures // BLOCK * BLOCK
        assert stream.narrow_tokens >= pictures - (pictures // BLOCK + 1) * BLOCK // 2
    rig.pool.check_accounting(stream.tables)
    stream.close()
    return logits.clone()


@pytest.mark.usefixtures("our_kernels")
@pytest.mark.parametrize("narrow", ["int8", "fp8"])
def test_streamed_equals_offline_bit_for_bit(folder: Path, narrow: str) -> None:
    """Sound and pictures in any cut, their guesses taken back: the same logits in the native
    kernels, with blocks of two types."""
    model = load(folder, Loading(torch.float32, build=in_int8))
    rig = Rig(model, torch.float32, vision_dtype=narrow)
    wanted = answer(rig, 0)
    assert all(torch.equal(answer(rig, cut), wanted) for cut in range(1, 5))


def test_the_torch_decoder_reads_both_types(folder: Path) -> None:
    """In fp64: the logits of one cut are those of another to what rounding leaves, and near those
    with one type."""
    model = load(folder, Loading(torch.float64, build=in_torch))
    mixed = Rig(model, torch.float64, vision_dtype="int8")
    wanted, exact = answer(mixed, 0), answer(Rig(model, torch.float64), 0)
    assert (answer(mixed, 1) - wanted).abs().max() < 1e-9
    assert 0 < (wanted - exact).norm() < 0.03 * exact.norm()
