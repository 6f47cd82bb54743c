"""Face detection: ImageNet has no class for people, and a webcam shows little else.

The cascade is MTCNN (Zhang et al., 2016) in plain torch, with the weights of `facenet-pytorch`. A
small proposal net slides over an image pyramid; two larger nets examine its candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.engine.errors import BadWeights
from headstart.engine.vision.pixels import Rgb

PROPOSE_FILE, REFINE_FILE, OUTPUT_FILE = "pnet.pt", "rnet.pt", "onet.pt"

# Input side of each net, in pixels.
_PROPOSE_SIDE, _REFINE_SIDE, _OUTPUT_SIDE = 12, 24, 48
_STRIDE = 2  # of the proposal net
_PYRAMID_STEP = 0.6  # about a third of the area from one scale to the next
# Pictures are scaled down to this many pixels on the short side first.
_SHORT_SIDE = 160
_PROPOSE_FROM, _REFINE_FROM = 0.7, 0.7
# At 0.9 and below, fur, bark and clock dials are sometimes taken for faces.
_FACE_FROM = 0.97
# Candidates for the second net, the most probable first; bounds the cost of a crowd.
MAX_CANDIDATES = 24
_SAME_BOX, _SAME_FACE = 0.7, 0.3  # intersection over union (finally over the smaller box)

Boxes = npt.NDArray[np.float32]  # [n, 5]: left, top, right, bottom in pixels; probability


@dataclass(frozen=True)
class Face:
    """One face. `height`: share of the picture's height; `centre`: x and y in 0..1."""

    probability: float
    height: float
    centre: tuple[float, float]


class _Trunk(nn.Module):
    """Convolutions, each followed by PReLU and max pooling (size 0: no pooling)."""

    def __init__(self, channels: tuple[int, ...], sides: tuple[int, ...], pools: tuple[int, ...]):
        super().__init__()
        self.pools = pools
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, side)
            for before, after, side in zip(channels, channels[1:], sides, strict=False)
        )
        self.slopes = nn.ParameterList(torch.zeros(after) for after in channels[1:])

    def forward(self, x: Tensor) -> Tensor:
        """[n, 3, H, W] -> [n, C, h, w]."""
        x = x.contiguous(memory_format=torch.channels_last)  # pooling is twice as fast
        for conv, slope, pool in zip(self.convs, self.slopes, self.pools, strict=True):
            x = F.prelu(conv(x), slope)
            if pool:
                x = F.max_pool2d(x, pool, 2, ceil_mode=True)
        return x


class _ProposalNet(nn.Module):
    """Fully convolutional: classifies each 12 x 12 window, two pixels apart."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = _Trunk((3, 10, 16, 32), (3, 3, 3), (2, 0, 0))
        self.is_face = nn.Conv2d(32, 2, 1)
        self.box = nn.Conv2d(32, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[1, 3, H, W] -> probabilities [h, w] and corner shifts [4, h, w]."""
        x = self.trunk(x)
        return self.is_face(x).softmax(1)[0, 1], self.box(x)[0]


