"""EfficientNet-Lite0: pictures to 1000 ImageNet class scores and pooled features.

Architecture: Tan & Le, "EfficientNet" (arXiv 1905.11946), in the Lite variant of tensorflow/tpu:
no squeeze-and-excitation, ReLU6, TensorFlow's SAME padding, batch-norm epsilon 1e-3. The weights
are a PyTorch state dict converted from there; preprocessing is theirs as well.

Batch norms are folded into the convolutions when loading, which halves the number of passes over
memory; `load(path, fold=False)` keeps them, and both must give the same numbers.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.engine.errors import BadWeights

IMAGE_SIZE = 224
CLASSES = 1000
FEATURES = 1280

# The authors crop the middle 224/(224+32) of the shorter side before resizing.
_CROP_PADDING = 32
_MEAN = 127.0
_STD = 128.0
_BN_EPSILON = 1e-3
_STEM_CHANNELS = 32

# What torch.load raises for arbitrary bytes.
_NO_CHECKPOINT = (
    *(pickle.UnpicklingError, EOFError, RuntimeError, ValueError),
    *(LookupError, TypeError, AttributeError),
)


@dataclass(frozen=True)
class Stage:
    """`repeats` equal blocks, of which only the first strides."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    channels_in: int
    channels_out: int


STAGES = (
    Stage(1, 3, 1, 1, 32, 16),
    Stage(2, 3, 2, 6, 16, 24),
    Stage(2, 5, 2, 6, 24, 40),
    Stage(3, 3, 2, 6, 40, 80),
    Stage(3, 5, 1, 6, 80, 112),
    Stage(4, 5, 2, 6, 112, 192),
    Stage(1, 3, 1, 6, 192, 320),
)


class ConvNorm(nn.Module):
    """Convolution with SAME padding, batch norm, and ReLU6 if `relu`."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        stride: int = 1,
        *,
        depthwise: bool = False,
        relu: bool = True,
    ) -> None:
        super().__init__()
        groups = channels_in if depthwise else 1
        # TensorFlow pads an even-sized input of a stride-2 convolution one pixel less at the top
        # and left. Conv2d cannot express that, so padding is a separate step.
        self.before = (kernel - stride) // 2
        self.after = (kernel - stride) - self.before
        even = self.before == self.after
        self.conv = nn.Conv2d(
            channels_in,
            channels_out,
            kernel,
            stride,
            padding=self.before if even else 0,
            groups=groups,
            bias=False,
        )
        self.norm: nn.BatchNorm2d | None = nn.BatchNorm2d(channels_out, eps=_BN_EPSILON)
        self.pad = None if even else (self.before, self.after, self.before, self.after)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        """[B, C_in, H, W] -> [B, C_out, H / stride, W / stride]."""
        if self.pad is not None:
            x = F.pad(x, self.pad)
        y: Tensor = self.conv(x)
        if self.norm is not None:
            y = self.norm(y)
        return F.relu6(y, inplace=True) if self.relu else y

    @torch.no_grad()
    def fold(self) -> None:
        """Fold the batch norm into the convolution: y = s*(Wx - mean) + bias, s = weight/deviation.

        Computed in fp64, so that folding costs one rounding of each weight.
        """
        norm = self.norm
        assert norm is not None, "folded twice"
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        weight = self.conv.weight.double() * scale[:, None, None, None]
        bias = norm.bias.double() - norm.running_mean.double() * scale
        self.conv.weight = nn.Parameter(weight.float(), requires_grad=False)
        self.conv.bias = nn.Parameter(bias.float(), requires_grad=False)
        self.norm = None


class Block(nn.Module):
    """Inverted residual: expand, depthwise convolution, project; plus the input if shapes allow."""

    def __init__(self, stage: Stage, first: bool) -> None:
        super().__init__()
        channels_in = stage.channels_in if first else stage.channels_out
        stride = stage.stride if first else 1
        inner = channels_in * stage.expand
        self.expand = ConvNorm(channels_in, inner, 1) if stage.expand > 1 else None
        self.depthwise = ConvNorm(inner, inner, stage.kernel, stride, depthwise=True)
        self.project = ConvNorm(inner, stage.channels_out, 1, relu=False)
        self.residual = stride == 1 and channels_in == stage.channels_out

    def forward(self, x: Tensor) -> Tensor:
        """[B, C_in, H, W] -> [B, C_out, H / stride, W / stride]."""
        y: Tensor = x if self.expand is None else self.expand(x)
        y = self.project(self.depthwise(y))
        return y + x if self.residual else y


@dataclass(frozen=True)
class Scores:
    """The network's output for a batch: `logits` [B, 1000], `features` [B, 1280], fp32."""

    logits: Tensor
    features: Tensor


