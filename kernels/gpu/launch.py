"""One launch of a Triton kernel as a value: to run, or to compile for a chip that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError

Argument = Tensor | int | float | None
Constant = Any
"""Triton's marker for values known when a kernel is compiled; it exports no type for it."""

LEAST_TILE = 16
"""tl.dot multiplies tiles of at least so many a side."""


@dataclass(frozen=True)
class Launch:
    """A kernel, its grid (at most three sizes) and what it takes.

    `args` are given at run time: tensors on one device, integers, floats, or None for a tensor that
    the kernel does not touch with these constants. `constants` are compiled into it. `threads` of
    one program: warps of 32 on NVIDIA, of 64 on AMD.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Argument]
    constants: Mapping[str, Constant]
    threads: int = 128
    stages: int = 2

    def warps(self, lanes: int) -> int:
        """Warps of so many lanes that one program has."""
        return max(1, self.threads // lanes)

    def run(self) -> None:
        """Enqueue it on the current stream of the current device, which must be its tensors'."""
        if 0 in self.grid:
            return
        warps = self.warps(64 if torch.version.hip else 32)
        self.kernel[self.grid](
            **self.args, **self.constants, num_warps=warps, num_stages=self.stages
        )


def run(launches: Iterable[Launch]) -> None:
    """Enqueue several, one behind the other."""
    for launch in launches:
        launch.run()


def power_of_2(size: int, least: int = 1) -> int:
    """The smallest power of two that is at least `size` and `least`."""
    return max(least, 1 << max(size - 1, 0).bit_length())


def blocks(size: int, tile: int) -> int:
    """Tiles that cover `size`."""
    return -(-size // tile)


def expect(tensor: Tensor, name: str, shape: tuple[int | None, ...], *dtypes: Any) -> None:
    """Raise KernelInputError unless `tensor` has this shape (None: any) and one of the dtypes."""
    have = tuple(tensor.shape)
    same = len(have) == len(shape) and all(
        wanted is None or wanted == size for size, wanted in zip(have, shape, strict=True)
    )
    if same and tensor.dtype in dtypes:
        return
    sizes = ", ".join("*" if size is None else str(size) for size in shape)
    kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    raise KernelInputError(
        f"{name}: expected {kinds} [{sizes}], got "
        f"{str(tensor.dtype).removeprefix('torch.')} {list(have)}"
    )


def expect_rows(tensor: Tensor, name: str) -> None:
    """Raise KernelInputError unless elements of the last axis are neighbours."""
    if tensor.numel() and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise KernelInputError(f"{name}: expected neighbours in the last axis")


def expect_contiguous(**tensors: Tensor | None) -> None:
    """Raise KernelInputError unless every tensor is contiguous."""
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            raise KernelInputError(f"{name}: expected a contiguous tensor")
