"""Passes of encoders that are recorded by size and replayed: the embeddings of passes that are not.

A recorder that stands for CUDA graphs: what is recorded reads fixed memory and overwrites its last
result, and nothing of the host may be in it.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from headstart.engine.asr import mel
from headstart.engine.chat.render import Modality
from headstart.engine.device.place import on_cpu, on_gpu
from headstart.engine.device.recorded import (
    MOST_PASS_ROWS,
    RECORDED_FROM,
    Compute,
    PlainRecorder,
    RecordedPasses,
    RecordingFailed,
    Replay,
)
from headstart.engine.errors import NoDevice
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.clips import encode_picture
from headstart.engine.models.perception.interface import StreamModel, TailPolicy, VideoFrame
from headstart.engine.models.placed import Placed
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from tests.engine.device.conftest import SEEING
from tests.engine.device.fake_gpu import GPU
from tests.engine.models import playing


class Recorder(PlainRecorder):
    """Replays into the memory of the first result, from the memory that was given."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, compute: Compute[Any], given: Any) -> Replay:
        self.recorded += 1
        out = compute(given).clone()

        def replay() -> Tensor:
            return out.copy_(compute(given))

        return replay


def picture(number: int) -> VideoFrame:
    """One of two sizes, a new one each time."""
    size = (90, 150, 3) if number % 2 else (64, 64, 3)
    return VideoFrame(np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8))


def embedded(model: StreamModel, shown: VideoFrame, *, live: bool) -> Tensor:
    made = encode_picture(model, shown, live=live)
    return torch.cat([cells for _, cells in made.units]) if made.still is None else made.still


@pytest.mark.parametrize("name", [*SEEING, "composite"])
def test_pictures_are_those_of_passes_that_are_not_recorded(
    folders: dict[str, Path], name: str
) -> None:
    """Two sizes in turn, each often enough to be recorded; what was encoded before stays."""
    eager, recorder = load(folders[name], Loading(torch.float32)), Recorder()
    model = Placed(load(folders[name], Loading(torch.float32)), on_cpu(), recorder)
    sounds = recorder.recorded
    for live in (True, False):
        shown = [picture(number) for number in range(2 * RECORDED_FROM + 2)]
        found = [embedded(model, each, live=live) for each in shown]
        for each, cells in zip(shown, found, strict=True):
            assert torch.equal(cells, embedded(eager, each, live=live))
    assert model.recorded is not None
    assert model.recorded.failure is None
    assert recorder.recorded - sounds == len(model.recorded.sizes) - sounds >= 1


def test_sounds_are_those_of_passes_that_are_not_recorded(folders: dict[str, Path]) -> None:
    """Streamed in pieces of any length, with the open window: within fp32's rounding, for what
    fills a window up is seen by nobody."""
    eager, recorder = load(folders["omni"], Loading(torch.float32)), Recorder()
    model = Placed(load(folders["omni"], Loading(torch.float32)), on_cpu(), recorder)
    assert model.recorded is not None
    at_start = list(model.recorded.sizes)
    assert len(at_start) == 4  # quarters of a window
    draw = random.Random(3)
    heard = playing.speech(draw, 100_000)
    states, at = [each.open_audio(TailPolicy.PROVISIONAL) for each in (model, eager)], 0
    while at < len(heard):
        end = min(at + draw.randint(900, 20_000), len(heard))
        outs = [
            each.encode_audio(heard[at:end], state, end == len(heard))
            for each, state in zip((model, eager), states, strict=True)
        ]
        for ours, theirs in zip(outs[0][:2], outs[1][:2], strict=True):
            assert ours.shape == theirs.shape
            cells = [
                each.project(part, Modality.AUDIO)
                for each, part in ((model, ours), (eager, theirs))
            ]
            assert torch.allclose(cells[0], cells[1], rtol=1e-3, atol=1e-4)
        states, at = [out.state for out in outs], end
    assert set(at_start) <= set(model.recorded.sizes)
    assert len(model.recorded.sizes) <= len(at_start) + 2  # and two or four windows at once


def test_any_number_of_windows_of_any_length(folders: dict[str, Path]) -> None:
    """Each is what it is alone; the sizes are few."""
    eager = load(folders["omni"], Loading(torch.float32))
    model = load(folders["omni"], Loading(torch.float32))
    assert isinstance(eager, Qwen25Omni)
    assert isinstance(model, Qwen25Omni)
    passes = RecordedPasses(Recorder())
    model.use_passes(passes)
    noise = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        for frames in (1, 2, 3, 7, 49, 50, 51, 101, 150, 199, 200):
            for count in (1, 3):
                mels = torch.randn(count, 16, frames, generator=noise)
                ours, theirs = (each.audio_encoder.encode_windows(mels) for each in (model, eager))
                assert ours.shape == theirs.shape
                assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4), (frames, count)
    assert len(passes.sizes) == 8


class Capturing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises where an operation has a tensor of the host: no graph can read that."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for part in (*args, *(kwargs or {}).values(), out):
            for each in part if isinstance(part, list | tuple) else (part,):
                assert not isinstance(each, Tensor) or each.device == GPU, function
        return out


