"""Correctness of every kernel, on a GPU or in Triton's interpreter on the CPU.

A check makes inputs of odd sizes, runs a kernel between guards (NaN before and behind every tensor,
NaN in every output), and compares with the reference in fp64. How near it has to be follows from
the reference with the same roundings: of the root mean square and of the largest error, at most
TIMES as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from headstart.kernels.gpu import (
    frame_scores,
    log_mel,
    packed_matmul,
    paged_attention,
    pooling,
    reference,
    rms_norm,
    rope_write,
    silu_mul,
)
from headstart.kernels.gpu.launch import Launch
from headstart.kernels.gpu.packed_weight import pack
from headstart.kernels.gpu.pools import Pools, join, split
from headstart.kernels.paged_attention.storage import decode, encode
from headstart.kernels.qlinear.formats import FORMATS

TIMES = 4.0
FP8 = torch.float8_e4m3fn
GUARD = 256  # elements on each side
WRITTEN = frozenset(
    ["p_out", "p_q_out", "p_part", "p_most", "p_total", "p_sum", "p_score", "p_place", "p_out_size"]
)
CHANGED = frozenset(["p_k_pool", "p_v_pool", "p_k_scale", "p_v_scale"])


class CheckFailedError(AssertionError):
    """A kernel is not as near to the fp64 reference as it has to be, or wrote beyond its output."""


@dataclass(frozen=True)
class Compared:
    """One comparison: the kernel's result, the reference's with its roundings, and in fp64."""

    name: str
    ours: Tensor
    theirs: Tensor
    exact: Tensor

    @property
    def ratio(self) -> float:
        """Our error over the reference's, and of those for mean and largest the larger one."""
        ours, theirs, exact = (part.double().cpu() for part in (self.ours, self.theirs, self.exact))
        if not exact.numel():
            return 0.0
        eps = torch.finfo(torch.float32).eps

        def worst(norm: Callable[[Tensor], Tensor]) -> float:
            mine, allowed = norm(ours - exact), norm(theirs - exact) + eps * norm(exact)
            share = float(mine) / max(float(allowed), 1e-300)
            return share if share == share else float("inf")

        return max(worst(lambda x: x.square().mean().sqrt()), worst(lambda x: x.abs().max()))

    def require(self) -> None:
        """Raise CheckFailedError if it is not near enough."""
        if not self.ratio <= TIMES:
            raise CheckFailedError(f"{self.name}: {self.ratio:.3g} times the reference's error")


Check = Callable[[str], Iterator[Compared]]


def guarded(x: Tensor) -> Tensor:
    """A copy of x with GUARD elements on each side, NaN or, of integers, the largest there is."""
    raw = x.view(torch.uint8) if x.dtype == FP8 else x
    odd = float("nan") if raw.is_floating_point() else torch.iinfo(raw.dtype).max
    flat = torch.full((raw.numel() + 2 * GUARD,), odd, dtype=raw.dtype, device=x.device)
    flat[GUARD : GUARD + raw.numel()] = raw.reshape(-1)
    return flat[GUARD : GUARD + raw.numel()].view(raw.shape).view(x.dtype)


def run_guarded(launches: Iterable[Launch]) -> None:
    """Run launches with every tensor between guards, and outputs poisoned beforehand.

    Raises CheckFailedError if a guard was written to.
    """
    twins: dict[int, tuple[Tensor, Tensor, bool]] = {}
    for launch in launches:
        args = dict(launch.args)
        for name, value in launch.args.items():
            if not isinstance(value, Tensor) or not value.is_contiguous():
                continue
            at = id(value)
            if at not in twins:
                kept = value.clone()
                if name in WRITTEN:
                    odd = float("nan") if value.is_floating_point() else -(1 << 30)
                    kept.fill_(odd)
                twins[at] = (value, guarded(kept), name in WRITTEN | CHANGED)
            args[name] = twins[at][1]
        replace(launch, args=args).run()
    for value, twin, is_output in twins.values():
        raw = twin.view(torch.uint8) if twin.dtype == FP8 else twin
        around = raw.as_strided((raw.numel() + 2 * GUARD,), (1,), 0)
        sides = torch.cat((around[:GUARD], around[-GUARD:]))
        intact = (
            sides.isnan().all()
            if raw.is_floating_point()
            else (sides == torch.iinfo(raw.dtype).max).all()
        )
        if not bool(intact):
            raise CheckFailedError("a kernel wrote beyond a tensor")
        if is_output:
            value.copy_(twin)


