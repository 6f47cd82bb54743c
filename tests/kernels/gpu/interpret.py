"""`python -m tests.kernels.gpu.interpret NAME`: one check of the Triton kernels in the interpreter.

A process of its own, because Triton decides on import whether it interprets.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu import packed_matmul, paged_attention, rope_write
from headstart.kernels.gpu.checks import (
    ATTENTION_CASES,
    CHECKS,
    AttentionCase,
    attention_inputs,
    check_attention,
    random_blocks,
    run_guarded,
)
from headstart.kernels.gpu.packed_weight import pack
from headstart.kernels.gpu.pools import Pools
from headstart.kernels.paged_attention.storage import LARGEST
from tests.numerics import assert_as_near

HALF = torch.float16


def check(name: str) -> None:
    """All comparisons of one of CHECKS, by the rule of tests/numerics.py."""
    for compared in CHECKS[name]("cpu"):
        print(compared.name, flush=True)
        assert_as_near(compared.ours.float(), compared.theirs, compared.exact.double())


def random_attention() -> None:
    """Random sizes, lengths, windows and types; prompts of one row and many in one batch."""
    draw = random.Random(20)
    for _ in range(8):
        kv_heads, seqs = draw.randint(1, 3), draw.randint(1, 3)
        rows = tuple(draw.choice((0, 1, 1, 2, 17)) for _ in range(seqs))
        rows = rows if any(rows) else (1, *rows[1:])
        window = draw.choice((0, 0, draw.randint(1, 90)))
        case = AttentionCase(
            heads=kv_heads * draw.randint(1, 7),
            kv_heads=kv_heads,
            head_dim=draw.choice((16, 20, 64, 96)),
            block_size=draw.randint(1, 33),
            rows=rows,
            contexts=tuple(n + draw.choice((0, 1, draw.randint(0, 150))) for n in rows),
            dtype=HALF,
            stored=draw.choice((HALF, *LARGEST)),
            window=window,
            sink=draw.randint(0, 70) if window else 0,
            span=draw.choice((None, 64, 128)),
        )
        for compared in check_attention("cpu", [case]):
            print(compared.name, flush=True)
            assert_as_near(compared.ours.float(), compared.theirs, compared.exact)


def batch_invariance() -> None:
    """A decode row has the same bits alone and in a batch, a matmul's row among fewer others."""
    given = attention_inputs(ATTENTION_CASES[1], "cpu")
    rest = {"longest": 1, "span": 64}
    scale = 0.2
    where = given.tables, given.starts, given.contexts
    whole = paged_attention.paged_attention(given.q, given.pools, *where, scale, **rest)  # type: ignore[arg-type]
    where = given.tables[2:], torch.tensor([0, 1], dtype=torch.int32), given.contexts[2:]
    alone = paged_attention.paged_attention(given.q[2:], given.pools, *where, scale, **rest)  # type: ignore[arg-type]
    assert torch.equal(alone[0], whole[2])
    weight = pack("Q5_0", random_blocks("Q5_0", 40, 256), 40, 256)
    x = torch.randn(7, 256).half()
    together = packed_matmul.packed_matmul(x, weight)
    assert torch.equal(packed_matmul.packed_matmul(x[4:5], weight)[0], together[4])


def nothing_else_is_touched() -> None:
    """No rows, no keys and negative slots: nothing is written; a row without keys gives zeros."""
    codes = torch.zeros(2, 1, 4, 16, dtype=HALF)
    pools = Pools(codes, codes.clone())
    empty = torch.empty(0, 3, 16, dtype=HALF)
    ints = torch.zeros(2, dtype=torch.int32)
    out = paged_attention.paged_attention(
        empty, pools, ints[:1, None], ints, ints[:1], 1.0, longest=1
    )
    assert out.shape == (0, 3, 16)
    q = torch.randn(2, 1, 16).half()
    places = torch.tensor([-1, -1])
    turns = torch.zeros(8, dtype=torch.int64)
    _, launches = rope_write.plan(q, q, q, torch.zeros(2).long(), turns, places, pools)
    run_guarded(launches)
    assert not pools.k.any()
    assert not pools.v.any()


def refusals() -> None:
    """What does not fit is refused by name, before anything runs."""
    codes = torch.zeros(2, 2, 4, 16, dtype=torch.int8)
    q, ints = torch.zeros(1, 3, 16, dtype=HALF), torch.zeros(2, dtype=torch.int32)
    given = ints[:1, None], ints, ints[:1], 1.0
    scale = torch.zeros(2, 2, 4)
    for pools, said in (
        (Pools(codes, codes), "k_scale: expected scales"),
        (Pools(codes, codes, scale, scale), "3 heads"),
        (Pools(codes.float(), codes.float()), "or codes, got torch.float32"),
    ):
        with pytest.raises(KernelInputError, match=said):
            paged_attention.paged_attention(q, pools, *given, longest=1)


def every_code() -> None:
    """Each code of int8 and fp8, the value of one token that is seen alone, is its number."""
    every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.int8)
    rows = torch.arange(17, dtype=torch.int32)
    for dtype in LARGEST:
        codes = every.view(16, 1, 1, 16).contiguous().view(dtype)
        ones = torch.ones(16, 1, 1)
        pools = Pools(torch.zeros(16, 1, 1, 16).to(dtype), codes, ones, ones)
        out = paged_attention.paged_attention(
            torch.zeros(16, 1, 16),
            pools,
            rows[:16, None],
            rows,
            torch.ones(16).int(),
            1.0,
            longest=1,
        )
        want = codes.float()[:, 0]
        # e4m3's two NaN are never stored, and are read as 480; its negative zero is zero.
        number = want.isfinite()
        assert torch.equal(out[number], want[number])
        assert int((~number).sum()) == (2 if dtype == torch.float8_e4m3fn else 0)


OTHERS: dict[str, Callable[[], None]] = {
    "random_attention": random_attention,
    "batch_invariance": batch_invariance,
    "nothing_else_is_touched": nothing_else_is_touched,
    "refusals": refusals,
    "every_code": every_code,
}


def main() -> None:
    """Run the named checks in turn."""
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        torch.manual_seed(0)
        if name in OTHERS:
            OTHERS[name]()
        else:
            check(name)
        print(f"passed {name}", flush=True)


if __name__ == "__main__":
    main()
