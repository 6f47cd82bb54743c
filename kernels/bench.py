"""`python -m headstart.kernels.bench`: speed of every kernel against the machine's limits.

With few rows a matmul is bound by reading its weight, so GB/s are printed beside those of a plain
memory read, measured before every kind; with many rows GMAC/s matter, beside what the processor's
units for products of bytes do in registers (peak_share; that peak leaves out adding up, which is
part of the same instruction with VNNI only). Weights rotate through copies larger than the
last-level cache. Times are medians, with the best in brackets. The last line is
JSON:

  machine, level, threads, stream_gb_s, peak_gmac_s   (best of the run; peak null where it has none)
  qlinear    kind, m, n, k, ms, best_ms, gb_s, gmac_s, stream_share, peak_share   (of the best)
  attention  dtype, rows, context, ms, best_ms, gb_s
  small      op, rows, us
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from headstart.kernels.levels import processor_name
from headstart.kernels.native import level, library, threads
from headstart.kernels.paged_attention import paged_attention
from headstart.kernels.paged_attention.native import STORED
from headstart.kernels.paged_attention.storage import Narrow, encode
from headstart.kernels.qlinear import FORMATS, QWeight, pack, qlinear
from headstart.kernels.rms_norm import rms_norm
from headstart.kernels.rope import rope
from headstart.kernels.silu_mul import silu_mul

KINDS = ("Q5_0", "Q4_1", "Q4_K", "Q6_K", "Q8_0")
# The MLP of Qwen2.5-0.5B, gate or up; kinds with blocks of 256 take its down projection.
NARROW, WIDE = 896, 4864
ROW_COUNTS = (1, 2, 4, 8, 16, 64, 128)
ROTATION_BYTES = 96 << 20
STREAM_BYTES = 256 << 20
SPIN_S = 0.05
PEAK_PIECES = 1024  # 3 million products each with AVX-512: 12 ms on a core
HEADS, KV_HEADS, HEAD_DIM, BLOCK = 14, 2, 64, 16
CONTEXTS = (128, 2048)


@dataclass(frozen=True)
class Timing:
    """Median and best of some runs, in ms."""

    ms: float
    best_ms: float


@dataclass(frozen=True)
class MatmulRow:
    """One row of the matmul table."""

    kind: str
    m: int
    n: int
    k: int
    ms: float
    best_ms: float
    gb_s: float
    gmac_s: float
    stream_share: float
    peak_share: float | None


def timed(run: Callable[[], object], rounds: int) -> Timing:
    """Time `run` `rounds` times after a warm-up."""
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return Timing(statistics.median(times), min(times))


class Stream:
    """Reads more memory than any cache holds."""

    def __init__(self) -> None:
        self._data = torch.ones(STREAM_BYTES // 4)
        self.best_gb_s = 0.0

    def __call__(self, rounds: int = 5) -> None:
        """Read, and record the best speed. Then wait until torch's idle threads stop spinning: they
        would take a core from the kernels for some ms (see OMP_WAIT_POLICY in README.md)."""
        for _ in range(rounds):
            start = time.perf_counter()
            self._data.sum()
            elapsed_s = time.perf_counter() - start
            self.best_gb_s = max(self.best_gb_s, STREAM_BYTES / elapsed_s / 1e9)
        time.sleep(SPIN_S)


class Peak:
    """Products of bytes in registers, as many as the processor's units can do."""

    def __init__(self) -> None:
        self.best_gmac_s: float | None = None
        self._library = library("peak", _declare_peak, None)

    def __call__(self, rounds: int = 3) -> None:
        """Multiply, and record the best speed."""
        for _ in range(rounds if self._library is not None else 0):
            start = time.perf_counter()
            products = self._library.hs_peak(PEAK_PIECES, threads())  # type: ignore[union-attr]
            elapsed_s = time.perf_counter() - start
            if products:
                self.best_gmac_s = max(self.best_gmac_s or 0.0, products / elapsed_s / 1e9)


def _declare_peak(loaded: ctypes.CDLL) -> None:
    loaded.hs_peak.argtypes = [ctypes.c_int64, ctypes.c_int]
    loaded.hs_peak.restype = ctypes.c_int64


