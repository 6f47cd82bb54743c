"""The memory that encoding pictures takes beside weights, computed without data.

The model is built on tensors that have sizes only (torch's "meta" device) and given its largest
picture. Each operation then says how large its result would be; results count until nobody holds
them. So every family's own code is what is measured, and nothing is computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headstart.engine.models.perception.clips import encode_pictures
from headstart.engine.models.perception.interface import StreamModel, VideoFrame


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of results that are held. What touches a tensor without data has none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self.peak = 0
        self._seen: set[int] = set()  # storages that are held

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = _tensors((*args, *kwargs.values()))
        if any(tensor.is_meta for tensor in tensors) and not all(t.is_meta for t in tensors):
            args = tuple(_without_data(each) for each in args)
            kwargs = {name: _without_data(each) for name, each in kwargs.items()}
        given = {tensor.untyped_storage()._cdata for tensor in tensors}
        made = func(*args, **kwargs)
        for tensor in _tensors(made if isinstance(made, list | tuple) else (made,)):
            self._count(tensor.untyped_storage(), given)
        return made

    def _count(self, storage: Any, given: set[int]) -> None:
        number, size = storage._cdata, storage.nbytes()
        if number in self._seen or number in given:  # a view, of weights perhaps
            return
        self._seen.add(number)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._freed, number, size)

    def _freed(self, number: int, size: int) -> None:
        self._seen.discard(number)
        self.bytes -= size


class _Attention(TorchFunctionMode):
    """Attention as CPUs and GPUs run it: in blocks, without the whole matrix of scores."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            query, _, value = args[:3]
            return query.new_empty((*query.shape[:-1], value.shape[-1]))
        return func(*args, **(kwargs or {}))


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Those of an operation's arguments or results, which may be in lists."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _without_data(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value if value.is_meta else torch.empty_like(value, device="meta")
    if isinstance(value, list | tuple):
        return type(value)(map(_without_data, value))
    return value


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes of tensors that `run` makes and holds at a time."""
    live = _Live()
    with live, _Attention():
        made = run()
        del made
    return live.peak


def encoding_bytes(model: StreamModel, together: int = 1, budget_tokens: int = 1 << 30) -> int:
    """Working memory of the largest batch of pictures: a still of the largest size, or as many of
    the largest frames as are encoded `together` within the budget. `model`: built on tensors
    without data. 0: it takes no pictures."""
    vision = model.spec.vision
    if vision is None:
        return 0
    frame = _square(vision.max_pixels)
    tokens = max(vision.max_pixels // vision.side_px**2, 1)
    count = max(1, min(together, budget_tokens // tokens))
    peaks = [peak_bytes(partial(encode_pictures, model, [frame] * count, live=True))]
    if vision.tiled is not None:
        still = _square(vision.tiled.max_pixels)
        peaks.append(peak_bytes(partial(encode_pictures, model, [still], live=False)))
    return max(peaks)


def _square(pixels: int) -> VideoFrame:
    side_px = max(isqrt(pixels), 1)
    return VideoFrame(np.zeros((side_px, side_px, 3), np.uint8))
