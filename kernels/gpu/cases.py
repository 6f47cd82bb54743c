"""The kernels at the sizes at which they will run: what is compiled, timed and counted.

Sizes are those of Qwen2.5-Omni-7B's decoder and of `small`. A case is prepared on a device: on
`meta` without contents, which is enough to compile it; on a GPU with random ones, to time it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.kernels.gpu import (
    frame_scores,
    log_mel,
    packed_matmul,
    paged_attention,
    pooling,
    rms_norm,
    rope_write,
    silu_mul,
)
from headstart.kernels.gpu.launch import Launch
from headstart.kernels.gpu.packed_weight import PackedWeight, shaped
from headstart.kernels.gpu.pools import Pools
from headstart.kernels.paged_attention.storage import LARGEST

BLOCK_SIZE = 16
SINK, WINDOW = 4, 4096
FP8 = torch.float8_e4m3fn
HALF, BRAIN = torch.float16, torch.bfloat16


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    inner: int
    sections: tuple[int, ...] = ()


SMALL = Model("small", 14, 2, 64, 896, 4864)
SEVEN = Model("7B", 28, 4, 128, 3584, 18944, (16, 24, 24))


@dataclass(frozen=True)
class Prepared:
    """Launches over inputs on one device, and what torch would run instead, if anything."""

    launches: list[Launch]
    peer: Callable[[], Any] | None = None
    peer_name: str = ""


@dataclass(frozen=True)
class Case:
    """One kernel at one size. `bytes` are read and written at least; `flops` count 2 a
    multiply-add, on values that a row sees."""

    kernel: str
    shape: str
    bytes: int
    flops: int
    prepare: Callable[[str], Prepared]

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.shape}"


def _filled(*size: int, dtype: torch.dtype, device: str) -> Tensor:
    """Random contents, or none on `meta`."""
    if device == "meta":
        return torch.empty(size, dtype=dtype, device=device)
    if dtype in (torch.uint8, torch.int8):
        return torch.randint(0, 127, size, dtype=dtype, device=device)
    if dtype == FP8:
        return torch.randint(0, 120, size, dtype=torch.uint8, device=device).view(FP8)
    return torch.randn(size, device=device).to(dtype)


def _short(dtype: torch.dtype) -> str:
    return {HALF: "fp16", BRAIN: "bf16", torch.int8: "int8", FP8: "fp8"}[dtype]


def attention_case(
    model: Model, stored: torch.dtype, seqs: int, rows: int, context: int, *, window: int = 0
) -> Case:
    """`rows` new rows of each of `seqs` sequences of `context` keys, these rows included."""
    dtype = stored if stored in (HALF, BRAIN) else BRAIN
    heads, kv_heads, dim = model.heads, model.kv_heads, model.head_dim
    seen = min(context, window + SINK) if window else context
    row_bytes = dim * stored.itemsize + (4 if stored in LARGEST else 0)
    kept = min(context, window + SINK + rows) if window else context
    read = seqs * kept * kv_heads * 2 * row_bytes
    carried = 2 * seqs * rows * heads * dim * dtype.itemsize
    each = seen if window else context - (rows - 1) / 2
    flops = int(4 * seqs * rows * heads * dim * each)

    def prepare(device: str) -> Prepared:
        blocks = -(-context // BLOCK_SIZE)
        size = (seqs * blocks, kv_heads, BLOCK_SIZE, dim)
        k, v = (_filled(*size, dtype=stored, device=device) for _ in range(2))
        scales = [
            torch.full(size[:3], 0.01, device=device) if stored in LARGEST else None
            for _ in range(2)
        ]
        q = _filled(seqs * rows, heads, dim, dtype=dtype, device=device)
        if device == "meta":
            tables = torch.empty((seqs, blocks), dtype=torch.int32, device=device)
        else:
            order = torch.randperm(seqs * blocks, device=device).int()
            tables = order.view(seqs, blocks).contiguous()
        starts = torch.arange(seqs + 1, dtype=torch.int32, device=device) * rows
        contexts = torch.full((seqs,), context, dtype=torch.int32, device=device)
        _, launches = paged_attention.plan(
            q,
            Pools(k, v, scales[0], scales[1]),
            tables,
            starts,
            contexts,
            dim**-0.5,
            longest=rows,
            window=window,
            sink=SINK if window else 0,
        )
        if device == "meta":
            return Prepared(launches)
        # torch is given K and V in one piece, in 16 bits: it has neither pages nor codes.
        dense = (seqs, kv_heads, kept, dim)
        keys, values = (_filled(*dense, dtype=dtype, device=device) for _ in range(2))
        queries = _filled(seqs, heads, rows, dim, dtype=dtype, device=device)
        mask = None
        if rows > 1:
            at = torch.arange(kept, device=device)
            last = torch.arange(kept - rows, kept, device=device)
            mask = at[None, :] <= last[:, None]

        def peer() -> Tensor:
            return F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, enable_gqa=True
            )

        return Prepared(launches, peer, "SDPA, K/V dense in 16 bits")

    what = "decode" if rows == 1 else f"chunk {rows}"
    near = f", window {window}" if window else ""
    shape = f"{model.name} {_short(stored)}, {seqs} x {what} over {context}{near}"
    return Case("paged_attention", shape, read + carried, flops, prepare)


def rope_case(model: Model, stored: torch.dtype, rows: int) -> Case:
    """The rows of one projection, turned and written."""
    dtype = stored if stored in (HALF, BRAIN) else BRAIN
    heads, kv_heads, dim = model.heads, model.kv_heads, model.head_dim
    width = (heads + 2 * kv_heads) * dim
    moved = rows * (width + heads * dim) * dtype.itemsize
    moved += rows * 2 * kv_heads * dim * stored.itemsize

    def prepare(device: str) -> Prepared:
        fused = _filled(rows, width, dtype=dtype, device=device)
        parts = torch.split(fused, [heads * dim, kv_heads * dim, kv_heads * dim], dim=1)
        q, k, v = (part.view(rows, -1, dim) for part in parts)
        size = (-(-rows // BLOCK_SIZE), kv_heads, BLOCK_SIZE, dim)
        sides = [_filled(*size, dtype=stored, device=device) for _ in range(2)]
        scales = [
            torch.empty(size[:3], device=device) if stored in LARGEST else None for _ in range(2)
        ]
        places = torch.arange(rows, device=device)
        positions = places.expand(3, rows).contiguous() if model.sections else places
        turns = torch.arange(dim // 2, device=device) << 56
        _, launches = rope_write.plan(
            q,
            k,
            v,
            positions,
            turns,
            places,
            Pools(sides[0], sides[1], scales[0], scales[1]),
            sections=model.sections,
        )
        return Prepared(launches)

    axes = "M-RoPE" if model.sections else "1-D"
    shape = f"{model.name} {_short(stored)}, {axes}, {rows} rows"
    return Case("rope_write", shape, moved, 3 * rows * (heads + kv_heads) * dim, prepare)


def rms_norm_case(model: Model, dtype: torch.dtype, rows: int) -> Case:
    """x + residual, and its norm."""
    width = model.width

    def prepare(device: str) -> Prepared:
        x, residual = (_filled(rows, width, dtype=dtype, device=device) for _ in range(2))
        weight = _filled(width, dtype=dtype, device=device)
        _, _, launches = rms_norm.plan(x, weight, 1e-6, residual)
        return Prepared(
            launches, lambda: F.rms_norm(x + residual, (width,), weight, 1e-6), "add, F.rms_norm"
        )

    moved = 4 * rows * width * dtype.itemsize
    shape = f"{model.name} {_short(dtype)}, {rows} rows"
    return Case("rms_norm", shape, moved, 5 * rows * width, prepare)


def silu_mul_case(model: Model, dtype: torch.dtype, rows: int) -> Case:
    """Both halves of the MLP's first projection."""

    def prepare(device: str) -> Prepared:
        both = _filled(rows, 2 * model.inner, dtype=dtype, device=device)
        gate, up = torch.split(both, model.inner, dim=1)
        _, launches = silu_mul.plan(gate, up)
        return Prepared(launches, lambda: F.silu(gate) * up, "F.silu, mul")

    moved = 3 * rows * model.inner * dtype.itemsize
    shape = f"{model.name} {_short(dtype)}, {rows} rows"
    return Case("silu_mul", shape, moved, 5 * rows * model.inner, prepare)


