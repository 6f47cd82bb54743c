"""A GGUF weight as a GPU loads it: the file's own integers and scales, 32 columns at a time.

A *group* is 32 neighbouring columns. Every plane is group-major, rows innermost, so that a tile of
rows of one group is one piece of memory:

    codes   uint8 [G, N, 16]      4 bits: byte j has columns j (low nibble) and j + 16
            uint8 [G, 2, N, 16]   8 bits: int8 of columns 0-15, then of 16-31
    high    int32 [G, N]          5 bits: bit j is column j's fifth
            int32 [G, 2, N]       6 bits: bits 2j, 2j + 1 of the first word are column j's, of the
                                  second word column j + 16's
    scale, minimum      fp16 [B, N]       one a block of 32 or 256 columns
    sub_scale           uint8 [G, N], Q6_K int8 [G, 2, N]
    sub_minimum         uint8 [G, N]

    W = scale (sub_scale) (code - zero) + minimum,  or - minimum sub_minimum for blocks of 256

Nothing is rounded: a weight takes what it takes in the file, or a little more where 6-bit
sub-scales become bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.kernels.qlinear.formats import WeightShapeError, decode, lookup

GROUP = 32
HALF = 16


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """W[rows, cols] of GGUF kind `kind`; see the module's docstring."""

    kind: str
    rows: int
    cols: int
    codes: Tensor
    high: Tensor | None
    scale: Tensor
    minimum: Tensor | None
    sub_scale: Tensor | None
    sub_minimum: Tensor | None

    @property
    def planes(self) -> tuple[Tensor | None, ...]:
        return (
            self.codes,
            self.high,
            self.scale,
            self.minimum,
            self.sub_scale,
            self.sub_minimum,
        )

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in self.planes if plane is not None)

    def to(self, device: str | torch.device) -> PackedWeight:
        """The same weight on a device."""
        moved = [None if plane is None else plane.to(device) for plane in self.planes]
        codes, high, scale, minimum, sub_scale, sub_minimum = moved
        assert codes is not None
        assert scale is not None
        return PackedWeight(
            self.kind, self.rows, self.cols, codes, high, scale, minimum, sub_scale, sub_minimum
        )


