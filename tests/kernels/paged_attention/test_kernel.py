"""The Triton kernel equals the reference, as far as Triton's interpreter can tell."""

from __future__ import annotations

import os
import subprocess
import sys

from kernels.native import ROOT

# Triton decides on import whether it interprets: hence a process of its own.
SCRIPT = """
import torch
from kernels.paged_attention import paged_attention
from kernels.paged_attention.kernel import paged_attention as on_gpu
from tests.kernels.paged_attention.pools import Shape, filled
from tests.kernels.paged_attention.test_native import rows_of

for shape in (
    Shape(heads=6, kv_heads=2, head_dim=20, block_size=5, lengths=(1, 37)),
    Shape(heads=7, kv_heads=1, head_dim=64, block_size=16, lengths=(40,), dtype=torch.float16),
):
    pools, rows = filled(shape), rows_of(shape)
    where = (rows[0], pools.k_pool, pools.v_pool, pools.tables, rows[1], rows[2], 0.15)
    want = paged_attention(*where, backend="reference")
    whole = on_gpu(*where, span=16)
    torch.testing.assert_close(whole, want, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(on_gpu(*where), want, atol=2e-6, rtol=1e-5)
    part = slice(2, 3)
    alone = on_gpu(rows[0][part], *where[1:4], rows[1][part], rows[2][part], 0.15, span=16)
    assert torch.equal(alone[0], whole[2]), "a row's bits depend on the batch"
print("all equal")
"""


def test_equals_the_reference_in_the_interpreter() -> None:
    """Odd sizes, fp32 and fp16, one span and many: near the reference; a row alone, same bits."""
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
