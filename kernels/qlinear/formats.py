"""GGUF blocks -> integers and scales, in numpy.

A weight matrix W[N, K] arrives as the bytes of N rows of blocks, each block 32 or 256 values along
K. Every kind decodes to one `Planes`: unsigned codes `q`, and per group of values a scale and
perhaps a minimum, so that W = s * (q - zero) + m with

  blocks of 32:   s = scale                        m = minimum (Q4_1, Q5_1), else 0
  blocks of 256:  s = scale * sub_scale[group]     m = -minimum * sub_minimum[group]

`scale` and `minimum` stay float16 as stored and the sub-scales stay 6 or 8 bit integers: nothing is
rounded. Block layouts: the GGUF specification (ggml-common.h in ggml-org/llama.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
F16 = npt.NDArray[np.float16]


class UnknownKindError(ValueError):
    """A quantisation kind that is not supported."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"unknown weight kind {kind!r}: expected one of {', '.join(FORMATS)}")


class WeightShapeError(ValueError):
    """The bytes of a weight do not match its stated shape."""


@dataclass(frozen=True)
class Format:
    """The layout of one kind of block. `bits` 16 and 32 are plain floats."""

    code: int  # the C kernel's number for it
    bits: int
    block: int  # values along K in one block
    block_bytes: int
    zero: int = 0
    affine: bool = False
    group: int = 32  # values along K that share one scale

    @property
    def is_float(self) -> bool:
        return self.bits >= 16

    @property
    def is_super(self) -> bool:
        """Whether a block is 256 values with integer sub-scales."""
        return self.block == 256


FORMATS: dict[str, Format] = {
    "Q4_0": Format(code=0, bits=4, block=32, block_bytes=18, zero=8),
    "Q4_1": Format(code=1, bits=4, block=32, block_bytes=20, affine=True),
    "Q5_0": Format(code=2, bits=5, block=32, block_bytes=22, zero=16),
    "Q5_1": Format(code=3, bits=5, block=32, block_bytes=24, affine=True),
    "Q8_0": Format(code=4, bits=8, block=32, block_bytes=34, zero=128),
    "Q4_K": Format(code=5, bits=4, block=256, block_bytes=144, affine=True),
    "Q5_K": Format(code=6, bits=5, block=256, block_bytes=176, affine=True),
    "Q6_K": Format(code=7, bits=6, block=256, block_bytes=210, zero=32, group=16),
    "F16": Format(code=8, bits=16, block=1, block_bytes=2),
    "F32": Format(code=9, bits=32, block=1, block_bytes=4),
}


@dataclass(frozen=True)
class Planes:
    """One decoded weight, with B blocks per row and S groups per block.

    q           uint8 [N, K]       codes, 0 .. 2^bits - 1 (Q8_0: the int8 value + 128)
    scale       float16 [N, B]
    minimum     float16 [N, B]     or None
    sub_scale   uint8 [N, B, S]    or None; Q6_K: the bits of an int8
    sub_minimum uint8 [N, B, S]    or None
    """

    q: U8
    scale: F16
    minimum: F16 | None = None
    sub_scale: U8 | None = None
    sub_minimum: U8 | None = None


def lookup(kind: str) -> Format:
    """The layout of `kind`; raises UnknownKindError."""
    try:
        return FORMATS[kind]
    except KeyError:
        raise UnknownKindError(kind) from None


def check_blocks(kind: str, rows: int, cols: int) -> Format:
    """Raise WeightShapeError unless [rows, cols] are whole blocks of `kind`."""
    form = lookup(kind)
    if rows < 1 or cols < 1 or cols % form.block:
        raise WeightShapeError(
            f"{kind} weight of shape [{rows}, {cols}]: expected at least one row, "
            f"and columns a positive multiple of {form.block}"
        )
    return form


def check_shape(kind: str, size_bytes: int, rows: int, cols: int) -> Format:
    """Raise WeightShapeError unless `size_bytes` bytes are exactly [rows, cols] of `kind`."""
    form = check_blocks(kind, rows, cols)
    expected = rows * cols // form.block * form.block_bytes
    if size_bytes != expected:
        raise WeightShapeError(
            f"{kind} weight of shape [{rows}, {cols}] takes {expected} bytes, got {size_bytes}"
        )
    return form


def decode(kind: str, raw: U8, rows: int, cols: int) -> Planes:
    """Decode the blocks of a quantised kind; raises WeightShapeError, UnknownKindError."""
    form = check_shape(kind, raw.size, rows, cols)
    assert not form.is_float
    blocks = np.ascontiguousarray(raw).reshape(rows, cols // form.block, form.block_bytes)
    if form.is_super:
        return _decode_q6k(blocks) if kind == "Q6_K" else _decode_super(blocks, form)
    return _decode_small(blocks, form)


def _half(raw: U8) -> F16:
    """Two bytes in the last axis, little endian -> one float16."""
    return np.ascontiguousarray(raw).view("<f2")[..., 0]


def _decode_small(blocks: U8, form: Format) -> Planes:
    """Blocks of 32: d, [m], [32 fifth bits], 16 bytes of nibbles (or 32 int8)."""
    rows, count, _ = blocks.shape
    scale = _half(blocks[..., 0:2])
    if form.bits == 8:
        return Planes((blocks[..., 2:34] + np.uint8(128)).reshape(rows, -1), scale)
    at = 4 if form.affine else 2
    minimum = _half(blocks[..., 2:4]) if form.affine else None
    nibbles = blocks[..., -16:]
    q = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)  # [N, B, 32]
    if form.bits == 5:
        q |= np.unpackbits(blocks[..., at : at + 4], axis=-1, bitorder="little") << 4
    return Planes(q.reshape(rows, count * 32), scale, minimum)


def _decode_super(blocks: U8, form: Format) -> Planes:
    """Q4_K, Q5_K: d, dmin, 8 x (6-bit scale, 6-bit minimum) in 12 bytes, [high bits], nibbles."""
    rows, count, _ = blocks.shape
    packed = blocks[..., 4:16]
    low, high, mixed = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    sub_scale = np.concatenate([low & 63, (mixed & 15) | (low >> 6 << 4)], axis=-1)
    sub_minimum = np.concatenate([high & 63, (mixed >> 4) | (high >> 6 << 4)], axis=-1)
    nibbles = blocks[..., -128:].reshape(rows, count, 4, 1, 32)
    q = np.concatenate([nibbles & 15, nibbles >> 4], axis=3).reshape(rows, count, 8, 32)
    if form.bits == 5:
        bits = blocks[..., 16:48].reshape(rows, count, 1, 32)
        q |= (bits >> np.arange(8, dtype=np.uint8)[:, None] & 1) << 4
    return Planes(
        q.reshape(rows, count * 256),
        _half(blocks[..., 0:2]),
        _half(blocks[..., 2:4]),
        sub_scale,
        sub_minimum,
    )


def _decode_q6k(blocks: U8) -> Planes:
    """Q6_K: 128 bytes of low nibbles, 64 of two high bits, 16 int8 sub-scales, d."""
    rows, count, _ = blocks.shape
    low = blocks[..., 0:128].reshape(rows, count, 2, 1, 64)
    q = np.concatenate([low & 15, low >> 4], axis=3).reshape(rows, count, 2, 4, 32)
    high = blocks[..., 128:192].reshape(rows, count, 2, 1, 32)
    q |= (high >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3) << 4
    return Planes(
        q.reshape(rows, count * 256),
        _half(blocks[..., 208:210]),
        sub_scale=np.ascontiguousarray(blocks[..., 192:208]),
    )
