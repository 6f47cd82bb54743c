"""int8 weights on the native kernels, beside the exact model."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from headstart.engine.decoder.quantise import quantise
from headstart.engine.errors import BadSettings
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.checkpoint.text_config import decoder_spec
from headstart.engine.models.decoder.choice import in_int8, in_torch
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.interface import TailPolicy
from headstart.kernels.qlinear import dequantize
from tests.engine.models.omni_twin import tiny_twin, write_directory
from tests.engine.models.playing import Sounded, camera, play, speech
from tests.engine.models.rig import Rig


def test_a_weight_is_rounded_to_half_a_step() -> None:
    """Every value within half of its group's step (and fp16's rounding of it); groups of nothing
    stay nothing."""
    weight = torch.randn(48, 96) * torch.logspace(-1, 2, 48)[:, None]
    weight[5, :32] = 0
    back = dequantize(quantise(weight.bfloat16()))
    groups = weight.bfloat16().float().reshape(-1, 32)
    step = groups.abs().amax(dim=1, keepdim=True) / 127
    assert ((back.reshape(-1, 32) - groups).abs() <= step * 0.57 + 1e-9).all()
    assert not back[5, :32].any()


def test_rows_that_no_groups_fill_are_refused() -> None:
    """33 columns."""
    with pytest.raises(BadSettings, match="multiple of 32"):
        quantise(torch.ones(4, 33))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tiny_twin(), tmp_path_factory.mktemp("omni"))


@pytest.mark.usefixtures("our_kernels")
def test_a_flagship_model_in_int8_is_nearly_the_exact_one(folder: Path) -> None:
    """Sound and pictures at their three-axis positions, streamed: logits within 5 % of the exact
    model's; and the same in every cut, bit for bit."""
    got = {}
    for name, build in (("exact", in_torch), ("int8", in_int8), ("again", in_int8)):
        chance = random.Random(4)
        rig = Rig(load(folder, Loading(torch.float32, build=build)), torch.float32)
        clip = Sounded(speech(chance, 40_000), camera(chance, 4, 1.0), 1.0)
        stream = rig.stream()
        stream.append([1, 2])
        play(rig, stream, clip, TailPolicy.CLOSED, chance)
        stream.append([4, 5, 6])
        logits = rig.settle(stream, random.Random(name))
        assert logits is not None
        got[name] = logits.clone()
    assert (got["int8"] - got["exact"]).norm() < 0.05 * got["exact"].norm()
    assert torch.equal(got["int8"], got["again"])


def test_it_takes_a_quarter_of_fp32(folder: Path) -> None:
    """34 bytes for 32 weights."""
    from headstart.engine.models.checkpoint.directory import ModelDirectory

    spec = decoder_spec(ModelDirectory(folder).config.part("text_config"))
    dummy = RandomTensors(torch.float32)
    decoder = in_int8(dummy, spec, (2, 3, 3))
    matrices = dummy.nbytes / 4 * 34 / 32
    assert decoder.weights.nbytes == pytest.approx(matrices, rel=0.15)  # type: ignore[attr-defined]
