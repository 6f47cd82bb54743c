"""Tensors of a part of a model: of what a process does not run, it has sizes and no data.

An engine whose pictures are encoded elsewhere reads the weights of its vision once, tensor by
tensor, for their digest: by that it knows whether the other process has the same ones.
"""

from __future__ import annotations

from hashlib import sha256

import torch
from torch import Tensor

from headstart.engine.models.checkpoint.tensors import Tensors

VISION = ("vision.", "projector.")
"""Beginnings of the names of weights that only encode pictures."""
NOT_VISION = ("decoder.", "lm_head.", "audio.")
_DIGESTED = (*VISION, "image_newline")  # the last one is the decoder's, too


class Digest:
    """Of weights, by name, shape, dtype and content; in which order they are read is no matter."""

    def __init__(self) -> None:
        self._each: dict[str, bytes] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        told = f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode()
        content = tensor.contiguous().view(-1).view(torch.uint8).numpy().data
        self._each[name] = sha256(told + sha256(content).digest()).digest()

    def hex(self) -> str:
        whole = b"".join(digest for _, digest in sorted(self._each.items()))
        return sha256(whole).hexdigest()


class PartTensors:
    """`tensors` (`engine.models.checkpoint.tensors.Tensors`) without data of the names that begin
    as `left_out` does. `digest` takes those that encode pictures, left out or not."""

    def __init__(
        self,
        tensors: Tensors,
        dtype: torch.dtype,
        left_out: tuple[str, ...],
        digest: Digest | None = None,
    ) -> None:
        self._tensors, self._dtype = tensors, dtype
        self._left_out, self._digest = left_out, digest

    def has(self, name: str) -> bool:
        return self._tensors.has(name)

    def take(self, name: str, *shape: int) -> Tensor:
        left_out = name.startswith(self._left_out)
        digest = self._digest if name.startswith(_DIGESTED) else None
        if left_out and digest is None:
            return torch.empty(shape, dtype=self._dtype, device="meta")
        tensor = self._tensors.take(name, *shape)
        if digest is not None:
            digest.add(name, tensor)
        if not left_out:
            return tensor
        self._tensors.copied(name)
        return torch.empty_like(tensor, device="meta")

    def copied(self, name: str) -> None:
        if not name.startswith(self._left_out):
            self._tensors.copied(name)
