"""The Triton kernel equals the reference, as far as Triton's interpreter can tell."""

from __future__ import annotations

import os
import subprocess
import sys

from headstart.kernels.native import ROOT

# Triton decides on import whether it interprets: hence a process of its own.
SCRIPT = """
import torch
from headstart.kernels.paged_attention import paged_attention, reference
from headstart.kernels.native import KernelInputError
from headstart.kernels.paged_attention.kernel import paged_attention as on_gpu
from headstart.kernels.paged_attention.storage import decode, encode
from tests.kernels.paged_attention.pools import Shape, filled
from tests.kernels.paged_attention.test_native import rows_of
from tests.numerics import assert_as_near

FP8 = torch.float8_e4m3fn
for shape in (
    Shape(heads=6, kv_heads=2, head_dim=20, block_size=5, lengths=(1, 37)),
    Shape(heads=7, kv_heads=1, head_dim=64, block_size=16, lengths=(40,), dtype=torch.float16),
    Shape(heads=6, kv_heads=2, head_dim=20, block_size=5, lengths=(1, 37), dtype=torch.int8),
    Shape(heads=4, kv_heads=4, head_dim=64, block_size=16, lengths=(33,), dtype=torch.int8),
    Shape(heads=6, kv_heads=2, head_dim=20, block_size=5, lengths=(1, 37), dtype=FP8),
    Shape(heads=4, kv_heads=4, head_dim=64, block_size=16, lengths=(33,), dtype=FP8),
):
    pools, rows = filled(shape), rows_of(shape)
    where = (rows[0], pools.k_pool, pools.v_pool, pools.tables, rows[1], rows[2], 0.15)
    want = paged_attention(*where, backend="reference")
    whole = on_gpu(*where, span=16)
    exact = reference.paged_attention(where[0].double(), *where[1:])
    assert_as_near(whole, want, exact)
    assert_as_near(on_gpu(*where), want, exact)
    part = slice(2, 3)
    alone = on_gpu(rows[0][part], *where[1:4], rows[1][part], rows[2][part], 0.15, span=16)
    assert torch.equal(alone[0], whole[2]), "a row's bits depend on the batch"

every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.int8)
for dtype in (torch.int8, FP8):  # all codes there are, values of one token each, seen alone
    pool = encode(torch.ones(64, 1, 1, 4), dtype)
    pool.view(torch.int8)[..., :4] = every.view(64, 1, 1, 4)
    tables = torch.arange(64, dtype=torch.int32)[:, None]
    where = (torch.zeros(64, 1, 4), encode(torch.ones(64, 1, 1, 4), dtype), pool, tables)
    each, one = torch.arange(64, dtype=torch.int32), torch.ones(64, dtype=torch.int32)
    got = on_gpu(*where, each, one, 1.0)
    want = decode(pool)[:, 0]
    number = want.isfinite()  # e4m3's two NaN, which are never stored, the interpreter calls 480
    assert torch.equal(got[number], want[number]), dtype
    assert (~number).sum() == (2 if dtype == FP8 else 0)

try:
    odd = encode(torch.ones(1, 1, 1, 6), FP8)
    on_gpu(torch.zeros(1, 1, 6), odd, odd, tables, each[:1], one[:1], 1.0)
except KernelInputError as error:
    assert "multiple of 4" in str(error)
else:
    raise AssertionError("scales that lie across fp32s were read")
print("all equal")
"""


def test_equals_the_reference_in_the_interpreter() -> None:
    """Odd sizes, fp32, fp16, int8 and fp8, one span and many: near the reference; a row alone, same
    bits. Each code of int8 and fp8 is the number that the reference reads."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT.parent,
        timeout=150,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "all equal" in done.stdout
