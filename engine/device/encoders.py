"""Encoders on a device: their weights there, their work on a CUDA stream of its own, and what comes
of it on the host.

The decoder's steps are on the current stream of the engine's thread. Encoders have another, so that
neither waits for the other's kernels; whoever encodes waits for that stream alone, without a core.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from headstart.engine.decoder.layers import compute_dtype
from headstart.engine.device.place import Place
from headstart.engine.device.weights import TensorsLike
from headstart.engine.errors import NoDevice

Made = TypeVar("Made")

DECODER = ("decoder.", "lm_head.")
"""Beginnings of the names of a decoder's tensors, which are placed by what builds the decoder."""


class NamedTensors(TensorsLike, Protocol):
    """`headstart.engine.models.checkpoint.tensors.Tensors`."""

    def has(self, name: str) -> bool: ...


class PlacedTensors:
    """`tensors` of a model of which those of encoders lie at `place`, in its type. What has no data
    stays without."""

    def __init__(self, tensors: NamedTensors, place: Place) -> None:
        self._tensors, self._place = tensors, place

    def has(self, name: str) -> bool:
        return self._tensors.has(name)

    def take(self, name: str, *shape: int) -> Tensor:
        """Raises `NoDevice` where there is no room for it."""
        tensor, place = self._tensors.take(name, *shape), self._place
        if tensor.is_meta or name.startswith(DECODER):
            return tensor
        try:
            placed = tensor.to(place.device, place.dtype)
        except torch.OutOfMemoryError:
            missing = "its memory has no room for the weights of encoders"
            remedy = "use a smaller model, or --encoder-weights int8, which stay on the CPU"
            raise NoDevice(str(place.device), missing, remedy) from None
        if placed is not tensor:
            self._tensors.copied(name)
        return placed

    def copied(self, name: str) -> None:
        if name.startswith(DECODER):
            self._tensors.copied(name)


class EncoderStream:
    """Where encoders at a `place` run. On the CPU there is nothing to it.

    Threads may share one: what they enqueue is carried out in turn.
    """

    def __init__(self, place: Place) -> None:
        self._stream: torch.cuda.Stream | None = None
        if place.is_gpu:
            self._stream = torch.cuda.Stream(place.device)  # type: ignore[no-untyped-call]
            # Weights may still be on their way.
            self._stream.wait_stream(torch.cuda.current_stream(place.device))

    def current(self) -> AbstractContextManager[object]:
        """Within it this is the current stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def run(self, work: Callable[[], Made]) -> Made:
        """The result of `work`, which may not be computed yet: it is for this stream."""
        with self.current():
            return work()

    def fetch(self, work: Callable[[], Tensor]) -> Tensor:
        """The result of `work` on the host, in fp32 or fp64."""
        if self._stream is None:
            return _wide(work())
        with torch.cuda.stream(self._stream):
            made = _wide(work())
            host = torch.empty(made.shape, dtype=made.dtype, pin_memory=True)
            host.copy_(made, non_blocking=True)
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record(self._stream)
        done.synchronize()
        return host.clone()  # embeddings are kept for long, and pinned memory is short


def _wide(made: Tensor) -> Tensor:
    return made.to(compute_dtype(made.dtype))