class Checking(PlainRecorder):
    """Computes under `Capturing`."""

    def record(self, compute: Compute[Any], given: Any) -> Replay:
        def replay() -> Tensor:
            with Capturing():  # type: ignore[no-untyped-call]
                return compute(given)

        replay()
        return replay


@pytest.fixture
def gpu_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Loads a model whose encoders claim to be on a GPU, their passes recorded at once."""
    monkeypatch.setattr(mel, "LogMelFilters", lambda mels: None)
    monkeypatch.setattr(Tensor, "pin_memory", lambda host: host)
    monkeypatch.setattr("headstart.engine.device.recorded.RECORDED_FROM", 1)
    place = on_gpu(GPU)

    def loaded(folder: Path) -> tuple[StreamModel, RecordedPasses]:
        model = load(folder, Loading(encoders=place, build=lambda *_: None))  # type: ignore[arg-type]
        passes = RecordedPasses(Checking())
        model.use_passes(passes)
        return model, passes

    with FakeTensorMode(allow_non_fake_inputs=True):
        yield loaded


@pytest.mark.triton
@pytest.mark.parametrize("name", SEEING)
def test_nothing_of_the_host_is_recorded(
    folders: dict[str, Path], gpu_model: Any, name: str
) -> None:
    """Pictures, and windows of sound where a model hears."""
    model, passes = gpu_model(folders[name])
    before = len(passes.sizes)
    for live in (True, False):
        assert embedded(model, picture(1), live=live).device == GPU
    assert len(passes.sizes) > before
    if name == "omni":
        assert model.audio_encoder.encode_windows(torch.zeros(2, 16, 77)).device == GPU
        assert passes.sizes[-1] == ("audio", ((2, 16, 100), torch.float32), ((1,), torch.int64))


def test_a_size_is_recorded_when_it_has_come_a_few_times() -> None:
    """Not sooner; a result is not overwritten by the next; and other sizes are apart."""
    recorder = Recorder()
    passes = RecordedPasses(recorder)
    results = [passes("a", torch.neg, torch.full((2,), float(n)), rows=2) for n in range(6)]
    assert [result[0].item() for result in results] == [-n for n in range(6)]
    assert recorder.recorded == 1
    for _ in range(RECORDED_FROM):
        assert passes("b", torch.abs, -torch.ones(2), rows=2)[0] == 1
        assert passes("a", torch.neg, torch.ones(3), rows=3)[0] == -1
    assert recorder.recorded == 3
    assert [size[0] for size in passes.sizes] == ["a", "b", "a"]  # type: ignore[index]


def test_what_comes_often_is_recorded_at_once_and_what_is_large_never() -> None:
    """A large pass takes longer than its launches."""
    recorder = Recorder()
    passes = RecordedPasses(recorder)
    passes("a", torch.neg, torch.ones(2), rows=2, often=True)
    assert recorder.recorded == 1
    for _ in range(2 * RECORDED_FROM):
        assert passes("b", torch.neg, torch.ones(2), rows=MOST_PASS_ROWS + 1)[0] == -1
    assert recorder.recorded == 1


def test_recordings_are_bounded() -> None:
    """The one not used for longest is dropped."""
    recorder = Recorder()
    passes = RecordedPasses(recorder, most=2)
    for size in (1, 2, 1, 3):
        passes("a", torch.neg, torch.ones(size), rows=size, often=True)
    assert [size[1] for size in passes.sizes] == [  # type: ignore[index]
        ((1,), torch.float32),
        ((3,), torch.float32),
    ]
    assert recorder.recorded == 3


def test_what_cannot_be_recorded_is_launched(caplog: pytest.LogCaptureFixture) -> None:
    """One warning, the right numbers, and no further attempt."""

    class Failing(PlainRecorder):
        tried = 0

        def record(self, compute: Compute[Any], given: Any) -> Replay:
            self.tried += 1
            raise RecordingFailed("an operation cannot be captured")

    recorder = Failing()
    passes = RecordedPasses(recorder)
    with caplog.at_level(logging.WARNING):
        for size in (2, 3, 2, 3):
            for _ in range(RECORDED_FROM):
                assert passes("a", torch.neg, torch.ones(size), rows=size).tolist() == [-1] * size
    assert recorder.tried == 1
    assert [record.message for record in caplog.records] == [
        "encoders' passes are launched kernel by kernel from now on: "
        "an operation cannot be captured"
    ]
    assert passes.failure == "an operation cannot be captured"


def test_threads_do_not_meet_in_a_recording() -> None:
    """A camera's thread and a recogniser's: each gets the result of what it gave."""
    passes, wrong = RecordedPasses(Recorder()), []

    def many(number: int) -> None:
        for _ in range(200):
            given = torch.full((64,), float(number))
            if not torch.equal(passes("a", torch.neg, given, rows=64, often=True), -given):
                wrong.append(number)

    threads = [threading.Thread(target=many, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_gpu_without_room_for_a_pass_is_named(folders: dict[str, Path]) -> None:
    """At the start, with what can be done."""

    class Full(PlainRecorder):
        def record(self, compute: Compute[Any], given: Any) -> Replay:
            raise torch.OutOfMemoryError

    with pytest.raises(NoDevice, match="no room for a pass of the encoders"):
        Placed(load(folders["omni"], Loading(torch.float32)), on_cpu(), Full())
