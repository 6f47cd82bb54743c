"""Encoders on a device: in the weights' type as on a GPU, and with tensors that claim to be on one.

For the first, products on the CPU are made as those of a GPU's matrix units are; the second shows
that no tensor of the host meets one of the device, and where results are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from headstart.engine.asr import mel
from headstart.engine.chat.render import Modality
from headstart.engine.config import EngineConfig
from headstart.engine.decoder import layers
from headstart.engine.device.encoders import PlacedTensors
from headstart.engine.device.place import Place, on_cpu, on_gpu
from headstart.engine.device.recorded import PlainRecorder
from headstart.engine.errors import NoDevice
from headstart.engine.models.checkpoint.parts import VISION
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.composite import Composite
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.clips import encode_picture
from headstart.engine.models.perception.interface import StreamModel, TailPolicy, VideoFrame
from headstart.engine.models.placed import Placed, placed
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from headstart.engine.models.source import loading_of
from tests.engine.device.conftest import SEEING
from tests.engine.models import playing

GPU = torch.device("cuda:0")
BF16 = 0.05
"""Share of the embeddings that rounding may change."""
PIXELS = np.random.default_rng(0).integers(0, 256, (90, 150, 3), dtype=np.uint8)


@pytest.fixture
def in_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with bf16 weights as a GPU makes them."""
    monkeypatch.setattr(layers, "on_matrix_units", lambda weight: weight.dtype == torch.bfloat16)


def pictures(model: StreamModel) -> list[Tensor]:
    """Embeddings of a frame and of a still."""
    found = []
    for live in (True, False):
        made = encode_picture(model, VideoFrame(PIXELS), live=live)
        found += [cells for _, cells in made.units] if made.still is None else [made.still]
    return found


def sound(model: StreamModel) -> list[Tensor]:
    """Embeddings of 4.5 s of sound in two pieces."""
    heard, found = playing.speech(random.Random(1), 72_000), []
    state = model.open_audio(TailPolicy.PROVISIONAL)
    for part, final in ((heard[:50_000], False), (heard[50_000:], True)):
        out = model.encode_audio(part, state, final)
        state = out.state
        found += [model.project(part, Modality.AUDIO) for part in (out.committed, out.provisional)]
    return found


def error(got: list[Tensor], wanted: list[Tensor]) -> float:
    """Of all embeddings, as a share of their size."""
    assert [part.shape for part in got] == [part.shape for part in wanted]
    assert all(part.dtype == torch.float32 for part in got)
    first, second = (torch.cat([part.flatten() for part in each]) for each in (got, wanted))
    return float((first - second).norm() / second.norm())


@pytest.mark.parametrize("name", SEEING)
def test_pictures_in_bf16(in_own_type: None, folders: dict[str, Path], name: str) -> None:
    """As near to fp32 as bf16's 8 bits are through random layers; and rounded at all."""
    exact = load(folders[name], Loading(torch.float32))
    place = on_cpu(torch.bfloat16)
    rounded = placed(load(folders[name], Loading(torch.float32, encoders=place)), place)
    assert 0 < error(pictures(rounded), pictures(exact)) < BF16


@pytest.mark.parametrize("name", ["omni", "composite"])
def test_sound_in_bf16(in_own_type: None, folders: dict[str, Path], name: str) -> None:
    """Streamed, with the open unit's tail."""
    exact = load(folders[name], Loading(torch.float32))
    place = on_cpu(torch.bfloat16)
    rounded = placed(load(folders[name], Loading(torch.float32, encoders=place)), place)
    assert 0 < error(sound(rounded), sound(exact)) < BF16


