"""Root-mean-square norm of x, or of x + residual, which is kept: a row a program.

The sum is rounded to its own type first and normed as it was stored, so that adding and norming
apart gives the same bits.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu.launch import Launch, expect, expect_rows, power_of_2, run
from headstart.kernels.gpu.pools import FLOATS

MOST = 16384
"""The widest row that one program holds in registers."""


@triton.jit
def _rms_norm(
    p_x,
    p_residual,
    p_weight,
    p_out,
    p_sum,
    stride_x,
    stride_residual,
    eps,
    size: tl.constexpr,
    added: tl.constexpr,
    T_SIZE: tl.constexpr,
):
    """x [rows, size] -> out and, if `added`, sum, contiguous [rows, size]. Grid: rows."""
    i_row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, T_SIZE)
    m = o < size
    b = tl.load(p_x + i_row * stride_x + o, mask=m, other=0.0).to(tl.float32)
    if added:
        at = p_residual + i_row * stride_residual + o
        b += tl.load(at, mask=m, other=0.0).to(tl.float32)
        b_sum = b.to(p_sum.dtype.element_ty)
        tl.store(p_sum + i_row * size + o, b_sum, mask=m)
        b = b_sum.to(tl.float32)
    mean = tl.sum(b * b, axis=0) / size
    b_weight = tl.load(p_weight + o, mask=m, other=0.0).to(tl.float32)
    b = b * (1.0 / tl.sqrt(mean + eps)) * b_weight
    tl.store(p_out + i_row * size + o, b.to(p_out.dtype.element_ty), mask=m)


def plan(
    x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor | None, list[Launch]]:
    """The norm, the sum, and the launch that fills both; arguments as of `rms_norm`."""
    expect(x, "x", (None, None), *FLOATS)
    rows, size = x.shape
    expect(weight, "weight", (size,), *FLOATS)
    expect_rows(x, "x")
    expect_rows(weight, "weight")
    if not 1 <= size <= MOST:
        raise KernelInputError(f"x: expected rows of 1 to {MOST}, got {size}")
    out = torch.empty((rows, size), dtype=x.dtype, device=x.device)
    added = None
    if residual is not None:
        expect(residual, "residual", (rows, size), *FLOATS)
        expect_rows(residual, "residual")
        added = torch.empty((rows, size), dtype=residual.dtype, device=x.device)
    launch = Launch(
        _rms_norm,
        (rows,),
        {
            "p_x": x,
            "p_residual": residual,
            "p_weight": weight,
            "p_out": out,
            "p_sum": added,
            "stride_x": x.stride(0),
            "stride_residual": 0 if residual is None else residual.stride(0),
            "eps": eps,
        },
        {"size": size, "added": residual is not None, "T_SIZE": power_of_2(size)},
        threads=128 if size <= 2048 else 256,
    )
    return out, added, [launch]


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """x, residual [rows, D], weight [D] -> norm of x's type, and x + residual of residual's.

    Without a residual the second is None. Rows may be strided. Raises KernelInputError.
    """
    out, added, launches = plan(x, weight, eps, residual)
    run(launches)
    return out, added
