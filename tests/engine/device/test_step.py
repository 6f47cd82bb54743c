"""The order of a step's rows, what is filled up, and its one copy."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from headstart.engine.decoder.decoder import Batch
from headstart.engine.device import recorded
from headstart.engine.device.recorded import (
    MOST_RECORDINGS,
    MOST_STREAMS,
    Compute,
    CudaRecorder,
    PlainRecorder,
    RecordedSteps,
    RecordingFailed,
    Replay,
    blocks_for,
    sizes_up_to,
    streams_for,
)
from headstart.engine.device.step import NO_SLOT, HostStep, Step, StepBuffer
from headstart.engine.device.transfer import Array, Mirror

CPU = torch.device("cpu")


def batch(counts: list[int], axes: int = 1, blocks: int = 3) -> Batch:
    """Streams of so many rows; every number tells its row."""
    rows = sum(counts)
    number = torch.arange(rows)
    seqs = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).int()
    contexts = torch.cat([torch.arange(50, 50 + n) for n in counts]).int()
    return Batch(
        tokens=100 + number,
        soft_rows=torch.tensor([], dtype=torch.int64),
        soft_vectors=torch.empty(0, 8),
        positions=200 + (number if axes == 1 else number.expand(axes, -1)),
        slots=300 + number,
        tables=(torch.arange(len(counts))[:, None] * 10 + torch.arange(blocks)).int(),
        seq_of_row=seqs,
        context_of_row=contexts,
        wanted=number[1:],
    )


@pytest.mark.parametrize("axes", [1, 3])
def test_streams_of_one_row_come_first(axes: int) -> None:
    """Two groups for attention; each row keeps its numbers, and what was wanted is found."""
    given = batch([3, 1, 2, 1], axes)
    host = HostStep.of(given)
    order = [3, 6, 0, 1, 2, 4, 5]
    assert (host.tokens - 100).tolist() == order
    assert (host.slots - 300).tolist() == order
    assert [order[row] for row in host.wanted] == given.wanted.tolist()
    assert [order[row] for row in host.row_of] == list(range(7))
    step = StepBuffer(host, CPU).load(host)
    assert torch.equal(step.positions, given.positions[..., order])
    decode, chunks = step.groups
    assert (decode.rows, chunks.rows) == (slice(0, 2), slice(2, 7))
    assert (decode.longest, chunks.longest) == (1, 3)
    assert decode.starts.tolist() == [0, 1, 2]
    assert chunks.starts.tolist() == [0, 3, 5]
    assert decode.tables[:, 0].tolist() == [10, 30]
    assert chunks.tables[:, 0].tolist() == [0, 20]
    assert decode.contexts.tolist() == [50, 50]
    assert chunks.contexts.tolist() == [52, 51]


def test_one_kind_of_row_is_one_group() -> None:
    """Decode rows alone, or a chunk alone."""
    for counts, expected in (([1, 1], [1]), ([4], [4])):
        host = HostStep.of(batch(counts))
        assert [g.longest for g in StepBuffer(host, CPU).load(host).groups] == expected


@pytest.mark.parametrize("axes", [1, 3])
def test_filled_up_rows_see_nothing_and_store_nothing(axes: int) -> None:
    """The rest of a padded step is the step."""
    host = HostStep.of(batch([1, 1, 1], axes))
    padded = host.padded(4, 8)
    assert padded.slots.tolist() == [300, 301, 302, NO_SLOT]
    assert padded.contexts.tolist() == [50, 50, 50, 0]
    assert padded.tables.shape == (4, 8)
    assert (padded.tables[:3, :3] == host.tables).all()
    assert padded.positions.shape[-1] == 4
    assert padded.starts.tolist() == list(range(5))
    assert padded.wanted.tolist() == list(range(4))


def test_tensors_are_aligned_and_apart() -> None:
    """All of a step lies in one piece, each tensor on 16 bytes."""
    host = HostStep.of(batch([1, 1, 5]))
    step = StepBuffer(host, CPU).load(host)
    parts = [step.tokens, step.positions, step.slots, step.wanted, step.groups[0].tables]
    assert all((part.data_ptr() - step.tokens.data_ptr()) % 16 == 0 for part in parts)
    assert (step.tokens - 100).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_sizes_hold_what_they_are_for() -> None:
    """Few of them: a third of a step is empty at most, from 8 streams on."""
    sizes = {streams_for(n) for n in range(1, MOST_STREAMS + 1)}
    assert sorted(sizes) == [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]
    assert all(n <= streams_for(n) <= max(8, 1.5 * n) for n in range(1, MOST_STREAMS + 1))
    assert [blocks_for(n) for n in (1, 8, 9, 32, 33, 512)] == [8, 8, 32, 32, 128, 512]


class _Recorder(PlainRecorder):
    """Counts recordings, and checks that a replay finds its step where it was recorded."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, compute: Compute[Any], given: Any) -> Replay:
        self.recorded += 1
        address = given.tokens.data_ptr()

        def replay() -> torch.Tensor:
            assert given.tokens.data_ptr() == address
            return compute(given)

        return replay