@pytest.fixture
def gpu_tensors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place on a GPU that is not there. Spectrograms, which are the host's, are left out: their
    filters are read as numbers."""
    monkeypatch.setattr(mel, "LogMelFilters", lambda mels: None)
    monkeypatch.setattr(Tensor, "pin_memory", lambda host: host)
    place = on_gpu(GPU)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield place


def encoders_at(place: Place) -> Loading:
    """Without a decoder."""
    return Loading(encoders=place, build=lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SEEING)
def test_pictures_stay_on_the_gpu(folders: dict[str, Path], gpu_tensors: Place, name: str) -> None:
    """From pixels on the host to embeddings on the device: nothing mixes, and what is added up over
    the layers is fp32."""
    model = load(folders[name], encoders_at(gpu_tensors))
    for live in (True, False):
        made = encode_picture(model, VideoFrame(PIXELS), live=live)
        found = [cells for _, cells in made.units] if made.still is None else [made.still]
        features = [unit.features for unit, _ in made.units]
        assert {cells.device for cells in [*found, *features]} == {GPU}
        assert {part.dtype for part in features} <= {torch.float32}
    assert model.clip_closing().numel() == 0 or model.clip_closing().device == GPU


def test_sound_stays_on_the_gpu(folders: dict[str, Path], gpu_tensors: Place) -> None:
    """The spectrogram is the host's; windows of both audio encoders."""
    omni = load(folders["omni"], encoders_at(gpu_tensors))
    assert isinstance(omni, Qwen25Omni)
    heard = omni.audio_encoder.encode_windows(torch.zeros(2, 16, 200))
    assert (heard.device, heard.dtype) == (GPU, torch.float32)
    assert omni.project(heard, Modality.AUDIO).device == GPU
    composite = load(folders["composite"], encoders_at(gpu_tensors))
    assert isinstance(composite, Composite)
    ears = composite.audio_encoder
    state = ears.open(TailPolicy.CLOSED)
    mels = ears.sizes.mels
    features, seen = ears._block(torch.zeros(mels, 2 * ears.sizes.block), state, None)
    assert {features.device, seen[0][0].device} == {GPU}
    assert composite.project(ears._stacked(features), Modality.AUDIO).device == GPU


def test_decoders_and_what_has_no_data_are_left_alone() -> None:
    """The decoder's builder places its own, and left-out parts have sizes alone."""

    class Watched(RandomTensors):
        def copied(self, name: str) -> None:
            gone.append(name)

    gone: list[str] = []
    inner = Watched(torch.bfloat16)
    tensors = PlacedTensors(inner, on_cpu())
    assert tensors.take("vision.norm.weight", 4).dtype == torch.float32
    assert tensors.take("decoder.norm.weight", 4).dtype == torch.bfloat16
    for name in ("decoder.norm.weight", "vision.norm.weight"):
        tensors.copied(name)
    assert gone == ["vision.norm.weight", "decoder.norm.weight"]  # when it was placed, when told
    how = Loading(encoders=on_cpu(), left_out=VISION)
    assert how.part(inner).take("vision.norm.weight", 4).is_meta


def test_a_gpu_without_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what can be done."""

    class Full(RandomTensors):
        def take(self, name: str, *shape: int) -> Any:
            class NoRoom:
                is_meta = False

                def to(self, *_: object) -> Tensor:
                    raise torch.OutOfMemoryError

            return NoRoom()

    with pytest.raises(NoDevice, match="no room for the weights of encoders"):
        PlacedTensors(Full(torch.float32), on_cpu()).take("vision.x", 1)


def test_int8_encoders_stay_on_the_cpu() -> None:
    """Their kernels are the CPU's; others go where the decoder goes."""
    settings: dict[str, Any] = {"weights": "bf16", "backend": "device", "device": "cpu"}
    assert loading_of(EngineConfig(**settings)).encoders is not None
    assert loading_of(EngineConfig(**settings, encoder_weights="int8")).encoders is None
    assert loading_of(EngineConfig(weights="bf16")).encoders is None


class _Cuda:
    """Records what is asked of CUDA's streams, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def call(self, name: str) -> Callable[..., Any]:
        def called(*_: object, **__: object) -> _Cuda:
            self.told.append(name)
            return self

        return called

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.call(name)

    def __enter__(self) -> None:
        self.told.append("enter")

    def __exit__(self, *_: object) -> None:
        self.told.append("leave")


def test_work_is_on_the_encoders_stream(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding is enqueued there and not waited for; embeddings are, by an event of that stream."""
    cuda, place = _Cuda(), on_cpu()
    for name in ("Stream", "stream", "current_stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, cuda.call(name))
    monkeypatch.setattr(Place, "is_gpu", property(lambda _: True))
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **more: empty(*a, **more))
    model = Placed(load(folders["omni"], Loading(torch.float32)), place, PlainRecorder())
    assert cuda.told[:3] == ["Stream", "current_stream", "wait_stream"]
    cuda.told.clear()
    units, _ = model.encode_frames([VideoFrame(PIXELS)], model.open_frames(), True)
    assert cuda.told == ["stream", "enter", "leave"]
    cuda.told.clear()
    cells = model.project(units[0].features, Modality.IMAGE)
    assert cuda.told == ["stream", "enter", "Event", "record", "leave", "synchronize"]
    assert torch.equal(cells, model.base.project(units[0].features, Modality.IMAGE))
