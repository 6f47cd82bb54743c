"""Sources of a model's tensors: a checkpoint's files, or random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from zlib import crc32

import torch
from torch import Tensor

from headstart.engine.checkpoints.mapped import MappedTensors
from headstart.engine.errors import BadWeights


class Tensors(Protocol):
    """A model's tensors by our modules' names."""

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor in the source's dtype. Raises `BadWeights` if it is missing or misshapen."""
        ...

    def has(self, name: str) -> bool: ...

    def copied(self, name: str) -> None:
        """Report that the caller has copied the tensor and will not access it again."""
        ...


def renamed(stored: str, prefixes: Mapping[str, str]) -> str | None:
    """`stored` with the first matching prefix of `prefixes` replaced; None if none matches."""
    for prefix, ours in prefixes.items():
        if stored.startswith(prefix):
            return ours + stored.removeprefix(prefix)
    return None


class Scope:
    """The tensors whose names begin with `prefix`; `renamed` maps names below it."""

    def __init__(
        self, tensors: Tensors, prefix: str, renamed: Mapping[str, str] | None = None
    ) -> None:
        self._tensors, self._prefix, self._renamed = tensors, prefix, renamed or {}

    def take(self, name: str, *shape: int) -> Tensor:
        return self._tensors.take(self._full(name), *shape)

    def has(self, name: str) -> bool:
        return self._tensors.has(self._full(name))

    def copied(self, name: str) -> None:
        self._tensors.copied(self._full(name))

    def _full(self, name: str) -> str:
        return self._prefix + self._renamed.get(name, name)


class Checkpoint:
    """Tensors of a model directory's files, in `dtype`.

    Files are mapped: a tensor that is used as stored takes no memory of its own, and the pages of
    one that is converted are released at once. So loading needs no second copy of the model.
    """

    def __init__(
        self,
        names: Mapping[str, tuple[MappedTensors, str]],
        folder: Path,
        dtype: torch.dtype,
        tick: Callable[[int], None] = lambda taken_bytes: None,
    ) -> None:
        self.names, self.folder, self.dtype = names, folder, dtype
        self.taken: set[str] = set()
        self.nbytes = 0
        self._tick = tick

    def has(self, name: str) -> bool:
        return name in self.names

    def take(self, name: str, *shape: int) -> Tensor:
        if name not in self.names:
            raise BadWeights(
                self.folder, f"tensor {name}", f"shape {list(shape)}", "no such tensor"
            )
        file, stored = self.names[name]
        tensor = file.view(stored)
        if tuple(tensor.shape) != shape:
            got = str(list(tensor.shape))
            raise BadWeights(self.folder, f"tensor {name}", f"shape {list(shape)}", got)
        converted = tensor.to(self.dtype)
        if converted is not tensor:
            file.release(stored)
        self.taken.add(name)
        self.nbytes += converted.nbytes
        self._tick(self.nbytes)
        return converted

    def stored(self, name: str) -> Tensor:
        """The tensor as stored, of any shape; its pages are not read."""
        file, stored = self.names[name]
        return file.view(stored)

    def copied(self, name: str) -> None:
        file, stored = self.names[name]
        file.release(stored)

    @property
    def left(self) -> set[str]:
        """Names that were never taken."""
        return set(self.names) - self.taken


class RandomTensors:
    """Random tensors for every name and shape, for speed measurements.

    Each repeats one block of normal numbers, so 7 billion take seconds to make; they are scaled so
    that activations neither vanish nor explode. A tensor depends on its name and not on what was
    taken before it, so two processes with parts of a model have parts of the same one.
    """

    BLOCK = 1 << 20

    def __init__(
        self,
        dtype: torch.dtype,
        seed: int = 0,
        tick: Callable[[int], None] = lambda made_bytes: None,
    ) -> None:
        """`tick` receives the number of bytes made so far."""
        generator = torch.Generator().manual_seed(seed)
        self.dtype = dtype
        self._tick = tick
        self.nbytes = 0
        self._block = torch.randn(self.BLOCK, generator=generator)

    def has(self, name: str) -> bool:
        return not name.endswith("lm_head.weight")

    def take(self, name: str, *shape: int) -> Tensor:
        if len(shape) == 1:
            one = name.endswith("weight")  # of a norm; otherwise a bias
            tensor = torch.full(shape, float(one), dtype=self.dtype)
        else:
            fan_in = math.prod(shape[1:])
            tensor = self._numbers(name, math.prod(shape)).view(shape).mul_(fan_in**-0.5)
        self.nbytes += tensor.nbytes
        self._tick(self.nbytes)
        return tensor

    def copied(self, name: str) -> None:
        """Nothing to release."""

    def _numbers(self, name: str, count: int) -> Tensor:
        block = self._block.roll(crc32(name.encode()) % self.BLOCK).to(self.dtype)
        out = torch.empty(count, dtype=self.dtype)
        for at in range(0, count, self.BLOCK):
            part = out[at : at + self.BLOCK]
            part.copy_(block[: len(part)])
        return out
