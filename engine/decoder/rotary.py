"""Angles of rotation for the rows of a batch, computed in fp64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.decoder.spec import DecoderSpec


class Rotary(Protocol):
    """From positions to (cos, sin), each [rows, head_dim / 2]."""

    @property
    def axes(self) -> int:
        """1: positions are int64 [rows]; 3: they are int64 [3, rows] (time, height, width)."""
        ...

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]: ...


class TableRotary:
    """One axis; fp32, the angles of all positions below `max_positions` computed once."""

    axes = 1

    def __init__(self, spec: DecoderSpec, max_positions: int) -> None:
        self._cos, self._sin = rope_tables(spec, max_positions)

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self._cos[positions], self._sin[positions]


class SectionRotary:
    """Three axes (M-RoPE): the first `sections[0]` frequencies turn with time, the next with
    height, the last with width.

    Ids of time grow faster than tokens do, so there is no table: a step has few rows.
    """

    axes = 3

    def __init__(
        self, spec: DecoderSpec, sections: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> None:
        assert len(sections) == self.axes
        assert sum(sections) == spec.head_dim // 2
        self._frequencies = frequencies(spec)
        self._axis_of = torch.repeat_interleave(torch.arange(3), torch.tensor(list(sections)))
        self._dtype = dtype

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """int64 [3, rows] -> two [rows, head_dim / 2] of the dtype given at first."""
        angles = positions[self._axis_of].T.double() * self._frequencies
        return angles.cos().to(self._dtype), angles.sin().to(self._dtype)


class LineRotary:
    """One axis without a table, in any dtype."""

    axes = 1

    def __init__(self, spec: DecoderSpec, dtype: torch.dtype = torch.float32) -> None:
        self._frequencies = frequencies(spec)
        self._dtype = dtype

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.outer(positions.double(), self._frequencies)
        return angles.cos().to(self._dtype), angles.sin().to(self._dtype)


def frequencies(spec: DecoderSpec) -> Tensor:
    """Radians per position, fp64 [head_dim / 2]."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.float64) / spec.head_dim
    return torch.as_tensor(spec.rope_base**-exponents)


def rope_tables(spec: DecoderSpec, max_positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin of every angle, fp32 [max_positions, head_dim / 2], computed in fp64."""
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float64), frequencies(spec))
    return angles.cos().float(), angles.sin().float()
