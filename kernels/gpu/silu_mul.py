"""The gated activation silu(gate) * up of the two halves of one projection's rows."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from headstart.kernels.gpu.launch import Launch, blocks, expect, expect_rows, run
from headstart.kernels.gpu.pools import FLOATS

TILE = 1024


@triton.jit
def _silu_mul(
    p_gate, p_up, p_out, stride_gate, stride_up, size: tl.constexpr, T_SIZE: tl.constexpr
):
    """gate, up [rows, size] -> out, contiguous. Grid: rows, tiles of a row."""
    i_row = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * T_SIZE + tl.arange(0, T_SIZE)
    m = o < size
    gate = tl.load(p_gate + i_row * stride_gate + o, mask=m, other=0.0).to(tl.float32)
    up = tl.load(p_up + i_row * stride_up + o, mask=m, other=0.0).to(tl.float32)
    out = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(p_out + i_row * size + o, out.to(p_out.dtype.element_ty), mask=m)


def plan(gate: Tensor, up: Tensor) -> tuple[Tensor, list[Launch]]:
    """The output and the launch that fills it; arguments as of `silu_mul`."""
    expect(gate, "gate", (None, None), *FLOATS)
    rows, size = gate.shape
    expect(up, "up", (rows, size), gate.dtype)
    expect_rows(gate, "gate")
    expect_rows(up, "up")
    out = torch.empty((rows, size), dtype=gate.dtype, device=gate.device)
    launch = Launch(
        _silu_mul,
        (rows, blocks(size, TILE)),
        {
            "p_gate": gate,
            "p_up": up,
            "p_out": out,
            "stride_gate": gate.stride(0),
            "stride_up": up.stride(0),
        },
        {"size": size, "T_SIZE": TILE},
        threads=128,
    )
    return out, [launch]


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up [rows, D] of one type -> [rows, D]; rows may be strided: halves of one projection.

    Raises KernelInputError.
    """
    out, launches = plan(gate, up)
    run(launches)
    return out