class _CropNet(nn.Module):
    """Classifies crops. The refining and the output net differ in size only."""

    def __init__(self, trunk: _Trunk, flat: int, hidden: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.dense = nn.Linear(flat, hidden)
        self.slope = nn.Parameter(torch.zeros(hidden))
        self.is_face = nn.Linear(hidden, 2)
        self.box = nn.Linear(hidden, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Crops [n, 3, S, S] -> probabilities [n] and corner shifts [n, 4]."""
        # The weights come from a framework that flattened columns first.
        x = self.dense(self.trunk(x).permute(0, 3, 2, 1).flatten(1))
        x = F.prelu(x, self.slope)
        return self.is_face(x).softmax(1)[:, 1], self.box(x)


class Faces:
    """The cascade with its weights. Holds no state between pictures."""

    def __init__(self, propose: _ProposalNet, refine: _CropNet, output: _CropNet) -> None:
        self._propose, self._refine, self._output = propose, refine, output

    @classmethod
    def load(cls, folder: Path) -> Faces:
        """From the folder of the weight "mtcnn". Raises `BadWeights` naming file and fault."""
        refining = _CropNet(_Trunk((3, 28, 48, 64), (3, 3, 2), (3, 3, 0)), 576, 128)
        output = _CropNet(_Trunk((3, 32, 64, 64, 128), (3, 3, 3, 2), (3, 3, 2, 0)), 1152, 256)
        proposing = _ProposalNet()
        _fill(proposing, folder / PROPOSE_FILE, 3, ("conv4_1", "conv4_2"))
        _fill(refining, folder / REFINE_FILE, 3, ("dense5_1", "dense5_2"))
        _fill(output, folder / OUTPUT_FILE, 4, ("dense6_1", "dense6_2"))
        return cls(proposing, refining, output)

    @torch.inference_mode()
    def find(self, rgb: Rgb) -> list[Face]:
        """Faces in `rgb`, uint8 [H, W, 3], largest first. Faces smaller than a tenth of the
        picture's short side are not found."""
        height, width = rgb.shape[:2]
        scale = min(1.0, _SHORT_SIDE / min(height, width))
        pixels = torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float().sub_(127.5).div_(128.0)
        if scale < 1.0:
            pixels = F.interpolate(pixels, _size(height, width, scale), mode="area")
        boxes = self._candidates(pixels)
        boxes = _classify(self._refine, pixels, boxes, _REFINE_SIDE, _REFINE_FROM)
        boxes = _distinct(boxes, _SAME_BOX)
        boxes = _classify(self._output, pixels, boxes, _OUTPUT_SIDE, _FACE_FROM)
        boxes = _distinct(boxes, _SAME_FACE, of_smaller=True)
        rows, columns = pixels.shape[2:]
        faces = [
            Face(
                probability=float(p),
                height=float((bottom - top) / rows),
                centre=(float((left + right) / 2 / columns), float((top + bottom) / 2 / rows)),
            )
            for left, top, right, bottom, p in boxes
        ]
        return sorted(faces, key=lambda face: -face.height)

    def _candidates(self, pixels: Tensor) -> Boxes:
        """The proposal net's best boxes over all scales, at most `MAX_CANDIDATES`."""
        rows, columns = pixels.shape[2:]
        scale = _PROPOSE_SIDE / (0.1 * min(rows, columns))
        found = [np.zeros((0, 5), np.float32)]
        while min(rows, columns) * min(scale, 1.0) >= _PROPOSE_SIDE:
            if scale <= 1.0:
                small = F.interpolate(pixels, _size(rows, columns, scale), mode="area")
                probability, shift = self._propose(small)
                found.append(_distinct(_windows(probability, shift, scale), 0.5))
            scale *= _PYRAMID_STEP
        return _distinct(np.concatenate(found), _SAME_BOX)[:MAX_CANDIDATES]


def _size(rows: int, columns: int, scale: float) -> tuple[int, int]:
    return max(1, round(rows * scale)), max(1, round(columns * scale))


def _windows(probability: Tensor, shift: Tensor, scale: float) -> Boxes:
    """Windows that may hold a face, with the net's shifts, in pixels of the unscaled picture."""
    at = (probability >= _PROPOSE_FROM).nonzero()
    corner = at.flip(1).float() * _STRIDE
    boxes = torch.cat([corner, corner + _PROPOSE_SIDE], 1) / scale
    moved = boxes + shift[:, at[:, 0], at[:, 1]].T * (_PROPOSE_SIDE / scale)
    out = torch.cat([moved, probability[at[:, 0], at[:, 1]][:, None]], 1)
    return out.numpy().astype(np.float32)


def _classify(net: _CropNet, pixels: Tensor, boxes: Boxes, side: int, least: float) -> Boxes:
    """The boxes that `net` classifies as faces, with its shifts applied."""
    boxes = _square(boxes)
    crops = [_crop(pixels, box, side) for box in boxes]
    boxes = boxes[[crop is not None for crop in crops]]
    if not len(boxes):
        return boxes
    found = net(torch.cat([crop for crop in crops if crop is not None]))
    probability, shift = (out.numpy() for out in found)
    keep = probability >= least
    sides = (boxes[:, 2] - boxes[:, 0])[keep, None]
    moved = boxes[keep, :4] + shift[keep] * sides
    return np.concatenate([moved, probability[keep, None]], 1).astype(np.float32)


def _square(boxes: Boxes) -> Boxes:
    """Each box around its centre with the longer side on both axes."""
    centre = (boxes[:, :2] + boxes[:, 2:4]) / 2
    half = (boxes[:, 2:4] - boxes[:, :2]).max(axis=1, keepdims=True, initial=0.0) / 2
    return np.concatenate([centre - half, centre + half, boxes[:, 4:]], 1).astype(np.float32)


def _crop(pixels: Tensor, box: npt.NDArray[np.float32], side: int) -> Tensor | None:
    """[1, 3, side, side], grey outside of the picture; None if the box lies outside entirely."""
    rows, columns = pixels.shape[2:]
    left, top, right, bottom = (round(float(edge)) for edge in box[:4])
    inside = pixels[:, :, max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
    if 0 in inside.shape or max(right - left, bottom - top) > 4 * max(rows, columns):
        return None
    margins = (max(0, -left), max(0, right - columns), max(0, -top), max(0, bottom - rows))
    return F.interpolate(F.pad(inside, margins), (side, side), mode="area")


def _distinct(boxes: Boxes, overlap: float, *, of_smaller: bool = False) -> Boxes:
    """Non-maximum suppression: the most probable of overlapping boxes, best first."""
    boxes = boxes[np.argsort(-boxes[:, 4], kind="stable")]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    left = np.arange(len(boxes))
    while len(left):
        best, rest = left[0], left[1:]
        kept.append(int(best))
        corner = np.minimum(boxes[best, 2:4], boxes[rest, 2:4])
        sides = (corner - np.maximum(boxes[best, :2], boxes[rest, :2])).clip(min=0.0)
        shared = sides[:, 0] * sides[:, 1]
        smaller = np.minimum(area[best], area[rest])
        whole = smaller if of_smaller else area[best] + area[rest] - shared
        left = rest[shared <= overlap * whole]
    return boxes[kept]


def _fill(net: nn.Module, path: Path, convs: int, heads: tuple[str, str]) -> None:
    """Load the file's tensors into `net`. Raises `BadWeights`."""
    wanted: dict[str, str] = {}
    for i in range(convs):
        wanted |= {f"conv{i + 1}.{kind}": f"trunk.convs.{i}.{kind}" for kind in ("weight", "bias")}
        wanted[f"prelu{i + 1}.weight"] = f"trunk.slopes.{i}"
    for head, name in zip(heads, ("is_face", "box"), strict=True):
        wanted |= {f"{head}.{kind}": f"{name}.{kind}" for kind in ("weight", "bias")}
    if isinstance(net, _CropNet):
        number = convs + 1
        wanted |= {f"dense{number}.{kind}": f"dense.{kind}" for kind in ("weight", "bias")}
        wanted[f"prelu{number}.weight"] = "slope"
    state, ours = _read(path), net.state_dict()
    for theirs, name in wanted.items():
        got = tuple(state[theirs].shape) if theirs in state else None
        if got != tuple(ours[name].shape):
            raise BadWeights(path, theirs, str(tuple(ours[name].shape)), str(got or "nothing"))
    net.load_state_dict({name: state[theirs] for theirs, name in wanted.items()})
    net.eval().requires_grad_(False)


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, UnpicklingError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadWeights(path, "content", "a PyTorch state dict", reason) from error
    if not isinstance(state, Mapping):
        raise BadWeights(path, "content", "a state dict of tensors", type(state).__name__)
    return state
