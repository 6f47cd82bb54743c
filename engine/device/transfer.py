"""Several arrays in one piece of memory, on the host and on a device, and their one copy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
"""Of int64, int32 or float64."""

ALIGNED_BYTES = 16  # a kernel that is compiled for aligned addresses is compiled once
_DTYPES = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float64): torch.float64,
}


class Fence(Protocol):
    """Tells when copies that were enqueued have been carried out."""

    def record(self) -> None:
        """From now on `wait` waits for what has been enqueued on the current stream."""
        ...

    def wait(self) -> None:
        """At once if nothing was recorded."""
        ...


class NoFence:
    """On the CPU a copy is done when it returns."""

    def record(self) -> None: ...

    def wait(self) -> None: ...


class CudaFence:
    """An event of CUDA. Never run yet: there was no GPU."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def record(self) -> None:
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()


class Mirror:
    """Room for arrays of the same sizes as `like`, on the host (pinned, for a GPU) and on the
    device, each in one piece."""

    def __init__(
        self, like: Mapping[str, Array], device: torch.device, fence: Fence | None = None
    ) -> None:
        size, on_gpu = room_bytes(like), device.type == "cuda"
        self._host = torch.empty(size, dtype=torch.uint8, pin_memory=on_gpu)
        self._host_parts = {name: part.numpy() for name, part in parts(self._host, like).items()}
        self._fence = fence or (CudaFence() if on_gpu else NoFence())
        self.memory = torch.empty(size, dtype=torch.uint8, device=device)
        self.on_device = parts(self.memory, like)

    def load(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        """Enqueue the copy of `arrays` on the current stream; they may change afterwards."""
        self._fence.wait()  # the copy before may not have read this memory yet
        for name, array in arrays.items():
            self._host_parts[name][...] = array
        self.memory.copy_(self._host, non_blocking=True)
        self._fence.record()
        return self.on_device


def room_bytes(arrays: Mapping[str, Array]) -> int:
    """Room for all arrays, each aligned."""
    return sum(_aligned(array.nbytes) for array in arrays.values())


def parts(memory: Tensor, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Views of uint8 `memory` [room_bytes], one for each array, of its type and shape."""
    found, at = {}, 0
    for name, array in arrays.items():
        dtype = _DTYPES[array.dtype]
        size = math.prod(array.shape) * dtype.itemsize
        found[name] = memory[at : at + size].view(dtype).view(array.shape)
        at += _aligned(size)
    return found


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNED_BYTES) * ALIGNED_BYTES
