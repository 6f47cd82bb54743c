"""Encoders in int8, beside the same ones in float."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headstart.engine import api
from headstart.engine.chat.render import Modality
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.projection import calibrate, int8_projections
from headstart.engine.models.families import Loading, load
from headstart.engine.models.footprint import weights_bytes
from headstart.engine.models.perception.clips import encode_picture
from headstart.engine.models.perception.interface import StreamModel, TailPolicy, VideoFrame
from headstart.engine.models.perception.samples import encode_samples, picture, sound
from headstart.engine.models.source import loading_of, source_of
from headstart.engine.process.model_directory import assemble_source
from tests.engine.models import twins
from tests.engine.models.served import write_pixtral, write_served

MODELS = ("pixtral", "qwen2_vl", "qwen2_5_vl", "llava_onevision", "omni")


def written(name: str, folder: Path) -> Path:
    if name == "omni":
        write_served(folder)
    else:
        twins.save(getattr(twins, name)().float(), folder)
    return folder


def features(model: StreamModel) -> list[torch.Tensor]:
    """Of a picture and a sound that it was not calibrated on."""
    seen = encode_picture(model, VideoFrame(picture(99, 140)), live=True)
    found = [cells for _, cells in seen.units]
    if model.spec.audio is not None:
        half = sound()[16_000:48_000] * 0.5
        heard = model.encode_audio(half, model.open_audio(TailPolicy.CLOSED), True)
        found.append(model.project(heard.committed, Modality.AUDIO))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_features_are_nearly_the_same(name: str, tmp_path: Path) -> None:
    """Of every family: most projections in int8 after calibration, and embeddings a few percent
    off. Untrained weights four times as large as usual are the worst case."""
    folder = written(name, tmp_path)
    exact = load(folder, Loading(torch.float32))
    with int8_projections() as made:
        ours = load(folder, Loading(torch.float32))
    found = calibrate(made, lambda: encode_samples(ours))
    assert found.projections >= 6
    assert found.in_float <= found.projections // 4
    assert found.error_max <= 0.03
    for here, there in zip(features(ours), features(exact), strict=True):
        assert float((here - there).norm() / there.norm()) < 0.1


def test_a_served_model_answers_with_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By a setting: loaded, calibrated, reported, and a picture is answered."""
    write_pixtral(tmp_path)
    config = EngineConfig(
        model=str(tmp_path),
        kv_pool_bytes=1 << 22,
        threads=1,
        weights="int8",
        encoder_weights="int8",
    )
    source = source_of(config)
    assert source is not None
    events: list[api.Event] = []
    with caplog.at_level("INFO"):
        engine, _ = assemble_source(source, config, events.append, lambda *told: None)
    assert "projections in int8" in caplog.text
    engine.receive(api.Open("s", "Be brief."))
    seen = picture(1, 64)
    image = api.Image(64, 64, seen.tobytes())
    engine.receive(api.AddItem("s", api.Item("u1", api.Role.USER, (image, api.Text("What?")))))
    engine.receive(api.Respond("s", 1, "a1", api.Sampling(max_tokens=2)))
    while engine.step():
        pass
    (finished,) = [event for event in events if isinstance(event, api.Finished)][-1:]
    assert finished.reason is not api.FinishReason.FAILED
    assert finished.usage.input_image == 20


def test_they_take_half_the_memory() -> None:
    """7B with both in int8, before anything is loaded: its 1.3 billion weights of encoders take 1.4
    GB in place of 2.6."""
    source = source_of(EngineConfig(weights="dummy", size="7b"))
    assert source is not None
    sizes = [
        weights_bytes(source, loading_of(EngineConfig(weights="int8", encoder_weights=form)))
        for form in ("auto", "int8")
    ]
    assert (sizes[0] - sizes[1]) / 1e9 == pytest.approx(1.2, abs=0.1)