def matmul_case(kind: str, outs: int, cols: int, rows: int, dtype: torch.dtype = BRAIN) -> Case:
    """One projection of a decoder."""
    weight_bytes = shaped(kind, outs, cols, "meta").nbytes
    carried = rows * (outs + cols) * dtype.itemsize

    def prepare(device: str) -> Prepared:
        made = shaped(kind, outs, cols, device)
        if device != "meta":
            made = _random_weight(made)
        x = _filled(rows, cols, dtype=dtype, device=device)
        _, launches = packed_matmul.plan(x, made)
        if device == "meta":
            return Prepared(launches)
        dense = _filled(outs, cols, dtype=dtype, device=device)
        return Prepared(launches, lambda: F.linear(x, dense), "F.linear, weight in 16 bits")

    shape = f"{kind} [{outs}, {cols}], {rows} rows"
    return Case("packed_matmul", shape, weight_bytes + carried, 2 * rows * outs * cols, prepare)


def _random_weight(made: PackedWeight) -> PackedWeight:
    for plane in made.planes:
        if plane is None:
            continue
        if plane.is_floating_point():
            plane.fill_(0.01)
        else:
            plane.random_(0, 100)
    return made


def log_mel_case(mels: int, sessions: int) -> Case:
    """Half a second of sound of each session."""
    samples, hop = 8240, 160
    frames = (samples - 400) // hop + 1

    def prepare(device: str) -> Prepared:
        tables = log_mel.mel_tables(mels).to(device)
        sound = _filled(sessions, samples, dtype=torch.float32, device=device)
        counts = torch.full((sessions,), samples, dtype=torch.int32, device=device)
        _, launches = log_mel.plan(sound, counts, tables, hop)
        if device == "meta":
            return Prepared(launches)
        window = torch.hann_window(400, device=device)
        filters = tables.filters[:201].T.contiguous()

        def peer() -> Tensor:
            parts = torch.stft(sound, 400, hop, window=window, center=False, return_complex=True)
            return (filters @ parts.abs().square()).clamp_min(1e-10).log10()

        return Prepared(launches, peer, "torch.stft, matmul, log10")

    moved = sessions * (samples + frames * mels) * 4 + (2 * 400 + mels) * log_mel.PADDED_BINS * 4
    flops = sessions * frames * (4 * 400 * 201 + 2 * 201 * mels)
    return Case("log_mel", f"{mels} bands, {sessions} x 500 ms", moved, flops, prepare)