def _usable(dtype: torch.dtype, device: str) -> torch.dtype:
    """fp16 for bf16 in the interpreter, which cuts off in casts to bf16 and multiplies its bits."""
    return torch.float16 if dtype == torch.bfloat16 and device == "cpu" else dtype


def _random(*size: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.randn(*size).to(_usable(dtype, device)).to(device)


@dataclass(frozen=True)
class AttentionCase:
    """Sizes of one comparison; `rows` and `contexts` are of each sequence."""

    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    rows: tuple[int, ...]
    contexts: tuple[int, ...]
    dtype: torch.dtype
    stored: torch.dtype
    window: int = 0
    sink: int = 0
    span: int | None = None


_HALF, _BRAIN, _WIDE = torch.float16, torch.bfloat16, torch.float32
ATTENTION_CASES = (
    # Decode: one span and many, a group of seven, head widths that are no power of two.
    AttentionCase(6, 2, 20, 5, (1, 1), (1, 150), _WIDE, _WIDE, span=32),
    AttentionCase(14, 2, 64, 16, (1, 1, 1), (65, 1, 200), _HALF, _HALF, span=64),
    AttentionCase(7, 1, 128, 16, (1,), (131,), _BRAIN, _BRAIN, span=64),
    AttentionCase(6, 2, 64, 16, (1, 1), (33, 90), _BRAIN, torch.int8, span=64),
    AttentionCase(6, 2, 80, 16, (1, 1), (33, 90), _HALF, FP8, span=64),
    AttentionCase(3, 3, 64, 7, (1, 0, 1), (150, 3, 290), _HALF, _HALF, window=100, sink=4, span=64),
    # Prefill by chunks: split, and in one pass.
    AttentionCase(6, 2, 64, 16, (13, 1, 5), (13, 140, 90), _HALF, _HALF, span=64),
    AttentionCase(14, 2, 64, 16, (9, 21), (200, 21), _HALF, torch.int8),
    AttentionCase(4, 1, 64, 16, (70,), (100,), _BRAIN, _BRAIN),
    AttentionCase(2, 1, 64, 16, (66, 3), (200, 150), _HALF, FP8, window=50, sink=3),
)


@dataclass(frozen=True)
class AttentionInputs:
    """q, pools with NaN wherever nothing is stored, and where everything is."""

    q: Tensor
    pools: Pools
    tables: Tensor
    starts: Tensor
    contexts: Tensor


def attention_inputs(case: AttentionCase, device: str) -> AttentionInputs:
    """Random contents in blocks dealt out at random; table entries behind them are -1."""
    need = [-(-context // case.block_size) for context in case.contexts]
    order = torch.randperm(sum(need) + 2).int()
    size = (len(order), case.kv_heads, case.block_size, case.head_dim)
    sides = []
    tables = torch.full((len(need), max(need) + 2), -1, dtype=torch.int32)
    for _ in range(2):
        codes, scale = split(encode(torch.full(size, float("nan")), case.stored))
        used = 0
        for seq, (context, count) in enumerate(zip(case.contexts, need, strict=True)):
            tables[seq, :count] = order[used : used + count]
            used += count
            at = torch.arange(context)
            slots = tables[seq, at // case.block_size].long() * case.block_size
            content = torch.randn(context, case.kv_heads, case.head_dim)
            reference.write(codes, scale, content, slots + at % case.block_size)
        sides.append((codes.to(device), None if scale is None else scale.to(device)))
    (k, k_scale), (v, v_scale) = sides
    starts = torch.tensor([0, *np.cumsum(case.rows).tolist()], dtype=torch.int32)
    q = _random(sum(case.rows), case.heads, case.head_dim, dtype=case.dtype, device=device)
    contexts = torch.tensor(case.contexts, dtype=torch.int32)
    return AttentionInputs(
        q,
        Pools(k, v, k_scale, v_scale),
        tables.to(device),
        starts.to(device),
        contexts.to(device),
    )


def check_attention(
    device: str, cases: Iterable[AttentionCase] = ATTENTION_CASES
) -> Iterator[Compared]:
    """Decode and chunked prefill, by case."""
    for each in cases:
        case = replace(each, dtype=_usable(each.dtype, device))
        if not (case.stored == FP8 or case.stored == torch.int8):
            case = replace(case, stored=case.dtype)
        given = attention_inputs(case, device)
        where = (given.tables, given.starts, given.contexts, 0.17)
        window, sink = case.window, case.sink
        out, launches = paged_attention.plan(
            given.q,
            given.pools,
            *where,
            longest=max(case.rows),
            window=window,
            sink=sink,
            span=case.span,
        )
        run_guarded(launches)
        moved = _to_cpu(given)
        pools, where = moved.pools, (moved.tables, moved.starts, moved.contexts, 0.17)
        exact = reference.paged_attention(moved.q.double(), pools, *where, window=window, sink=sink)
        theirs = reference.paged_attention(
            moved.q.float(), pools, *where, window=window, sink=sink, rounded=case.dtype
        )
        yield Compared(f"paged_attention {case}", out.cpu(), theirs.to(case.dtype), exact)


def _to_cpu(given: AttentionInputs) -> AttentionInputs:
    pools = given.pools
    k_scale = None if pools.k_scale is None else pools.k_scale.cpu()
    v_scale = None if pools.v_scale is None else pools.v_scale.cpu()
    return AttentionInputs(
        given.q.cpu(),
        Pools(pools.k.cpu(), pools.v.cpu(), k_scale, v_scale),
        given.tables.cpu(),
        given.starts.cpu(),
        given.contexts.cpu(),
    )


ROPE_CASES = (
    (5, 6, 2, 20, 5, _WIDE, _WIDE, ()),
    (4, 9, 1, 64, 16, _HALF, torch.int8, ()),
    (3, 8, 2, 128, 16, _BRAIN, FP8, (16, 24, 24)),
    (3, 4, 4, 32, 16, _BRAIN, _BRAIN, (4, 6, 6)),
)


def check_rope_write(device: str) -> Iterator[Compared]:
    """Positions up to 10^9, a row that writes nothing, and codes by the byte."""
    for rows, heads, kv_heads, dim, block_size, dtype, stored, sections in ROPE_CASES:
        dtype, stored = _usable(dtype, device), _usable(stored, device)
        width = (heads + 2 * kv_heads) * dim
        fused = _random(rows, width + 3, dtype=dtype, device=device)[:, :width]
        parts = torch.split(fused, [heads * dim, kv_heads * dim, kv_heads * dim], dim=1)
        q, k, v = (part.view(rows, -1, dim) for part in parts)
        shape = (rows,) if not sections else (3, rows)
        positions = torch.randint(0, 1_000_000_000, shape)
        positions.view(-1)[0] = 3
        frequencies = 1e6 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        slots = torch.randperm(4 * block_size)[:rows]
        slots[-1] = -1
        size = (4, kv_heads, block_size, dim)
        codes, scale = split(encode(torch.full(size, 0.5), stored))
        pools = Pools(
            *(codes.clone().to(device) for _ in range(2)),
            *(None if scale is None else scale.clone().to(device) for _ in range(2)),
        )
        turns = reference.turns(frequencies).to(device)
        out, launches = rope_write.plan(
            q, k, v, positions.to(device), turns, slots.to(device), pools, sections=sections
        )
        run_guarded(launches)
        angle = reference.angles(positions, frequencies, sections)
        name = f"rope_write {dtype} {stored} {sections}"
        q, k, v = q.cpu(), k.cpu(), v.cpu()
        theirs = reference.rope(q.float(), angle).to(dtype)
        yield Compared(f"{name} q", out.cpu(), theirs, reference.rope(q.double(), angle))
        keys = reference.rope(k.double(), angle)
        for side, ours, ours_scale, content, exact in (
            ("k", pools.k, pools.k_scale, reference.rope(k.float(), angle), keys),
            ("v", pools.v, pools.v_scale, v.float(), v.double()),
        ):
            wanted = codes.clone(), None if scale is None else scale.clone()
            reference.write(*wanted, content, slots)
            got = decode(join(ours.cpu(), None if ours_scale is None else ours_scale.cpu()))
            want = decode(join(*wanted))
            whole = want.double()
            kept = slots >= 0
            block, offset = slots[kept] // block_size, slots[kept] % block_size
            whole[block, :, offset] = exact[kept]
            yield Compared(f"{name} {side}", got, want, whole)
            if side == "v":
                yield Compared(f"{name} v by the byte", got, want, want.double())


def check_rms_norm(device: str) -> Iterator[Compared]:
    """With and without a residual, of the same type and of fp32."""
    for rows, size, dtype, kept in (
        (3, 17, _WIDE, None),
        (2, 896, _HALF, _HALF),
        (5, 100, _BRAIN, _WIDE),
        (1, 3584, _BRAIN, _BRAIN),
    ):
        dtype, kept = _usable(dtype, device), kept and _usable(kept, device)
        x = _random(rows, size + 5, dtype=dtype, device=device)[:, :size]
        weight = _random(size, dtype=dtype, device=device)
        residual = None if kept is None else _random(rows, size, dtype=kept, device=device) * 3
        out, added, launches = rms_norm.plan(x, weight, 1e-6, residual)
        run_guarded(launches)
        x, weight = x.cpu(), weight.cpu()
        residual = None if residual is None else residual.cpu()
        summed = x.float() if residual is None else x.float() + residual.float()
        stored = summed if residual is None else summed.to(residual.dtype)
        theirs, _ = reference.rms_norm(stored.float(), weight, 1e-6)
        exact, _ = reference.rms_norm(stored.double(), weight, 1e-6)
        name = f"rms_norm [{rows}, {size}] {dtype} {kept}"
        yield Compared(name, out.cpu(), theirs.to(dtype), exact)
        if added is not None:
            yield Compared(f"{name} sum", added.cpu(), stored, stored.double())


def check_silu_mul(device: str) -> Iterator[Compared]:
    """Halves of one projection, of odd width."""
    for rows, size, dtype in ((3, 17, _WIDE), (2, 1100, _HALF), (4, 96, _BRAIN)):
        dtype = _usable(dtype, device)
        both = _random(rows, 2 * size, dtype=dtype, device=device) * 4
        gate, up = torch.split(both, size, dim=1)
        out, launches = silu_mul.plan(gate, up)
        run_guarded(launches)
        gate, up = gate.cpu(), up.cpu()
        theirs = reference.silu_mul(gate.float(), up.float()).to(dtype)
        exact = reference.silu_mul(gate.double(), up.double())
        yield Compared(f"silu_mul [{rows}, {size}] {dtype}", out.cpu(), theirs, exact)


def random_blocks(kind: str, rows: int, cols: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Bytes of a GGUF tensor: random codes, and scales between 0.005 and 0.05."""
    form = FORMATS[kind]
    random = np.random.default_rng(0)
    raw = random.integers(0, 256, (rows * cols // form.block, form.block_bytes), dtype=np.uint8)
    for at in (208,) if kind == "Q6_K" else (0, 2) if form.affine else (0,):
        scale = random.uniform(0.005, 0.05, (len(raw), 1)).astype("<f2")
        raw[:, at : at + 2] = scale.view(np.uint8)
    return raw.reshape(-1)


QUANTISED = tuple(kind for kind, form in FORMATS.items() if not form.is_float)


def check_packed_matmul(device: str) -> Iterator[Compared]:
    """Every kind, rows that fill no tile, widths that fill none."""
    for i, kind in enumerate(QUANTISED):
        rows, outs = (1, 70) if i % 2 else (19, 33)
        cols = 512 if FORMATS[kind].is_super else 416
        dtype = _usable((_HALF, _BRAIN, _WIDE)[i % 3], device)
        weight = pack(kind, random_blocks(kind, outs, cols), outs, cols)
        x = _random(rows, cols + 8, dtype=dtype, device=device)[:, :cols]
        bias = None if i % 2 else _random(outs, dtype=dtype, device=device)
        out, launches = packed_matmul.plan(x, weight.to(device), bias)
        run_guarded(launches)
        x, bias = x.cpu(), None if bias is None else bias.cpu()
        theirs = reference.packed_matmul(x.float(), weight, bias).to(dtype)
        exact = reference.packed_matmul(x.double(), weight, bias)
        yield Compared(f"packed_matmul {kind} {dtype}", out.cpu(), theirs, exact)


def check_log_mel(device: str) -> Iterator[Compared]:
    """Two sessions of different lengths; a frame alone has the bits it has among others."""
    for mels, counts in ((80, (1000, 560)), (128, (399, 720))):
        tables = log_mel.mel_tables(mels).to(device)
        samples = _random(2, 1000, device=device) * 0.1
        lengths = torch.tensor(counts, dtype=torch.int32, device=device)
        out, launches = log_mel.plan(samples, lengths, tables, 160)
        run_guarded(launches)
        for session, count in enumerate(counts):
            sound = samples[session, :count].cpu()
            if count < 400:
                continue
            theirs = reference.log_mel(sound, mels, 160)
            exact = reference.log_mel(sound.double(), mels, 160)
            ours = out[session].cpu()[: len(exact)]
            name = f"log_mel {mels} of {count}"
            yield Compared(name, ours, theirs, exact)
            alone, launches = log_mel.plan(
                samples[session : session + 1, 160:560].contiguous(),
                torch.tensor([400], dtype=torch.int32, device=device),
                tables,
                160,
            )
            run_guarded(launches)
            again = ours[1:2]
            yield Compared(f"{name} alone", alone[0].cpu(), again, again.double())


def check_frame_scores(device: str) -> Iterator[Compared]:
    """Integers: equal to the reference in fp64, whatever the cut into tiles."""
    tables = frame_scores.hsv_tables(device)
    for count, height, width in ((3, 37, 41), (2, 1, 1), (1, 2, 3)):
        frames = torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8)
        frames[-1] //= 16  # dark, with many equal channels
        before = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8)
        for last in (None, before):
            given = None if last is None else last.to(device)
            sums, launches = frame_scores.plan(frames.to(device), tables, given)
            run_guarded(launches)
            ours = frame_scores.scores_of(sums, height * width).cpu()
            exact = reference.frame_scores(frames, last)
            yield Compared(f"frame_scores {height} x {width}", ours, exact, exact)


def check_pooling(device: str) -> Iterator[Compared]:
    """Means at ragged edges; of merging, the match's cosine and the weighted means."""
    for height, width, dim, by, dtype in ((5, 7, 33, 2, _WIDE), (4, 4, 600, 3, _BRAIN)):
        dtype = _usable(dtype, device)
        x = _random(height, width, dim, dtype=dtype, device=device)
        out, launches = pooling.plan_pool(x, by)
        run_guarded(launches)
        x = x.cpu()
        theirs = reference.pool_grid(x.float(), by).to(dtype)
        yield Compared("pool_grid", out.cpu(), theirs, reference.pool_grid(x.double(), by))
    for tokens, dim, dtype in ((75, 40, _WIDE), (20, 300, _BRAIN)):
        dtype = _usable(dtype, device)
        x = _random(tokens, dim, dtype=dtype, device=device)
        x[1] = x[0]
        x[2] = 0
        score, match, launches = pooling.plan_match(x)
        run_guarded(launches)
        given = x.cpu()
        cosines = reference.cosines(given.double())
        found = cosines.gather(1, match.cpu().long()[:, None])[:, 0]
        best = cosines.max(dim=1).values
        rough = reference.cosines(given.float()).max(dim=1).values
        yield Compared("best_match score", score.cpu(), rough, best)
        yield Compared("best_match place", found, rough, best)
        size = torch.randint(1, 5, (tokens,)).float()
        merged = score.cpu().topk(tokens // 3).indices.int()
        made, sizes, launches = pooling.plan_merge(x, size.to(device), merged.to(device), match)
        run_guarded(launches)
        rest = (size, merged, match.cpu())
        theirs, their_sizes = reference.merge(given.float(), *rest)
        exact, _ = reference.merge(given.double(), size.double(), *rest[1:])
        yield Compared("merge", made.cpu(), theirs.to(dtype), exact)
        yield Compared("merge sizes", sizes.cpu(), their_sizes, their_sizes.double())


CHECKS: dict[str, Check] = {
    "paged_attention": check_attention,
    "rope_write": check_rope_write,
    "rms_norm": check_rms_norm,
    "silu_mul": check_silu_mul,
    "packed_matmul": check_packed_matmul,
    "log_mel": check_log_mel,
    "frame_scores": check_frame_scores,
    "pooling": check_pooling,
}