class EfficientNetLite0(nn.Module):
    """The whole network. Create it with `load`; call `scores`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, _STEM_CHANNELS, 3, 2)
        self.blocks = nn.Sequential(
            *(Block(stage, i == 0) for stage in STAGES for i in range(stage.repeats))
        )
        self.head = ConvNorm(STAGES[-1].channels_out, FEATURES, 1)
        self.classifier = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Scores:
        """Scores of `x` [B, 3, 224, 224], fp32, normalised by `preprocess`."""
        features = self.head(self.blocks(self.stem(x))).mean(dim=(2, 3))
        return Scores(logits=self.classifier(features), features=features)

    @torch.inference_mode()
    def scores(self, pictures: Tensor) -> Scores:
        """Scores of `pictures`, uint8 [B, H, W, 3], RGB, any size from 1 x 1 up."""
        scores: Scores = self(preprocess(pictures))
        return scores


def preprocess(pictures: Tensor) -> Tensor:
    """uint8 [B, H, W, 3] -> fp32 [B, 3, 224, 224]: centre crop, bicubic resize, (x - 127) / 128."""
    assert pictures.dtype == torch.uint8, pictures.dtype
    assert pictures.ndim == 4, pictures.shape
    assert pictures.shape[3] == 3, pictures.shape
    _, height, width, _ = pictures.shape
    side = max(1, round(min(height, width) * IMAGE_SIZE / (IMAGE_SIZE + _CROP_PADDING)))
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    crop = pictures[:, top : top + side, left : left + side].permute(0, 3, 1, 2).float()
    size = (IMAGE_SIZE, IMAGE_SIZE)
    resized = F.interpolate(crop, size, mode="bicubic", align_corners=False, antialias=True)
    normalised = (resized.clamp_(0.0, 255.0) - _MEAN) / _STD
    return normalised.contiguous(memory_format=torch.channels_last)


def load(path: Path, *, fold: bool = True) -> EfficientNetLite0:
    """The network with the weights in `path`.

    Raises `BadWeights` if the file is not a state dict of tensors, or naming every tensor that is
    missing, surplus, misshapen, or not finite.
    """
    state = _read(path)
    wanted = _tensor_names()
    with torch.device("meta"):  # without first values, which nobody reads
        net = EfficientNetLite0()
    ours = net.state_dict()
    _check(path, state, wanted, ours)
    found = {ours_name: state[name].contiguous() for name, ours_name in wanted.items()}
    net.load_state_dict(found, assign=True)
    net.eval().requires_grad_(False)
    if fold:
        for module in list(net.modules()):
            if isinstance(module, ConvNorm):
                module.fold()
    return net.to(memory_format=torch.channels_last)


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except _NO_CHECKPOINT as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadWeights(path, "content", "a PyTorch state dict", reason) from error
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise BadWeights(path, "content", "a state dict of tensors", type(state).__name__)
    return state


def _tensor_names() -> dict[str, str]:
    """Our name of each tensor, by the file's name."""
    convs = {"_conv_stem": "stem", "_conv_head": "head"}
    norms = {"_bn0": "stem", "_bn1": "head"}
    number = 0
    for stage in STAGES:
        for _ in range(stage.repeats):
            theirs, ours = f"_blocks.{number}.", f"blocks.{number}."
            parts = [("_depthwise_conv", "_bn1", "depthwise"), ("_project_conv", "_bn2", "project")]
            if stage.expand > 1:
                parts.append(("_expand_conv", "_bn0", "expand"))
            for conv, norm, part in parts:
                convs[theirs + conv] = ours + part
                norms[theirs + norm] = ours + part
            number += 1
    names = {"_fc.weight": "classifier.weight", "_fc.bias": "classifier.bias"}
    names |= {f"{theirs}.weight": f"{ours}.conv.weight" for theirs, ours in convs.items()}
    for field in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        names |= {f"{theirs}.{field}": f"{ours}.norm.{field}" for theirs, ours in norms.items()}
    return names


def _check(
    path: Path, state: Mapping[str, Tensor], wanted: Mapping[str, str], ours: Mapping[str, Tensor]
) -> None:
    """Raise one `BadWeights` that lists all faults."""
    faults = [f"{name} missing" for name in wanted if name not in state]
    faults += [f"{name} unknown" for name in state if name not in wanted]
    for name in wanted.keys() & state.keys():
        tensor, model = state[name], ours[wanted[name]]
        if tensor.shape != model.shape:
            faults.append(f"{name} is {tuple(tensor.shape)}, not {tuple(model.shape)}")
        elif not torch.isfinite(tensor).all():
            faults.append(f"{name} has values that are not finite")
    if faults:
        raise BadWeights(path, "tensors", "those of EfficientNet-Lite0", "; ".join(sorted(faults)))