def pack(kind: str, raw: npt.NDArray[np.uint8], rows: int, cols: int) -> PackedWeight:
    """The bytes of a GGUF tensor [rows, cols] -> planes, on the CPU.

    Raises UnknownKindError, WeightShapeError; also for F16 and F32, which are no codes.
    """
    if lookup(kind).is_float:
        raise WeightShapeError(f"{kind} weight: expected a quantised kind")
    planes = decode(kind, raw, rows, cols)
    codes, high = _codes(planes.q, lookup(kind).bits)
    sub_scale = None
    if planes.sub_scale is not None:
        # Q6_K has one for 16 columns, and they are signed.
        is_halved = kind == "Q6_K"
        subs = planes.sub_scale.view(np.int8) if is_halved else planes.sub_scale
        sub_scale = _by_group(subs.reshape(rows, cols // GROUP, -1))
        sub_scale = sub_scale if is_halved else sub_scale[:, 0].contiguous()
    sub_minimum = None
    if planes.sub_minimum is not None:
        sub_minimum = torch.from_numpy(_turned(planes.sub_minimum.reshape(rows, -1)))
    return PackedWeight(
        kind,
        rows,
        cols,
        codes,
        high,
        torch.from_numpy(_turned(planes.scale)),
        None if planes.minimum is None else torch.from_numpy(_turned(planes.minimum)),
        sub_scale,
        sub_minimum,
    )


def shaped(kind: str, rows: int, cols: int, device: str) -> PackedWeight:
    """A weight without contents, of the shapes that `pack` gives: to plan, and to count bytes."""
    form = lookup(kind)
    groups, count = cols // GROUP, cols // form.block

    def make(dtype: torch.dtype, *size: int) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    halved = kind == "Q6_K"
    high = None
    if form.bits == 5:
        high = make(torch.int32, groups, rows)
    elif form.bits == 6:
        high = make(torch.int32, groups, 2, rows)
    sub_scale = None
    if form.is_super:
        sub_scale = make(torch.uint8, groups, rows)
        sub_scale = make(torch.int8, groups, 2, rows) if halved else sub_scale
    return PackedWeight(
        kind,
        rows,
        cols,
        make(torch.int8, groups, 2, rows, HALF)
        if form.bits == 8
        else make(torch.uint8, groups, rows, HALF),
        high,
        make(torch.float16, count, rows),
        make(torch.float16, count, rows) if form.affine else None,
        sub_scale,
        make(torch.uint8, groups, rows) if form.is_super and form.affine else None,
    )


def take_rows(w: PackedWeight, rows: Tensor) -> PackedWeight:
    """The rows at `rows` int64 [n] of a weight, still packed, such as a batch's token
    embeddings."""

    def taken(plane: Tensor | None, axis: int = -1) -> Tensor | None:
        return None if plane is None else plane.index_select(axis, rows)

    codes, scale = taken(w.codes, -2), taken(w.scale)
    assert codes is not None
    assert scale is not None
    rest = (taken(plane) for plane in (w.minimum, w.sub_scale, w.sub_minimum))
    return PackedWeight(w.kind, len(rows), w.cols, codes, taken(w.high), scale, *rest)


def dequantize(w: PackedWeight, dtype: torch.dtype = torch.float32) -> Tensor:
    """W [rows, cols] in `dtype` (fp32 or fp64), from the planes: what the kernel has to find."""
    form = lookup(w.kind)
    groups = w.cols // GROUP
    if form.bits == 8:
        code = w.codes.permute(2, 0, 1, 3).reshape(w.rows, w.cols).to(dtype)
    else:
        low = w.codes.permute(1, 0, 2)
        whole = torch.cat((low & 15, low >> 4), dim=-1).int()  # [N, G, 32]
        at = torch.arange(GROUP, device=low.device)
        if form.bits == 5:
            assert w.high is not None
            whole |= ((w.high.T[..., None] >> at) & 1) << 4
        if form.bits == 6:
            assert w.high is not None
            words = w.high.permute(2, 0, 1).repeat_interleave(HALF, dim=-1)
            whole |= ((words >> (at % HALF * 2)) & 3) << 4
        code = whole.reshape(w.rows, w.cols).to(dtype) - form.zero
    scale = w.scale.T.to(dtype).repeat_interleave(form.block, dim=1)
    if w.sub_scale is not None:
        subs = w.sub_scale.reshape(groups, -1, w.rows).permute(2, 0, 1).reshape(w.rows, -1)
        scale = scale * subs.to(dtype).repeat_interleave(w.cols // subs.shape[1], dim=1)
    out = scale * code
    if w.minimum is not None:
        least = w.minimum.T.to(dtype).repeat_interleave(form.block, dim=1)
        if w.sub_minimum is not None:
            least = -least * w.sub_minimum.T.to(dtype).repeat_interleave(GROUP, dim=1)
        out = out + least
    return out


def _codes(q: npt.NDArray[np.uint8], bits: int) -> tuple[Tensor, Tensor | None]:
    """Codes [N, K] -> the planes `codes` and `high`."""
    rows, cols = q.shape
    groups = q.reshape(rows, cols // GROUP, GROUP).swapaxes(0, 1)  # [G, N, 32]
    if bits == 8:
        signed = (groups ^ 128).view(np.int8)
        halves = np.stack((signed[..., :HALF], signed[..., HALF:]), axis=1)
        return torch.from_numpy(np.ascontiguousarray(halves)), None
    low = groups & 15
    codes = low[..., :HALF] | (low[..., HALF:] << 4)
    high = None
    if bits == 5:
        packed = np.packbits(groups >> 4, axis=-1, bitorder="little")
        high = torch.from_numpy(np.ascontiguousarray(packed).view("<i4")[..., 0].copy())
    if bits == 6:
        pairs = (groups >> 4).reshape(*groups.shape[:2], 2, HALF).astype(np.uint32)
        words = np.bitwise_or.reduce(pairs << (2 * np.arange(HALF, dtype=np.uint32)), axis=-1)
        turned = np.ascontiguousarray(words.swapaxes(1, 2)).view(np.int32)
        high = torch.from_numpy(turned)
    return torch.from_numpy(np.ascontiguousarray(codes)), high


def _turned(plane: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return np.ascontiguousarray(plane.T)


def _by_group(subs: npt.NDArray[np.generic]) -> Tensor:
    """[N, G, n] -> [G, n, N]."""
    return torch.from_numpy(np.ascontiguousarray(subs.transpose(1, 2, 0)))
