"""Sample-rate conversion of one endless mono stream, independent of packet sizes.

Our own polyphase filter, because a library's would add latency to every turn: at 24 -> 16 kHz soxr
(HQ) holds back up to 37 ms of audio and returns it in blocks of 31 ms, at 8 -> 16 kHz up to 115 ms;
this filter delays by 2 ms. `tests/gateway/audio/test_resample.py` compares its quality with soxr's.

The input is split into blocks of 10 ms, and each becomes exactly `out_rate / 100` samples by one
matrix product of fixed shape (in C where there is a compiler: `gateway.audio.native`). A block is a
few equal slices. A row is a slice with the 4 ms before it, and the matrix holds, for each output of
a slice, the windowed sinc around that output's time. So no sum depends on the packet sizes, and
sample counts stay exact without tracking a ratio.

"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headstart.gateway.audio.native import native_audio

Samples = npt.NDArray[np.int16]

BLOCKS_PER_S = 100
NUMPY_OUTPUTS = 32  # per slice, at least: for numpy, small slices cost more than zeros
DELAY_PER_S = 500  # the filter reaches 1/500 s = 2 ms to either side
KAISER_BETA = 6.76  # 70 dB: 0.1102 * (70 - 8.7), Kaiser 1974
TRANSITION_HZ = 1080  # (70 - 8) / (2.285 * 2 pi * 4 ms): from pass to stop band, Kaiser 1974
S16_MIN, S16_MAX = -32768, 32767


class UnsupportedRateError(ValueError):
    """A rate whose 10 ms block or 2 ms delay is not a whole number of samples."""


def slices_per_block(in_rate: int, out_rate: int, least_outputs: int = 1) -> int:
    """As many slices as both rates allow while each has `least_outputs`: a smaller matrix has fewer
    zero entries and stays in the processor's cache. From 24 to 16 kHz, a slice is 3 samples in, 2
    out.

    """
    common = gcd(in_rate // BLOCKS_PER_S, out_rate // BLOCKS_PER_S)
    most = max(1, out_rate // BLOCKS_PER_S // least_outputs)
    return max(n for n in range(1, most + 1) if common % n == 0)


@lru_cache(maxsize=16)  # few rates are in use; one matrix serves all sessions
def slice_matrix(in_rate: int, out_rate: int, least_outputs: int = 1) -> npt.NDArray[np.float32]:
    """float32 [history + slice, outputs of a slice]: (history ++ slice) @ matrix = outputs.

    Column k is the low-pass around input instant k * in_rate / out_rate - 2 ms, in input samples
    from the start of the slice, with its gain brought to exactly 1 for a constant.
    """
    reach = in_rate / DELAY_PER_S
    slices = slices_per_block(in_rate, out_rate, least_outputs)
    step, outputs = in_rate // BLOCKS_PER_S // slices, out_rate // BLOCKS_PER_S // slices
    # Downwards, nothing may alias, so the stop band begins at the new limit. Upwards, the old limit
    # is the middle of the transition: telephone speech keeps its highest frequencies, and their
    # small image lies just above the limit.
    cutoff_hz = in_rate / 2 if out_rate > in_rate else (out_rate - TRANSITION_HZ) / 2
    at = np.arange(-history_samples(in_rate), step, dtype=np.float64)[:, None]
    centre = np.arange(outputs, dtype=np.float64)[None, :] * in_rate / out_rate - reach
    distance = at - centre
    inside = np.clip(1.0 - (distance / reach) ** 2, 0.0, None)
    window = np.where(np.abs(distance) <= reach, np.i0(KAISER_BETA * np.sqrt(inside)), 0.0)
    matrix = np.sinc(2 * cutoff_hz / in_rate * distance) * window
    matrix /= matrix.sum(axis=0, keepdims=True)
    return np.ascontiguousarray(matrix, dtype=np.float32)


@lru_cache(maxsize=16)
def slice_rows(in_rate: int, out_rate: int, least_outputs: int = 1) -> npt.NDArray[np.intp]:
    """intp [slices, history + slice]: where each row's samples lie in (history ++ block)."""
    slices = slices_per_block(in_rate, out_rate, least_outputs)
    step = in_rate // BLOCKS_PER_S // slices
    return np.arange(slices)[:, None] * step + np.arange(history_samples(in_rate) + step)


