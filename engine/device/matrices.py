"""A decoder's weight matrices on a device: floats, or GGUF's codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from headstart.engine.device.operations import Operations
from headstart.kernels.gpu.packed_weight import PackedWeight, dequantize, take_rows


class Matrix(Protocol):
    """A weight [out, in] on a device."""

    @property
    def nbytes(self) -> int: ...

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """[rows, in] -> x W^T + bias [rows, out], of x's type."""
        ...

    def logits(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """[rows, in] -> x W^T [rows, out] in `dtype`, with as little rounding as it can."""
        ...

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """The rows at `numbers` int64 [n] -> [n, in] in `dtype`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FloatMatrix:
    """Weights in the activations' type. Torch multiplies: cuBLAS has nothing to gain from."""

    weight: Tensor

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return linear(x, self.weight, bias)

    def logits(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if x.is_cuda and x.dtype is torch.bfloat16 and dtype is torch.float32:
            return torch.mm(x, self.weight.t(), out_dtype=dtype)  # sums in fp32; CUDA's only
        return linear(x, self.weight).to(dtype)

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        return self.weight.index_select(0, numbers).to(dtype)


@dataclass(frozen=True, slots=True, eq=False)
class PackedMatrix:
    """Weights as they are in the file."""

    weight: PackedWeight
    operations: Operations

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return self.operations.packed_matmul(x, self.weight, bias, None)

    def logits(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return self.operations.packed_matmul(x, self.weight, None, dtype)

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        return dequantize(take_rows(self.weight, numbers)).to(dtype)


class Projection:
    """Several outputs of the same input: one product where their weights lie in one matrix."""

    def __init__(
        self, parts: Sequence[tuple[Matrix, Sequence[int]]], bias: Tensor | None = None
    ) -> None:
        """`parts`: matrices, each with the widths of the outputs that lie in it, in order. `bias`:
        of all outputs."""
        self._parts = []
        at = 0
        for matrix, widths in parts:
            own = None if bias is None else bias[at : at + sum(widths)].contiguous()
            self._parts.append((matrix, list(widths), own))
            at += sum(widths)

    def __call__(self, x: Tensor) -> list[Tensor]:
        """[rows, in] -> the outputs, each [rows, its width], which may be views."""
        return [
            out
            for matrix, widths, bias in self._parts
            for out in torch.split(matrix(x, bias), widths, dim=1)
        ]

    @property
    def nbytes(self) -> int:
        return sum(matrix.nbytes for matrix, _, _ in self._parts)
