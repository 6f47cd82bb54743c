"""Whisper's log-mel power of audio frames, of several sessions in one launch, in fp32.

The transform is a product with the windowed cosines and sines of 400 samples: a frame is 320,000
multiply-adds, which is nothing to a GPU, and any cut of the sound gives a frame the same bits. The
caller keeps the last 240 samples of a session for its next call, as for kernels/log_mel.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu.launch import (
    LEAST_TILE,
    Launch,
    blocks,
    expect,
    expect_contiguous,
    power_of_2,
    run,
)
from headstart.kernels.log_mel.tables import BINS, FFT_SAMPLES, make_tables

TILE_FRAMES = 16
TILE_BINS = 32
TILE_SAMPLES = 16  # 400 is 25 of them
PADDED_BINS = 224
MOST_MELS = 128


@dataclass(frozen=True, eq=False)
class MelTables:
    """`cosine`, `sine` fp32 [400, PADDED_BINS]: times the window, zeros behind bin 200. `filters`
    fp32 [PADDED_BINS, mels]."""

    mels: int
    cosine: Tensor
    sine: Tensor
    filters: Tensor

    def to(self, device: str | torch.device) -> MelTables:
        """The same tables on a device."""
        moved = (part.to(device) for part in (self.cosine, self.sine, self.filters))
        return MelTables(self.mels, *moved)


def mel_tables(mels: int) -> MelTables:
    """Tables for `mels` filters. Raises KernelInputError for less than 1, more than MOST_MELS."""
    if not 1 <= mels <= MOST_MELS:
        raise KernelInputError(f"mels: expected 1 to {MOST_MELS}, got {mels}")
    tables = make_tables(mels)
    turns = torch.outer(torch.arange(FFT_SAMPLES), torch.arange(BINS)) % FFT_SAMPLES
    padding = (0, PADDED_BINS - BINS)
    cosine, sine = (
        torch.nn.functional.pad(table[turns] * tables.window[:, None], padding).float()
        for table in (tables.cosine, tables.sine)
    )
    filters = torch.nn.functional.pad(tables.filters, (0, 0, *padding)).float()
    return MelTables(mels, cosine, sine, filters)


@triton.jit
def _log_mel(
    p_samples,
    p_counts,
    p_cosine,
    p_sine,
    p_filters,
    p_out,
    stride,
    frames,
    hop: tl.constexpr,
    samples: tl.constexpr,
    bins: tl.constexpr,
    mels: tl.constexpr,
    T_FRAMES: tl.constexpr,
    T_BINS: tl.constexpr,
    T_SAMPLES: tl.constexpr,
    T_MELS: tl.constexpr,
):
    """samples fp32 [sessions, n], counts int32 [sessions] -> out fp32 [sessions, frames, mels].

    Grid: tiles of frames, sessions. Frames that a session's samples do not fill are not written.
    """
    i_session = tl.program_id(1).to(tl.int64)
    o_frame = tl.program_id(0) * T_FRAMES + tl.arange(0, T_FRAMES)
    whole = (tl.load(p_counts + i_session) - samples) // hop + 1
    m_frame = (o_frame < whole) & (o_frame < frames)
    o_bin, o_mel = tl.arange(0, T_BINS), tl.arange(0, T_MELS)
    o_sample = tl.arange(0, T_SAMPLES)
    m_mel = o_mel < mels
    b_mel = tl.zeros((T_FRAMES, T_MELS), tl.float32)
    p_frame = p_samples + i_session * stride + o_frame[:, None] * hop + o_sample[None, :]
    for bin0 in range(0, bins, T_BINS):
        real = tl.zeros((T_FRAMES, T_BINS), tl.float32)
        imaginary = tl.zeros((T_FRAMES, T_BINS), tl.float32)
        for first in range(0, samples, T_SAMPLES):
            b = tl.load(p_frame + first, mask=m_frame[:, None], other=0.0)
            at = (first + o_sample)[:, None] * bins + bin0 + o_bin[None, :]
            real = tl.dot(b, tl.load(p_cosine + at), real, input_precision="ieee")
            imaginary = tl.dot(b, tl.load(p_sine + at), imaginary, input_precision="ieee")
        power = real * real + imaginary * imaginary
        at = (bin0 + o_bin)[:, None] * mels + o_mel[None, :]
        b_filter = tl.load(p_filters + at, mask=m_mel[None, :], other=0.0)
        b_mel = tl.dot(power, b_filter, b_mel, input_precision="ieee")
    b_mel = tl.log2(tl.maximum(b_mel, 1e-10)) * 0.30102999566398120
    to = p_out + (i_session * frames + o_frame)[:, None] * mels + o_mel[None, :]
    tl.store(to, b_mel, mask=m_frame[:, None] & m_mel[None, :])


def plan(
    samples: Tensor, counts: Tensor, tables: MelTables, hop: int, out: Tensor | None = None
) -> tuple[Tensor, list[Launch]]:
    """The output and the launch that fills it; arguments as of `log_mel`."""
    expect(samples, "samples", (None, None), torch.float32)
    sessions, length = samples.shape
    expect(counts, "counts", (sessions,), torch.int32)
    expect_contiguous(samples=samples, counts=counts)
    if hop < 1:
        raise KernelInputError(f"hop: expected at least one sample, got {hop}")
    frames = max((length - FFT_SAMPLES) // hop + 1, 0)
    if out is None:
        out = torch.empty(
            (sessions, frames, tables.mels), dtype=torch.float32, device=samples.device
        )
    expect(out, "out", (sessions, frames, tables.mels), torch.float32)
    expect_contiguous(out=out)
    launch = Launch(
        _log_mel,
        (blocks(frames, TILE_FRAMES), sessions),
        {
            "p_samples": samples,
            "p_counts": counts,
            "p_cosine": tables.cosine,
            "p_sine": tables.sine,
            "p_filters": tables.filters,
            "p_out": out,
            "stride": length,
            "frames": frames,
        },
        {
            "hop": hop,
            "samples": FFT_SAMPLES,
            "bins": PADDED_BINS,
            "mels": tables.mels,
            "T_FRAMES": TILE_FRAMES,
            "T_BINS": TILE_BINS,
            "T_SAMPLES": TILE_SAMPLES,
            "T_MELS": power_of_2(tables.mels, LEAST_TILE),
        },
        threads=128,
    )
    return out, [launch]


def log_mel(
    samples: Tensor, counts: Tensor, tables: MelTables, hop: int, out: Tensor | None = None
) -> Tensor:
    """samples fp32 [sessions, n] at 16 kHz, of which counts int32 [sessions] are there -> fp32
    [sessions, frames, mels]: log10 of the power, at least -10, of frames of 400 samples, `hop`
    apart. Frames beyond a session's count are left as they are. Raises KernelInputError.
    """
    out, launches = plan(samples, counts, tables, hop, out)
    run(launches)
    return out