def random_weight(kind: str, rows: int, cols: int) -> QWeight:
    """A packed weight of random codes with scales that keep the sums finite."""
    form = FORMATS[kind]
    blocks = np.random.default_rng(0).integers(
        0, 256, (rows * cols // form.block, form.block_bytes), dtype=np.uint8
    )
    scale = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    at = (208,) if kind == "Q6_K" else (0, 2) if form.affine else (0,)
    for start in at:
        blocks[:, start : start + 2] = scale
    return pack(kind, blocks, rows, cols)


def matmuls(rounds: int, stream: Stream, peak: Peak) -> list[MatmulRow]:
    """Every kind at every row count."""
    table = []
    for kind in KINDS:
        stream()
        peak()
        n, k = (NARROW, WIDE) if FORMATS[kind].is_super else (WIDE, NARROW)
        first = random_weight(kind, n, k)
        copies = [
            QWeight(kind, n, k, first.panels.clone())
            for _ in range(-(-ROTATION_BYTES // first.nbytes))
        ]
        for m in ROW_COUNTS:
            x = torch.randn(m, k)
            turn = iter(range(1 << 30))

            def run(x: torch.Tensor = x, copies: list[QWeight] = copies) -> None:
                qlinear(x, copies[next(turn) % len(copies)])  # noqa: B023 - the loop's own counter

            timing = timed(run, rounds)
            gb_s = first.nbytes / timing.best_ms / 1e6
            share = gb_s / stream.best_gb_s
            gmac_s = m * n * k / timing.best_ms / 1e6
            of_peak = None if peak.best_gmac_s is None else gmac_s / peak.best_gmac_s
            row = MatmulRow(kind, m, n, k, timing.ms, timing.best_ms, gb_s, gmac_s, share, of_peak)
            told = "" if of_peak is None else f" ({of_peak:4.0%} of peak)"
            print(
                f"{kind:<5} M={m:<4} {timing.ms:8.3f} ms ({timing.best_ms:.3f})  "
                f"{gb_s:6.1f} GB/s ({share:4.0%} of stream)  {gmac_s:6.1f} GMAC/s{told}",
                flush=True,
            )
            table.append(row)
    return table


def attentions(rounds: int) -> list[dict[str, object]]:
    """Decode (1 row) and prefill (64 rows) over short and long contexts, of each storage type, and
    of fp32 with three of four blocks in int8."""
    table: list[dict[str, object]] = []
    mixed = Narrow.beside(torch.float32, torch.int8, HEAD_DIM)
    for dtype, narrow in [*((dtype, None) for dtype in STORED), (torch.float32, mixed)]:
        for context in CONTEXTS:
            blocks = context // BLOCK
            k_pool, v_pool, order = _paged(blocks, dtype, narrow)
            for rows in (1, 64):
                q = torch.randn(rows, HEADS, HEAD_DIM)
                seqs = torch.zeros(rows, dtype=torch.int32)
                seen = torch.arange(context - rows + 1, context + 1).int()

                def run(
                    q: torch.Tensor = q,
                    pools: tuple[torch.Tensor, torch.Tensor] = (k_pool, v_pool),
                    where: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = (order, seqs, seen),
                    narrow: Narrow | None = narrow,
                ) -> None:
                    paged_attention(q, *pools, *where, HEAD_DIM**-0.5, narrow=narrow)

                timing = timed(run, rounds)
                block_bytes = k_pool[0].nbytes
                narrow_bytes = narrow.stride_bytes(k_pool) if narrow else block_bytes
                size = 2 * (blocks // 4 * block_bytes + (blocks - blocks // 4) * narrow_bytes)
                gb_s = size * rows / timing.best_ms / 1e6
                name = str(dtype).removeprefix("torch.") + (" + int8" if narrow else "")
                print(
                    f"attention {name} rows={rows:<3} context={context:<5} {timing.ms:8.3f} ms "
                    f"({timing.best_ms:.3f})  {gb_s:6.1f} GB/s of K and V",
                    flush=True,
                )
                table.append(
                    {"dtype": name, "rows": rows, "context": context}
                    | asdict(timing)
                    | {"gb_s": gb_s}
                )
    return table


def _paged(
    blocks: int, dtype: torch.dtype, narrow: Narrow | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pools of random K and V, and one sequence's table; of `narrow` three of four blocks."""
    count = (
        blocks if narrow is None else -(-2 * blocks // narrow.wide_in_slab) * narrow.wide_in_slab
    )
    size = (count, KV_HEADS, BLOCK, HEAD_DIM)
    pools = [encode(torch.randn(size), dtype) for _ in range(2)]
    order = torch.randperm(blocks)
    if narrow is not None:
        first = narrow.num_blocks(pools[0]) - blocks
        for pool in pools:  # the last slabs
            codes = encode(torch.randn(blocks, *size[1:]), narrow.dtype)
            narrow.view(pool)[first:] = codes
        order = torch.where(torch.arange(blocks) % 4 > 0, order + count + first, order)
    return pools[0], pools[1], order.int()[None]


def small_operations(rounds: int) -> list[dict[str, object]]:
    """The element-wise operations at one and at 64 rows."""
    table: list[dict[str, object]] = []
    for rows in (1, 64):
        x, weight = torch.randn(rows, NARROW), torch.randn(NARROW)
        gate, up = torch.randn(rows, WIDE), torch.randn(rows, WIDE)
        heads = torch.randn(rows, HEADS, HEAD_DIM)
        cos, sin = torch.randn(rows, HEAD_DIM // 2), torch.randn(rows, HEAD_DIM // 2)
        runs: dict[str, Callable[[], object]] = {
            "rms_norm": lambda x=x, w=weight: rms_norm(x, w, 1e-6),  # type: ignore[misc]
            "rope": lambda h=heads, c=cos, s=sin: rope(h, c, s),  # type: ignore[misc]
            "silu_mul": lambda g=gate, u=up: silu_mul(g, u),  # type: ignore[misc]
        }
        for name, run in runs.items():
            us = timed(run, rounds * 5).best_ms * 1e3
            print(f"{name:<9} rows={rows:<3} {us:8.1f} us", flush=True)
            table.append({"op": name, "rows": rows, "us": us})
    return table


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(prog="python -m headstart.kernels.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="timed runs of each case")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stream, peak = Stream(), Peak()
    print(f"{processor_name()}, {level()}, {options.threads} threads", flush=True)
    table = matmuls(options.rounds, stream, peak)
    attention = attentions(options.rounds)
    small = small_operations(options.rounds)
    result = {
        "machine": processor_name(),
        "level": level(),
        "threads": options.threads,
        "stream_gb_s": stream.best_gb_s,
        "peak_gmac_s": peak.best_gmac_s,
        "qlinear": [asdict(row) for row in table],
        "attention": attention,
        "small": small,
    }
    print(f"plain read: {stream.best_gb_s:.1f} GB/s", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
