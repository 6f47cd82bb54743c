"""The image network: its architecture, its preprocessing, its loader."""

from __future__ import annotations

import copy
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from headstart.engine.errors import BadWeights
from headstart.engine.vision.efficientnet import (
    IMAGE_SIZE,
    STAGES,
    Block,
    ConvNorm,
    EfficientNetLite0,
    Scores,
    Stage,
    load,
    preprocess,
)
from headstart.engine.vision.pixels import Rgb
from tests.numerics import assert_as_near


def _randomise(module: torch.nn.Module, seed: int) -> None:
    """Weights and running statistics as a trained net might have them."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if tensor.dtype == torch.float32:
            values = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(values + 0.5 if "running_var" in name else values - 0.5)


@pytest.mark.parametrize("stage", [*STAGES, Stage(2, 5, 1, 6, 8, 8)])
@pytest.mark.parametrize("first", [True, False])
def test_folding_changes_nothing(stage: Stage, first: bool) -> None:
    """A block with its batch norms folded gives what it gave before, to fp32 rounding."""
    block = Block(stage, first).eval()
    _randomise(block, 1)
    channels = stage.channels_in if first else stage.channels_out
    x = torch.rand(2, channels, 14, 14, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        exact = copy.deepcopy(block).double()(x.double())
        before = block(x)
        for module in list(block.modules()):
            if isinstance(module, ConvNorm):
                module.fold()
        after = block(x)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in block.modules())
    assert_as_near(after, before, exact)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (5, 1), (5, 2)])
def test_padding_is_tensorflows(kernel: int, stride: int) -> None:
    """Each output sums the window that TensorFlow's SAME puts there, by its published formula."""
    size = 8
    conv = ConvNorm(1, 1, kernel, stride, relu=False)
    conv.fold()
    conv.conv.weight.fill_(1.0)
    assert conv.conv.bias is not None
    conv.conv.bias.zero_()
    x = torch.rand(1, 1, size, size, generator=torch.Generator().manual_seed(3))
    out = -(-size // stride)
    before = max((out - 1) * stride + kernel - size, 0) // 2
    padded = torch.zeros(size + 2 * kernel, size + 2 * kernel)
    padded[before : before + size, before : before + size] = x[0, 0]
    expected = torch.tensor(
        [
            [
                padded[i * stride : i * stride + kernel, j * stride : j * stride + kernel].sum()
                for j in range(out)
            ]
            for i in range(out)
        ]
    )
    torch.testing.assert_close(conv(x)[0, 0], expected)


def test_preprocessing_crops_the_middle_and_centres_values() -> None:
    """Only the middle 7/8 of the shorter side counts; 127 becomes 0 and 255 becomes 1."""
    picture = np.full((256, 400, 3), 255, np.uint8)
    picture[16:240, 88:312] = 127
    out = preprocess(torch.from_numpy(picture)[None])
    assert out.shape == (1, 3, IMAGE_SIZE, IMAGE_SIZE)
    assert torch.equal(out, torch.zeros_like(out))
    white = preprocess(torch.full((1, 300, 300, 3), 255, dtype=torch.uint8))
    torch.testing.assert_close(white, torch.ones_like(white))


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (7, 3), (224, 224), (1080, 1920)])
def test_any_size_of_picture_fits(shape: tuple[int, int]) -> None:
    """From one pixel to full HD the network's input has one shape and finite values."""
    picture = torch.randint(0, 256, (1, *shape, 3), dtype=torch.uint8)
    out = preprocess(picture)
    assert out.shape == (1, 3, IMAGE_SIZE, IMAGE_SIZE)
    assert out.abs().max() <= 1.0


@pytest.mark.weights
def test_the_folded_network_equals_the_unfolded(efficientnet_path: Path, cat: Rgb) -> None:
    """On a photograph, logits and features agree as nearly as fp32 lets them; the file's own
    norms."""
    x = torch.from_numpy(cat)[None]
    folded, plain = load(efficientnet_path), load(efficientnet_path, fold=False)
    ours, theirs, exact = folded.scores(x), plain.scores(x), _in_double(plain, x)
    assert_as_near(ours.logits, theirs.logits, exact.logits)
    assert_as_near(ours.features, theirs.features, exact.features)


def _in_double(net: EfficientNetLite0, pictures: Tensor) -> Scores:
    with torch.inference_mode():
        scores: Scores = copy.deepcopy(net).double()(preprocess(pictures).double())
    return scores


@pytest.mark.weights
def test_a_batch_equals_its_pictures(efficientnet_path: Path, cat: Rgb, coffee: Rgb) -> None:
    """Scores don't depend on what else is in the batch, but for what fp32 rounds, nor on the
    call."""
    net = load(efficientnet_path)
    pair = torch.from_numpy(np.stack([cat, coffee]))
    batch, exact = net.scores(pair), _in_double(net, pair)
    for i in range(2):
        alone = net.scores(pair[i : i + 1])
        assert_as_near(batch.logits[i], alone.logits[0], exact.logits[i])
    assert torch.equal(net.scores(pair).logits, batch.logits)
    assert batch.features.shape == (2, 1280)


@pytest.mark.weights
def test_every_bad_tensor_is_named(efficientnet_path: Path, tmp_path: Path) -> None:
    """Missing, surplus, misshapen and non-finite tensors all appear in one error."""
    state: OrderedDict[str, Tensor] = torch.load(efficientnet_path, weights_only=True)
    del state["_bn1.bias"]
    state["_surplus"] = torch.zeros(1)
    state["_fc.weight"] = torch.zeros(10, 1280)
    state["_blocks.3._bn2.weight"] = torch.full((40,), torch.nan)
    path = tmp_path / "bad.pth"
    torch.save(state, path)
    with pytest.raises(BadWeights) as caught:
        load(path)
    for fault in (
        "_bn1.bias missing",
        "_surplus unknown",
        "_fc.weight is (10, 1280), not (1000, 1280)",
        "_blocks.3._bn2.weight has values that are not finite",
    ):
        assert fault in str(caught.value)
    assert str(caught.value).count(";") == 3


def test_what_is_no_state_dict_is_refused(tmp_path: Path) -> None:
    """Empty, garbage, a pickle of something else, or a list: BadWeights with the file's name."""
    for data in (b"", b"not a checkpoint", b"\x80\x02."):
        path = tmp_path / "net.pth"
        path.write_bytes(data)
        with pytest.raises(BadWeights, match=r"net\.pth: content: expected a PyTorch state dict"):
            load(path)
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    with pytest.raises(BadWeights, match="a state dict of tensors, got list"):
        load(tmp_path / "list.pth")