def history_samples(in_rate: int) -> int:
    """Input samples before a slice that its outputs depend on: 4 ms, rounded up."""
    return -(-2 * in_rate // DELAY_PER_S)


class Blocks(Protocol):
    """Whole blocks of 10 ms from packets of any size; less than one block is held back."""

    @property
    def held_samples(self) -> int: ...

    def feed(self, pcm: bytes) -> bytes:
        """s16 in; s16 out, for every block that is now full."""
        ...


class PlainBlocks:
    """For a stream whose rate does not change."""

    def __init__(self, block: int) -> None:
        self._block_bytes = block * 2
        self._held = b""

    @property
    def held_samples(self) -> int:
        return len(self._held) // 2

    def feed(self, pcm: bytes) -> bytes:
        pcm = self._held + pcm
        whole = len(pcm) - len(pcm) % self._block_bytes
        self._held = pcm[whole:]
        return pcm[:whole]


class NumpyBlocks:
    """The matrix product in numpy, for machines without a compiler."""

    def __init__(self, in_rate: int, out_rate: int) -> None:
        self._plain = PlainBlocks(in_rate // BLOCKS_PER_S)
        self._block = in_rate // BLOCKS_PER_S
        self._matrix = slice_matrix(in_rate, out_rate, NUMPY_OUTPUTS)
        self._rows = slice_rows(in_rate, out_rate, NUMPY_OUTPUTS)
        self._past = np.zeros(history_samples(in_rate), np.float32)

    @property
    def held_samples(self) -> int:
        return self._plain.held_samples

    def feed(self, pcm: bytes) -> bytes:
        blocks = np.frombuffer(self._plain.feed(pcm), np.int16)
        line = np.concatenate((self._past, blocks.astype(np.float32)))
        self._past = line[len(blocks) :]
        outputs = [
            # One block at a time: a product with more rows may be summed in another order.
            line[at : at + len(self._past) + self._block].take(self._rows) @ self._matrix
            for at in range(0, len(blocks), self._block)
        ]
        out = np.rint(np.concatenate(outputs).ravel()) if outputs else np.empty(0)
        return np.clip(out, S16_MIN, S16_MAX).astype(np.int16).tobytes()


def blocks_of(in_rate: int, out_rate: int) -> Blocks:
    """The fastest implementation, for a new stream."""
    block = in_rate // BLOCKS_PER_S
    if in_rate == out_rate:
        return PlainBlocks(block)
    compiled, history = native_audio(), history_samples(in_rate)
    if compiled is None or not compiled.has_room(block, history, out_rate // BLOCKS_PER_S):
        return NumpyBlocks(in_rate, out_rate)
    step = block // slices_per_block(in_rate, out_rate)
    return compiled.blocks(slice_matrix(in_rate, out_rate), block, history, step)


class StreamResampler:
    """Converts one mono s16 stream from `in_rate` to `out_rate`.

    Live (the default): each full 10 ms block is returned at once, and output n is the input at n /
    out_rate - 2 ms. With `aligned`, output n is the input at n / out_rate, held back by 2 ms: for
    files. In both cases `flush` completes the count to exactly ceil(in * out_rate / in_rate). Holds
    less than 10 ms of input. Raises UnsupportedRateError.

    """

    def __init__(self, in_rate: int, out_rate: int, *, aligned: bool = False) -> None:
        for rate in (in_rate, out_rate):
            if rate <= 0 or rate % BLOCKS_PER_S:
                raise UnsupportedRateError(f"expected a positive multiple of 100 Hz, got {rate}")
        if aligned and out_rate % DELAY_PER_S:
            raise UnsupportedRateError(f"aligned output needs a multiple of 500 Hz, got {out_rate}")
        self.in_rate = in_rate
        self.out_rate = out_rate
        self.aligned = aligned
        self._reset()

    @property
    def pending_samples(self) -> int:
        """Input samples that wait for a full block."""
        return self._blocks.held_samples

    def feed(self, pcm: bytes | Samples) -> Samples:
        """`pcm`: s16 mono bytes or int16[n]. All output that is ready, int16[m], read-only.

        Raises ValueError for an odd number of bytes.
        """
        pcm = pcm if isinstance(pcm, bytes) else np.asarray(pcm, np.int16).tobytes()
        return np.frombuffer(self.feed_pcm(pcm), np.int16)

    def feed_pcm(self, pcm: bytes) -> bytes:
        """`feed` without arrays."""
        if len(pcm) % 2:
            raise ValueError(f"s16 audio needs an even number of bytes, got {len(pcm)}")
        self._in_samples += len(pcm) // 2
        out = self._blocks.feed(pcm)
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(out))
            self._skip_bytes -= skipped
            out = out[skipped:]
        self._out_samples += len(out) // 2
        return out

    def flush(self) -> Samples:
        """The rest, up to the exact count; afterwards the stream starts anew."""
        return np.frombuffer(self.flush_pcm(), np.int16)

    def flush_pcm(self) -> bytes:
        """`flush` without arrays."""
        missing = -(-self._in_samples * self.out_rate // self.in_rate) - self._out_samples
        pieces = []
        while missing > 0:
            fill = self.in_rate // BLOCKS_PER_S - self._blocks.held_samples
            pieces.append(self.feed_pcm(bytes(2 * fill))[: 2 * missing])
            missing -= len(pieces[-1]) // 2
        self._reset()
        return b"".join(pieces)

    def _reset(self) -> None:
        self._in_samples = 0
        self._out_samples = 0
        self._blocks = blocks_of(self.in_rate, self.out_rate)
        late = self.aligned and self.in_rate != self.out_rate
        self._skip_bytes = 2 * self.out_rate // DELAY_PER_S if late else 0
