"""A whole engine with real weights reads a sign beside its steps."""

from __future__ import annotations

import select
from dataclasses import replace
from pathlib import Path

import pytest

from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.process.assemble import ModelPaths, assemble
from headstart.engine.process.picture_reader import reader_of
from tests.engine.vision.reading.drawn import image, page

pytestmark = pytest.mark.weights

PATIENCE_S = 60


@pytest.fixture(scope="module")
def paths(
    smollm2_path: Path,
    whisper_dir: Path,
    efficientnet_path: Path,
    imagenet_names_path: Path,
    reading_path: Path,
) -> ModelPaths:
    parts = smollm2_path, whisper_dir, efficientnet_path, imagenet_names_path
    return ModelPaths("tiny", *parts, reading=reading_path)


def test_what_a_sign_says_is_in_the_context(paths: ModelPaths) -> None:
    """The note stands behind the labels once the thread has read the frame."""
    events: list[api.Event] = []
    config = EngineConfig(model="tiny", kv_pool_bytes=1 << 28)
    engine, info = assemble(paths, config, events.append, lambda *_: None)
    assert info.frame == api.PictureSize(short_side=480)
    engine.receive(api.Open("s", "You are a helpful assistant."))
    engine.receive(api.Frame("s", 0, image(page("Platform 4"))))
    while engine.step() or engine.is_reading:
        if engine.is_reading:
            assert select.select(engine.wake_fds, [], [], PATIENCE_S)[0]
    view = engine.sessions["s"].conversation.now()[-1]
    (segment,) = view.segments
    text = engine.parts.services.tokenizer.stream_decoder()
    said = "".join(text.feed(token) for token in segment.ids if token < 40_000)
    assert 'a text that says "Platform 4"' in said
    engine.close()


def test_reading_is_off_by_a_switch_or_without_weights(paths: ModelPaths) -> None:
    """Neither a thread nor nets are made then."""
    config = EngineConfig(model="tiny", reading="off")
    assert reader_of(paths.reading, config) is None
    assert reader_of(None, replace(config, reading="auto")) is None
