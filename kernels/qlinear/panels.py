"""Planes <-> panels: the order in which the kernel streams a weight, in numpy.

A panel is PANEL = 16 rows of W, stored as two halves of 8 rows. A *vector* is 32 bytes: for 8 rows,
4 neighbouring values along K, byte 4 * row + k. One 4-byte piece of an activation, broadcast, then
meets 8 rows in one multiply, and every output has its own lane: no sum ever crosses lanes. A group
of 32 values along K is 8 vectors a half. Codes of 4 bits pair vectors v and v + 4 in one (low, high
nibble); a fifth bit goes to one more vector (bit v belongs to vector v); two high bits go to two
more (bits 2v, 2v + 1 of the first belong to vector v, of the second to vector v + 4).

One cell per block along K, a panel's cells follow one another (bytes, 16 rows):

  blocks of 32    scale 32 | [minimum 32] | half 0 | half 1
  blocks of 256   scale 32 | [minimum 32] | sub_scale S * 16 | [sub_minimum S * 16]
                  | 8 groups x (half 0 | half 1)
  half            [high bits 32 or 64] | nibbles 128          (8 bits: int8 256)
  F16, F32        16 values, one per row, for each k

Rows beyond the last are zero bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.kernels.qlinear.formats import U8, Format, Planes, lookup

PANEL = 16


def cell_bytes(form: Format) -> int:
    """Bytes of one block along K of one panel."""
    if form.is_float:
        return PANEL * form.bits // 8
    head = PANEL * 2 * (2 if form.affine else 1)
    if form.is_super:
        head += PANEL * (256 // form.group) * (2 if form.affine else 1)
    return head + PANEL * form.block * form.bits // 8


def panel_bytes(form: Format, cols: int) -> int:
    """Bytes of one panel of a weight with `cols` columns."""
    return cols // form.block * cell_bytes(form)


def panel_count(rows: int) -> int:
    """Number of panels for `rows` rows."""
    return -(-rows // PANEL)


def _by_panel(per_row: npt.NDArray[np.generic], panels: int) -> U8:
    """[N, B, ...] -> bytes [panels, B, ..., 16], the row innermost, missing rows zero."""
    rows = per_row.shape[0]
    padded = np.zeros((panels * PANEL, *per_row.shape[1:]), dtype=per_row.dtype)
    padded[:rows] = per_row
    moved = np.moveaxis(padded.reshape(panels, PANEL, *per_row.shape[1:]), 1, -1)
    flat = np.ascontiguousarray(moved).view(np.uint8)
    return flat.reshape(panels, per_row.shape[1], -1)


def to_panels(kind: str, planes: Planes) -> U8:
    """Planes of a quantised kind -> uint8 [panels, panel_bytes]."""
    form = lookup(kind)
    rows, cols = planes.q.shape
    panels, blocks = panel_count(rows), cols // form.block
    parts = [
        _by_panel(part, panels)
        for part in (planes.scale, planes.minimum, planes.sub_scale, planes.sub_minimum)
        if part is not None
    ]
    q = np.full((panels * PANEL, cols), 128 if form.bits == 8 else 0, dtype=np.uint8)
    q[:rows] = planes.q
    # [panel, half, row, group, vector, k] -> [panel, group, half, vector, (row, k)]
    vectors = q.reshape(panels, 2, 8, cols // 32, 8, 4).transpose(0, 3, 1, 4, 2, 5)
    payload = _squeeze(np.ascontiguousarray(vectors).reshape(panels, cols // 32, 2, 8, 32), form)
    parts.append(payload.reshape(panels, blocks, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=-1).reshape(panels, -1))


def _squeeze(vectors: U8, form: Format) -> U8:
    """Codes uint8 [..., 8 vectors, 32] -> the bytes of a half [..., n]."""
    shape = vectors.shape[:-2]
    if form.bits == 8:
        return (vectors - np.uint8(128)).reshape(*shape, 256)
    nibbles = (vectors[..., :4, :] & 15) | (vectors[..., 4:, :] << 4)
    parts: list[U8] = [nibbles.astype(np.uint8).reshape(*shape, 128)]
    if form.bits == 5:
        plane = np.packbits(vectors >> 4 & 1, axis=-2, bitorder="little")
        parts.insert(0, plane.reshape(*shape, 32))
    if form.bits == 6:
        high = (vectors >> 4).reshape(*shape, 2, 4, 32) << np.array([[0], [2], [4], [6]], np.uint8)
        plane = np.bitwise_or.reduce(high, axis=-2)
        parts.insert(0, plane.reshape(*shape, 64))
    return np.concatenate(parts, axis=-1)


def _spread(half: U8, form: Format) -> U8:
    """The inverse of `_squeeze`: bytes of a half [..., n] -> codes [..., 8, 32]."""
    shape = half.shape[:-1]
    if form.bits == 8:
        return half.reshape(*shape, 8, 32) + np.uint8(128)
    nibbles = half[..., -128:].reshape(*shape, 4, 32)
    vectors = np.concatenate([nibbles & 15, nibbles >> 4], axis=-2)
    if form.bits == 5:
        vectors |= (half[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1) << 4
    if form.bits == 6:
        high = half[..., :64].reshape(*shape, 2, 1, 32)
        bits = high >> np.array([[0], [2], [4], [6]], np.uint8) & 3
        vectors |= bits.reshape(*shape, 8, 32) << 4
    return vectors


def from_panels(kind: str, packed: U8, cols: int) -> Planes:
    """The inverse of `to_panels`, padding rows included: uint8 [panels, panel_bytes] -> Planes."""
    form = lookup(kind)
    panels, blocks = packed.shape[0], cols // form.block
    cells = packed.reshape(panels, blocks, cell_bytes(form))
    at = 0

    def take(count: int, dtype: str, *inner: int) -> npt.NDArray[np.generic]:
        """The next `count` bytes of every cell as [N, B, *inner]."""
        nonlocal at
        part = np.ascontiguousarray(cells[..., at : at + count]).view(dtype)
        at += count
        part = np.moveaxis(part.reshape(panels, blocks, *inner, PANEL), -1, 1)
        return part.reshape(panels * PANEL, blocks, *inner)

    subs = 256 // form.group
    scale = take(PANEL * 2, "<f2").astype(np.float16)
    minimum = take(PANEL * 2, "<f2").astype(np.float16) if form.affine else None
    sub_scale = take(PANEL * subs, "u1", subs).astype(np.uint8) if form.is_super else None
    affine_super = form.is_super and form.affine
    sub_minimum = take(PANEL * subs, "u1", subs).astype(np.uint8) if affine_super else None
    vectors = _spread(cells[..., at:].reshape(panels, cols // 32, 2, -1), form)
    # [panel, group, half, vector, row, k] -> [panel, half, row, group, vector, k]
    q = vectors.reshape(panels, cols // 32, 2, 8, 8, 4).transpose(0, 2, 4, 1, 3, 5)
    codes = np.ascontiguousarray(q).reshape(panels * PANEL, cols)
    return Planes(codes, scale, minimum, sub_scale, sub_minimum)