def test_a_size_is_recorded_once_and_replayed_on_new_numbers() -> None:
    """Three streams and four share a recording; five need another."""
    recorder = _Recorder()
    steps = RecordedSteps(recorder, lambda step: step.tokens[:, None].clone(), CPU)
    for count in (3, 4, 3, 5, 4):
        host = HostStep.of(batch([1] * count))
        assert steps.takes(host)
        host = replace(host, tokens=host.tokens + count)
        assert steps.run(host)[:, 0].tolist() == [100 + count + i for i in range(count)]
    assert recorder.recorded == 2
    assert steps.sizes == [(8, 8), (4, 8)]
    assert not steps.takes(HostStep.of(batch([1, 2])))
    assert not steps.takes(HostStep.of(batch([1] * (MOST_STREAMS + 1))))


def test_the_recording_not_used_for_longest_is_dropped() -> None:
    """Beyond the bound, and it is made again when it is needed."""
    recorder = _Recorder()
    steps = RecordedSteps(recorder, lambda step: step.tokens[:, None], CPU)
    counts = (1, 2, 3, 5, 9, 13, 17, 25, 33, 49)
    made = 0
    for blocks in (1, 9, 33, 129, 513, 2049, 8193):
        for count in counts:
            steps.run(HostStep.of(batch([1] * count, blocks=blocks)))
            made += 1
            assert len(steps.sizes) == min(made, MOST_RECORDINGS)
    assert (1, 8) not in steps.sizes
    steps.run(HostStep.of(batch([1])))
    assert recorder.recorded == made + 1


def test_rows_of_a_batch_may_come_in_any_mix() -> None:
    """Any counts: nothing is lost, and each stream's rows stay in order."""
    draw = np.random.default_rng(5)
    for _ in range(50):
        counts = draw.integers(1, 5, draw.integers(1, 7)).tolist()
        given = batch(counts)
        host = HostStep.of(given)
        assert sorted(host.tokens.tolist()) == given.tokens.tolist()
        assert (host.tokens[host.row_of] == given.tokens.numpy()).all()
        lengths = np.diff(host.starts)
        assert sorted(lengths.tolist()) == sorted(counts)
        assert (lengths[: host.decoding] == 1).all()
        for start, end in zip(host.starts[:-1], host.starts[1:], strict=True):
            assert (np.diff(host.tokens[start:end]) == 1).all()


def test_sizes_that_are_recorded_before_they_are_needed() -> None:
    """Every step of so few streams and blocks is filled up to one of them."""
    sizes = sizes_up_to(12, 40)
    assert sizes == [(s, b) for b in (8, 32, 128) for s in (1, 2, 4, 8, 12)]
    assert sizes_up_to(500, 1)[-1] == (MOST_STREAMS, 8)


@pytest.mark.parametrize("axes", [0, 3])
def test_an_idle_step_has_the_sizes_of_a_filled_up_one(axes: int) -> None:
    """The same arrays, so that its recording serves it."""
    idle = HostStep.idle(4, 8, axes)
    filled = HostStep.of(batch([1, 1, 1], axes or 1)).padded(4, 8)
    for (name, mine), (other, theirs) in zip(
        idle.arrays().items(), filled.arrays().items(), strict=True
    ):
        assert (name, mine.shape, mine.dtype) == (other, theirs.shape, theirs.dtype)
    assert idle.only_decodes
    assert set(idle.slots.tolist()) == {NO_SLOT}


class _Failing(PlainRecorder):
    """Records one size, and then no more."""

    def __init__(self) -> None:
        self.tried = 0

    def record(self, compute: Compute[Any], given: Any) -> Replay:
        self.tried += 1
        if self.tried > 1:
            raise RecordingFailed("an operation cannot be captured")
        return super().record(compute, given)


