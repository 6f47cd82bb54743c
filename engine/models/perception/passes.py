"""How passes of an encoder's layers are started: one kernel after another, or as a recording.

A recording (`engine.device.recorded.RecordedPasses`) reads fixed memory and has fixed sizes. So a
pass is a function of tensors on the encoder's device, and all else that it reads stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from torch import Tensor


class Passes(Protocol):
    """Carries out an encoder's passes: at once, or as recordings (`engine.device.recorded`)."""

    def __call__(
        self,
        of: Hashable,
        compute: Callable[..., Tensor],
        *given: Tensor,
        rows: int,
        often: bool = False,
    ) -> Tensor:
        """`compute(*given)`. `of`: what else decides what is computed, equal for equal passes;
        `rows`: how many the layers have; `often`: this size will come again and again."""
        ...


def launched(
    of: Hashable,
    compute: Callable[..., Tensor],
    *given: Tensor,
    rows: int,
    often: bool = False,
) -> Tensor:
    """Kernel by kernel."""
    return compute(*given)
