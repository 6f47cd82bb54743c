"""How near one fp32 computation has to be to another: as near as fp32 itself lets it be.

Two right implementations add in different orders, on another processor again in others, and no
constant says how far apart that leaves them: it depends on sizes, values and depth. What does say
it is the reference run once more in fp64: ours may be off by a few times what the reference in fp32
is off, in the mean and at the worst place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EPS = torch.finfo(torch.float32).eps
TIMES = 4.0


def assert_as_near(
    ours: Tensor, theirs: Tensor | Sequence[Tensor], exact: Tensor, times: float = TIMES
) -> None:
    """`theirs`: the reference in fp32; `exact`: the same reference in fp64, of the same inputs.

    Root mean square and largest difference from `exact` are at most `times` those of `theirs`, and
    a rounding step or two of the result itself, which is all where `theirs` happens to be exact.
    Of several, the worst counts: where a result depends strongly on rounding, in single rows of a
    deep network, the reference is near in one run by luck (see `nudged`).
    """
    runs = [theirs] if isinstance(theirs, Tensor) else theirs
    assert exact.dtype == torch.float64
    assert all(run.shape == ours.shape == exact.shape for run in runs)
    if not exact.numel():
        return
    mine = ours.double() - exact
    for norm in (_root_mean_square, _largest):
        cost = max(norm(run.double() - exact) for run in runs)
        allowed = times * (cost + EPS * norm(exact))
        assert norm(mine) <= allowed, (
            f"{norm.__name__.strip('_')}: {norm(mine):.3g} from the fp64 twin, expected at most "
            f"{allowed:.3g}; the fp32 reference is {cost:.3g} from it"
        )


def nudged(x: Tensor, count: int) -> list[Tensor]:
    """`x`, and `count - 1` times with each number up or down by one rounding step or not at all:
    inputs that fp32 can hardly tell apart, so that what the outputs differ by is rounding."""
    random = torch.Generator().manual_seed(0)
    steps = [torch.randint(-1, 2, x.shape, generator=random) for _ in range(count - 1)]
    return [x, *(x * (1 + EPS * step) for step in steps)]


def _root_mean_square(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
