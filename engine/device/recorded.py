"""Decode steps that are recorded once for each size and replayed: CUDA graphs.

A decode step of a small model is hundreds of short kernels, and starting them from Python takes
longer than running them. A recorded step has fixed sizes, so a step is filled up to the next size:
rows that nobody asked for see no keys and store nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from headstart.engine.device.step import HostStep, Step, StepBuffer

log = logging.getLogger("headstart.engine")

Compute = Callable[[Step], Tensor]
Replay = Callable[[], Tensor]

MOST_STREAMS = 64
LEAST_BLOCKS = 8
# A recording keeps its intermediate results, parts of attention among them, in a shared pool.
MOST_RECORDINGS = 64


class RecordingFailed(RuntimeError):
    """A step could be computed, and not recorded."""


class Recorder(Protocol):
    """Makes a step, whose tensors stay where they are, replayable."""

    def record(self, compute: Compute, step: Step) -> Replay:
        """The replay computes on what lies in `step` when it is called; its result is overwritten
        by the next one, of whatever recording. Raises RecordingFailed."""
        ...


class PlainRecorder:
    """Records nothing: a replay computes again. On the CPU."""

    def record(self, compute: Compute, step: Step) -> Replay:
        return lambda: compute(step)


class CudaRecorder:
    """CUDA graphs, whose memory all lies in one pool. Never run yet: there was no GPU.

    They share a pool, so a replay may overwrite what another has left, its result too.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        # One for all recordings: torch has 32 streams a device and hands them out in turn, so one
        # for each would sooner or later be the encoders'.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, compute: Compute, step: Step) -> Replay:
        before = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            # Compiles kernels, and makes cuBLAS' workspace of this stream, which cannot be
            # captured. What it raises is the step's own fault.
            compute(step)
        before.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Of this thread alone: encoders may allocate in theirs meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                out = compute(step)
        except RuntimeError as error:
            # A capture that is broken off leaves its stream the current one.
            torch.cuda.set_stream(before)
            raise RecordingFailed(f"{type(error).__name__}: {error}") from error

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay


def sizes_up_to(streams: int, blocks: int) -> list[tuple[int, int]]:
    """All sizes that steps of at most so many streams and blocks are filled up to."""
    rows = {streams_for(count) for count in range(1, min(streams, MOST_STREAMS) + 1)}
    widths = {blocks_for(count) for count in range(1, blocks + 1)}
    return [(row, width) for width in sorted(widths) for row in sorted(rows)]


def streams_for(count: int) -> int:
    """The size that a step of `count` streams is filled up to: a power of two, and from 8 on the
    halves between them too. Beyond `MOST_STREAMS` there is none."""
    size = 1
    while size < count:
        size *= 2
    middle = size // 4 * 3
    return middle if size > 8 and count <= middle else size


def blocks_for(count: int) -> int:
    """The table's width that `count` blocks are filled up to: a power of four times the least.
    What is too wide costs attention programs that end at once."""
    size = LEAST_BLOCKS
    while size < count:
        size *= 4
    return size


class RecordedSteps:
    """Recordings by size, at most `MOST_RECORDINGS`; the one not used for longest is dropped.

    After a recording that failed no other is tried: `failure` says why, and steps of new sizes are
    launched kernel by kernel, which is slower and right.
    """

    def __init__(self, recorder: Recorder, compute: Compute, device: torch.device) -> None:
        self._recorder, self._compute, self._device = recorder, compute, device
        self.failure: str | None = None
        self._made: OrderedDict[tuple[int, int], tuple[StepBuffer, Replay]] = OrderedDict()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Streams and blocks of the recordings, the one used last at the end."""
        return list(self._made)

    def takes(self, step: HostStep) -> bool:
        return step.only_decodes and len(step.contexts) <= MOST_STREAMS

    def run(self, step: HostStep) -> Tensor:
        """Logits [rows, vocab_size] of all rows of a step that it takes, in the step's order."""
        streams = streams_for(len(step.contexts))
        size = streams, blocks_for(step.tables.shape[1])
        padded = step.padded(*size)
        made = self._made.get(size)
        if made is None:
            buffer = StepBuffer(padded, self._device)
            buffer.load(padded)  # recording computes it too, so its numbers have to make sense
            made = buffer, self._record(buffer.step)
            self._made[size] = made
            if len(self._made) > MOST_RECORDINGS:
                self._made.popitem(last=False)
        self._made.move_to_end(size)
        buffer, replay = made
        buffer.load(padded)
        return replay()[: len(step.contexts)]

    def _record(self, step: Step) -> Replay:
        try:
            return self._recorder.record(self._compute, step)
        except RecordingFailed as error:
            log.warning("decode steps are launched kernel by kernel from now on: %s", error)
            self.failure, self._recorder = str(error), PlainRecorder()
            return self._recorder.record(self._compute, step)
