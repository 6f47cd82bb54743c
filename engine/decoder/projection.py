"""Projections of encoders: with float weights, or with int8 ones, which are made of the float ones
while a model is built, and calibrated on samples.

Activations are quantised as they come, by groups of 32, so calibration chooses no ranges. It
measures what int8 changes in each projection, and takes the float weights where that is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.engine.decoder.layers import Linear, compute_dtype
from headstart.engine.decoder.quantise import GROUP, quantise
from headstart.kernels.qlinear import QWeight, qlinear

Projection = Callable[[Tensor], Tensor]

# Share of a projection's output, root mean square, that int8 may change. Typical is 0.8 %.
MAX_ERROR = 0.03


class Int8Projection:
    """y = x W^T + b with W in int8; while it is calibrated, in float."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """`weight` [out, in]; `in` is a multiple of 32."""
        self._float: Linear | None = Linear(weight, bias)
        self._packed: QWeight | None = quantise(weight)
        self._bias = None if bias is None else bias.float()
        self._squares = [0.0, 0.0]  # of the difference, and of the output

    @property
    def is_int8(self) -> bool:
        return self._packed is not None

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out] fp32."""
        if self._packed is None:
            assert self._float is not None
            return self._float(x)
        rows = x.reshape(-1, x.shape[-1]).float().contiguous()
        y = qlinear(rows, self._packed, self._bias)
        y = y.view(*x.shape[:-1], y.shape[1])  # there may be no rows
        if self._float is None:
            return y
        exact = self._float(x)
        self._squares[0] += float((y - exact).square().sum())
        self._squares[1] += float(exact.square().sum())
        return exact

    def settle(self, most: float) -> float | None:
        """End calibration: keep one form of the weights. Returns the error that was measured; None
        if nothing came through, which counts as none."""
        difference, whole = self._squares
        error = None if not whole else (difference / whole) ** 0.5
        if error is not None and error > most:
            self._packed = None
        else:
            self._float = None
        return error


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of `projections`, `in_float` stayed in float; errors are those of the rest, as shares."""

    projections: int
    in_float: int
    error_mean: float
    error_max: float


_made: ContextVar[list[Int8Projection] | None] = ContextVar("int8 projections", default=None)


def projection(weight: Tensor, bias: Tensor | None = None) -> Projection:
    """y = x W^T + b; in int8 inside of `int8_projections`, if its shape and dtype allow it."""
    made = _made.get()
    fits = weight.shape[1] % GROUP == 0 and compute_dtype(weight.dtype) == torch.float32
    if made is None or weight.is_meta or not fits:
        return Linear(weight, bias)
    made.append(Int8Projection(weight, bias))
    return made[-1]


@contextmanager
def int8_projections() -> Iterator[list[Int8Projection]]:
    """Projections that are built inside are int8; gives them, to be calibrated."""
    made: list[Int8Projection] = []
    token = _made.set(made)
    try:
        yield made
    finally:
        _made.reset(token)


def calibrate(
    made: Sequence[Int8Projection], run: Callable[[], object], most: float = MAX_ERROR
) -> Calibration:
    """Measure `made` while `run` encodes samples, and settle each of them."""
    run()
    errors = [each.settle(most) for each in made]
    kept = [e for each, e in zip(made, errors, strict=True) if e is not None and each.is_int8]
    in_float = sum(not each.is_int8 for each in made)
    mean = sum(kept) / len(kept) if kept else 0.0
    return Calibration(len(made), in_float, mean, max(kept, default=0.0))
