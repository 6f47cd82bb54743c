"""What is recorded once for each size and replayed: CUDA graphs, of decode steps and of encoders.

A decode step of a small model is hundreds of short kernels, and starting them from Python takes
longer than running them. A recorded step has fixed sizes, so a step is filled up to the next size:
rows that nobody asked for see no keys and store nothing. An encoder's passes (`RecordedPasses`) are
recorded for the sizes that they are given, once these have come a few times.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from headstart.engine.device.step import HostStep, Step, StepBuffer

log = logging.getLogger("headstart.engine")

Given = TypeVar("Given")
Size = TypeVar("Size", bound=Hashable)
Buffer = TypeVar("Buffer")
Compute = Callable[[Given], Tensor]
Replay = Callable[[], Tensor]

MOST_STREAMS = 64
LEAST_BLOCKS = 8
# A recording keeps its intermediate results, parts of attention among them, in a shared pool.
MOST_RECORDINGS = 64

MOST_PASSES = 32
MOST_PASS_ROWS = 4096
RECORDED_FROM = 3
MOST_COUNTED = 256  # sizes of pictures, until they are recorded

# torch waits for the whole device before a capture, which breaks one that another thread has begun.
_ONE_CAPTURE = threading.Lock()


class RecordingFailed(RuntimeError):
    """A step could be computed, and not recorded."""


class Recorder(Protocol):
    """Makes a computation replayable on tensors that stay where they are."""

    def record(self, compute: Compute[Given], given: Given) -> Replay:
        """The replay computes on what lies in `given` when it is called; its result is overwritten
        by the next one, of whatever recording. Raises RecordingFailed."""
        ...


class PlainRecorder:
    """Records nothing: a replay computes again. On the CPU."""

    def record(self, compute: Compute[Given], given: Given) -> Replay:
        return lambda: compute(given)


class CudaRecorder:
    """CUDA graphs, whose memory all lies in one pool. Never run yet: there was no GPU.

    They share a pool, so a replay may overwrite what another has left, its result too. So what runs
    at the same time, on streams of their own, has a recorder each.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        # One for all recordings: torch has 32 streams a device and hands them out in turn, so one
        # for each would sooner or later be the encoders'.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, compute: Compute[Given], given: Given) -> Replay:
        with _ONE_CAPTURE:
            return self._record(compute, given)

    def _record(self, compute: Compute[Given], given: Given) -> Replay:
        before = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            # Compiles kernels, and makes cuBLAS' workspace of this stream, which cannot be
            # captured. What it raises is the computation's own fault.
            compute(given)
        before.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Of this thread alone: others may allocate meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                out = compute(given)
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


class Recordings(Generic[Size, Buffer]):
    """Recordings by size, at most `most`, each with the memory that it reads; the one not used for
    longest is dropped.

    After a recording that failed no other is tried: `failure` says why, and what has a new size is
    launched kernel by kernel, which is slower and right.
    """

    def __init__(self, recorder: Recorder, what: str, most: int) -> None:
        """`what`: for the log, in the plural."""
        self._recorder, self._what, self._most = recorder, what, most
        self.failure: str | None = None
        # With what was recorded: it holds all else that a replay reads.
        self._made: OrderedDict[Size, tuple[Buffer, Replay, object]] = OrderedDict()

    @property
    def sizes(self) -> list[Size]:
        """Of the recordings, the one used last at the end."""
        return list(self._made)

    def get(self, size: Size) -> tuple[Buffer, Replay] | None:
        """The recording of that size, which is now the one used last."""
        if size not in self._made:
            return None
        self._made.move_to_end(size)
        return self._made[size][:2]

    def add(
        self, size: Size, buffer: Buffer, compute: Compute[Given], given: Given
    ) -> tuple[Buffer, Replay]:
        """Record `compute` on `given`, which lies in `buffer` and has numbers that make sense."""
        self._made[size] = buffer, self._record(compute, given), compute
        if len(self._made) > self._most:
            self._made.popitem(last=False)
        return self._made[size][:2]

    def _record(self, compute: Compute[Given], given: Given) -> Replay:
        try:
            return self._recorder.record(compute, given)
        except RecordingFailed as error:
            log.warning("%s are launched kernel by kernel from now on: %s", self._what, error)
            self.failure, self._recorder = str(error), PlainRecorder()
            return self._recorder.record(compute, given)


class RecordedSteps:
    """Decode steps, recorded by streams and blocks: at most `MOST_RECORDINGS` sizes."""

    def __init__(self, recorder: Recorder, compute: Compute[Step], device: torch.device) -> None:
        self._compute, self._device = compute, device
        self._made: Recordings[tuple[int, int], StepBuffer] = Recordings(
            recorder, "decode steps", MOST_RECORDINGS
        )

    @property
    def failure(self) -> str | None:
        """As of `Recordings`."""
        return self._made.failure

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Streams and blocks of the recordings, the one used last at the end."""
        return self._made.sizes

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
            made = self._made.add(size, buffer, self._compute, buffer.step)
        buffer, replay = made
        buffer.load(padded)
        return replay()[: len(step.contexts)]


class RecordedPasses:
    """Passes of encoders (`engine.models.perception.passes.Passes`), recorded by what they are of
    and the shapes that they are given: at most `MOST_PASSES`.

    A picture's size comes once, or again and again from a camera: so a pass is recorded when its
    size comes for the `RECORDED_FROM`-th time. Larger ones than `MOST_PASS_ROWS` are not, for their
    kernels take longer than to start them. Several threads may use it.
    """

    def __init__(self, recorder: Recorder, most: int = MOST_PASSES) -> None:
        self._made: Recordings[Hashable, Sequence[Tensor]] = Recordings(
            recorder, "encoders' passes", most
        )
        self._came: OrderedDict[Hashable, int] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def failure(self) -> str | None:
        """As of `Recordings`."""
        return self._made.failure

    @property
    def sizes(self) -> list[Hashable]:
        """Of the recordings, the one used last at the end."""
        return self._made.sizes

    def __call__(
        self,
        of: Hashable,
        compute: Callable[..., Tensor],
        *given: Tensor,
        rows: int,
        often: bool = False,
    ) -> Tensor:
        """`compute` of `given`, in memory of its own. `of`: what else decides what is computed;
        `rows`: how many the encoder's layers have; `often`: record it at once."""
        if rows > MOST_PASS_ROWS:
            return compute(*given)
        size = of, *((tuple(part.shape), part.dtype) for part in given)
        with self._lock:  # the memory that it reads, and its result, are the recording's
            made = self._made.get(size)
            if made is None:
                if not often and not self._comes_again(size):
                    return compute(*given)
                fresh = [torch.empty_like(part) for part in given]
                _copy(given, fresh)
                made = self._made.add(size, fresh, lambda parts: compute(*parts), fresh)
            buffers, replay = made
            _copy(given, buffers)
            return replay().clone()

    def _comes_again(self, size: Hashable) -> bool:
        if self.failure is not None:
            return False
        self._came[size] = self._came.get(size, 0) + 1
        self._came.move_to_end(size)
        if len(self._came) > MOST_COUNTED:
            self._came.popitem(last=False)
        return self._came[size] >= RECORDED_FROM


def _copy(given: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
    for part, buffer in zip(given, buffers, strict=True):
        buffer.copy_(part)