def frame_scores_case(frames: int, height: int, width: int) -> Case:
    """Camera frames."""

    def prepare(device: str) -> Prepared:
        pixels = _filled(frames, height, width, 3, dtype=torch.uint8, device=device)
        tables = [torch.empty(256, dtype=torch.int32, device="meta")] * 2
        if device != "meta":
            tables = list(frame_scores.hsv_tables(device))
        return Prepared(frame_scores.plan(pixels, (tables[0], tables[1]))[1])

    shape = f"{frames} x {width} x {height}"
    operations = frames * height * width * 100
    return Case("frame_scores", shape, frames * height * width * 3, operations, prepare)


def pooling_cases(tokens: int, dim: int) -> list[Case]:
    """The three kernels on one frame of visual tokens."""
    side = int(tokens**0.5)

    def prepare_pool(device: str) -> Prepared:
        x = _filled(side, side, dim, dtype=BRAIN, device=device)
        _, launches = pooling.plan_pool(x, 2)

        def peer() -> Tensor:
            return F.avg_pool2d(x.permute(2, 0, 1)[None], 2, ceil_mode=True)

        return Prepared(launches, peer, "F.avg_pool2d")

    def prepare_match(device: str) -> Prepared:
        x = _filled(tokens, dim, dtype=BRAIN, device=device)
        _, _, launches = pooling.plan_match(x)

        def peer() -> Any:
            unit = F.normalize(x.float(), dim=-1)
            return (unit[::2] @ unit[1::2].T).max(dim=1)

        return Prepared(launches, peer, "F.normalize, matmul, max")

    def prepare_merge(device: str) -> Prepared:
        x = _filled(tokens, dim, dtype=BRAIN, device=device)
        size = torch.ones(tokens, device=device)
        merged = torch.arange(tokens // 4, dtype=torch.int32, device=device)
        match = torch.arange((tokens + 1) // 2, dtype=torch.int32, device=device)
        match = (match * 7) % (tokens // 2)
        _, _, launches = pooling.plan_merge(x, size, merged, match)
        return Prepared(launches)

    moved = tokens * dim * 2
    shape = f"{tokens} tokens of {dim}"
    return [
        Case("pool_grid", shape, moved * 5 // 4, tokens * dim, prepare_pool),
        Case("best_match", shape, moved, tokens * tokens // 2 * dim, prepare_match),
        Case("merge", shape, moved * 5 // 4, tokens // 2 * dim * 2, prepare_merge),
    ]


def cases() -> list[Case]:
    """Everything that is compiled in the tests, in order of importance."""
    return [
        attention_case(SEVEN, BRAIN, 32, 1, 8192),
        attention_case(SEVEN, torch.int8, 32, 1, 8192),
        attention_case(SEVEN, FP8, 32, 1, 8192),
        attention_case(SMALL, HALF, 8, 1, 2048),
        attention_case(SEVEN, BRAIN, 32, 1, 32768, window=WINDOW),
        attention_case(SEVEN, BRAIN, 8, 32, 8192),
        attention_case(SEVEN, torch.int8, 8, 32, 8192),
        attention_case(SEVEN, FP8, 8, 32, 8192),
        attention_case(SEVEN, BRAIN, 1, 2048, 8192),
        attention_case(SEVEN, FP8, 1, 2048, 32768, window=WINDOW),
        rope_case(SEVEN, BRAIN, 32),
        rope_case(SEVEN, torch.int8, 32),
        rope_case(SEVEN, FP8, 32),
        rope_case(SMALL, HALF, 512),
        rms_norm_case(SEVEN, BRAIN, 32),
        rms_norm_case(SMALL, HALF, 512),
        silu_mul_case(SEVEN, BRAIN, 32),
        matmul_case("Q4_K", SEVEN.inner, SEVEN.width, 1),
        matmul_case("Q4_K", SEVEN.inner, SEVEN.width, 64),
        matmul_case("Q5_0", SMALL.inner, SMALL.width, 1, HALF),
        matmul_case("Q6_K", SEVEN.width, SEVEN.inner - SEVEN.inner % 256, 8),
        matmul_case("Q8_0", SEVEN.width, SEVEN.width, 8),
        log_mel_case(80, 32),
        log_mel_case(128, 32),
        frame_scores_case(32, 480, 640),
        *pooling_cases(1024, 1280),
    ]