def test_what_cannot_be_recorded_is_launched_kernel_by_kernel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One warning, the right numbers, and no further attempt; what was recorded is still used."""
    recorder = _Failing()
    steps = RecordedSteps(recorder, lambda step: step.tokens[:, None].clone(), CPU)
    with caplog.at_level(logging.WARNING):
        for count in (1, 2, 4, 2, 1):
            host = HostStep.of(batch([1] * count))
            assert steps.run(host)[:, 0].tolist() == [100 + i for i in range(count)]
    assert recorder.tried == 2
    assert len(caplog.records) == 1
    assert steps.failure == "an operation cannot be captured"
    assert len(steps.sizes) == 3


class _Cuda:
    """Stands for `torch.cuda`: which stream is current, and what was done on which."""

    def __init__(self) -> None:
        self.current = "default"
        self.done: list[tuple[str, str]] = []
        self.made = 0
        self.fails = False

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("current_stream", "set_stream", "stream", "graph", "Stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: self)

    def current_stream(self, device: object) -> Any:
        return _Stream(self, self.current)

    def set_stream(self, stream: _Stream) -> None:
        self.current = stream.name

    def Stream(self, device: object) -> _Stream:  # noqa: N802
        self.made += 1
        return _Stream(self, f"own {self.made}")

    @contextlib.contextmanager
    def stream(self, stream: _Stream) -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    @contextlib.contextmanager
    def graph(self, graph: object, pool: str, stream: _Stream, **_: str) -> Iterator[None]:
        """Like torch's: a capture that is broken off leaves its stream the current one."""
        before, self.current = self.current, stream.name
        self.done.append(("capture", self.current))
        assert recorded._ONE_CAPTURE.locked(), "two threads could capture at a time"
        yield
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.current = before

    def replay(self) -> None:
        self.done.append(("replay", self.current))


class _Stream:
    def __init__(self, cuda: _Cuda, name: str) -> None:
        self._cuda, self.name = cuda, name

    def wait_stream(self, other: _Stream) -> None:
        self._cuda.done.append((f"{self.name} waits", other.name))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> _Cuda:
    made = _Cuda()
    made.patch(monkeypatch)
    return made


def test_a_step_is_captured_on_the_stream_that_it_was_tried_on(cuda: _Cuda) -> None:
    """What a stream makes for itself, such as cuBLAS' workspace, is there before the capture. One
    stream serves all recordings, and a replay is on the current one."""
    recorder, host = CudaRecorder(CPU), HostStep.of(batch([1]))
    step = StepBuffer(host, CPU).load(host)

    def compute(step: Step) -> torch.Tensor:
        cuda.done.append(("compute", cuda.current))
        return step.tokens

    once = [
        ("own 1 waits", "default"),
        ("compute", "own 1"),
        ("default waits", "own 1"),
        ("capture", "own 1"),
        ("compute", "own 1"),
    ]
    for _ in range(2):
        replay = recorder.record(compute, step)
        assert cuda.done == once
        cuda.done.clear()
    assert replay() is step.tokens
    assert cuda.done == [("replay", "default")]
    assert cuda.made == 1


def test_a_capture_that_breaks_off_leaves_the_current_stream(cuda: _Cuda) -> None:
    """Otherwise every later step would run on the captures' stream."""
    cuda.fails = True
    recorder, host = CudaRecorder(CPU), HostStep.of(batch([1]))
    step = StepBuffer(host, CPU).load(host)
    with pytest.raises(RecordingFailed, match="not permitted"):
        recorder.record(lambda step: step.tokens, step)
    assert cuda.current == "default"


def test_a_step_that_fails_by_itself_is_no_failed_recording(cuda: _Cuda) -> None:
    """A fault of a kernel must not be hidden by launching it again."""
    recorder, host = CudaRecorder(CPU), HostStep.of(batch([1]))

    def compute(step: Step) -> torch.Tensor:
        raise RuntimeError("an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal") as caught:
        recorder.record(compute, StepBuffer(host, CPU).load(host))
    assert not isinstance(caught.value, RecordingFailed)


def test_memory_is_not_written_to_before_its_copy_was_carried_out() -> None:
    """The host's half of a buffer is free again when the device has read it, not before."""
    arrays: dict[str, Array] = {
        "a": np.arange(3),
        "b": np.ones((2, 1)),
        "c": np.zeros(0, np.int32),
    }

    class Fence:
        waits = 0

        def record(self) -> None:
            self.copied = mirror._host.clone()

        def wait(self) -> None:
            Fence.waits += 1
            if Fence.waits > 1:
                assert torch.equal(mirror._host, self.copied)

    mirror = Mirror(arrays, CPU, Fence())
    for number in range(3):
        given = {name: array + number for name, array in arrays.items()}
        on = mirror.load(given)
        assert Fence.waits == number + 1
        for name, array in given.items():
            assert torch.equal(on[name], torch.from_numpy(array))
