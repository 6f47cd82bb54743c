"""How near one fp32 computation has to be to another: as near as fp32 itself lets it be.

Two right implementations add in different orders, on another processor again in others, and no
constant says how far apart that leaves them: it depends on sizes, values and depth. What does say
it is the reference run once more in fp64: ours may be off by a few times what the reference in fp32
is off, in the mean and at the worst place.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPS = torch.finfo(torch.float32).eps
TIMES = 4.0


def assert_as_near(ours: Tensor, theirs: Tensor, exact: Tensor, times: float = TIMES) -> None:
    """`theirs`: the reference in fp32; `exact`: the same reference in fp64, of the same inputs.

    Root mean square and largest difference from `exact` are at most `times` those of `theirs`, and
    a rounding step or two of the result itself, which is all where `theirs` happens to be exact.
    """
    assert exact.dtype == torch.float64
    assert ours.shape == theirs.shape == exact.shape
    if not exact.numel():
        return
    mine, cost = ours.double() - exact, theirs.double() - exact
    for norm in (_root_mean_square, _largest):
        allowed = times * (norm(cost) + EPS * norm(exact))
        assert norm(mine) <= allowed, (
            f"{norm.__name__.strip('_')}: {norm(mine):.3g} from the fp64 twin, expected at most "
            f"{allowed:.3g}; the fp32 reference is {norm(cost):.3g} from it"
        )


def _root_mean_square(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
