"""RoPE angles for the rows of a batch, computed in fp64."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec


class Rotary(Protocol):
    """Maps positions to (cos, sin), each [rows, head_dim / 2]."""

    @property
    def axes(self) -> int:
        """1: positions are int64 [rows]; 3: they are int64 [3, rows] (time, height, width)."""
        ...

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]: ...


class PagedRotary:
    """One axis, fp32, for unbounded positions; angles are computed and cached in pages.

    A page is always computed as a whole, so that a position's bits do not depend on the others in
    a batch. Angles are computed in fp64, where 10^9 is still exact to 10^-7.
    """

    axes = 1
    PAGE = 4096
    # Positions in use lie close together, so older pages are not needed again.
    MAX_PAGES = 16

    def __init__(self, spec: DecoderSpec) -> None:
        self._frequencies = frequencies(spec)
        self._pages: OrderedDict[int, tuple[Tensor, Tensor]] = OrderedDict()

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        numbers = sorted(set((positions // self.PAGE).tolist()))
        if len(numbers) == 1:  # fast path for the usual case
            cos, sin = self._page(numbers[0])
            rows = positions - numbers[0] * self.PAGE
            return cos[rows], sin[rows]
        half = len(self._frequencies)
        cos, sin = torch.empty(len(positions), half), torch.empty(len(positions), half)
        for number in numbers:
            at = positions // self.PAGE == number
            page_cos, page_sin = self._page(number)
            rows = positions[at] - number * self.PAGE
            cos[at], sin[at] = page_cos[rows], page_sin[rows]
        return cos, sin

    def _page(self, number: int) -> tuple[Tensor, Tensor]:
        page = self._pages.get(number)
        if page is None:
            positions = torch.arange(self.PAGE, dtype=torch.float64) + number * self.PAGE
            angles = torch.outer(positions, self._frequencies)
            page = self._pages[number] = angles.cos().float(), angles.sin().float()
            if len(self._pages) > self.MAX_PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end(number)
        return page


class SectionRotary:
    """Three axes (M-RoPE): the first `sections[0]` frequencies rotate with time, the next with
    height, the last with width.

    Time positions grow faster than token counts, so angles are not cached; a step has few rows.
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
        """int64 [3, rows] -> cos and sin [rows, head_dim / 2] of the constructor's dtype."""
        angles = positions[self._axis_of].T.double() * self._frequencies
        return angles.cos().to(self._dtype), angles.sin().to(self._dtype)


class TablelessRotary:
    """One axis without cached angles, in any dtype."""

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
