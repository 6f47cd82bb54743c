"""A model's encoders as a session's recogniser and image encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.engine import api
from headstart.engine.chat.render import Modality
from headstart.engine.interfaces import LiveFrameEncoder
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.checkpoint.errors import UnsupportedInput
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.interface import StreamModel, TailPolicy
from headstart.engine.models.perception.senses import MAX_FRAMES, ModelImageEncoder, ModelRecognizer
from tests.engine.models import twins
from tests.engine.models.omni_twin import VISION_BOS, VISION_EOS, tiny_twin, write_directory


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StreamModel:
    folder = write_directory(tiny_twin(), tmp_path_factory.mktemp("omni"))
    return load(folder, Loading(torch.float32))


def stream_of(model: StreamModel) -> Stream:
    return Stream("s", BlockPool(100, 16), 200, 1_000, model.new_positions())


def picture(seed: int) -> api.Image:
    rgb = np.random.default_rng(seed).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    return api.Image(56, 56, rgb.tobytes())


def test_speech_can_continue_after_a_final_pass(model: StreamModel) -> None:
    """What is heard behind a final pass gives what it would have given without."""
    recognizer, stream = ModelRecognizer(model, TailPolicy.PROVISIONAL), stream_of(model)
    pcm = np.random.default_rng(0).standard_normal(30_000).astype(np.float32)
    plain, resumed = recognizer.open(stream), recognizer.open(stream)
    recognizer.recognize_batch([plain, resumed], [pcm[:20_000]] * 2)
    ended = recognizer.finish(resumed)
    one, two = recognizer.recognize_batch([plain, resumed], [pcm[20_000:]] * 2)
    assert one.parts == two.parts
    assert ended.parts[-1][0] is Modality.TEXT  # it had been closed


def test_frames_of_one_utterance_are_bounded(model: StreamModel) -> None:
    """The newest beyond the limit are dropped."""
    listening = ModelRecognizer(model, TailPolicy.CLOSED).open(stream_of(model))
    assert isinstance(listening, LiveFrameEncoder)
    for i in range(MAX_FRAMES + 10):
        listening.add_frame(picture(1), i / 2)
    assert len({token for _, ids in listening.parts() for token in ids}) > 2
    assert listening.frames == MAX_FRAMES
    assert len(listening.token_ids()) == MAX_FRAMES // 2 * 4


def test_a_picture_is_seen_between_delimiters(model: StreamModel) -> None:
    """The same picture has the same tokens and key, another one others."""
    eyes, stream = ModelImageEncoder(model), stream_of(model)
    first, again, other = (eyes.encode_image(picture(i), stream) for i in (1, 1, 2))
    assert first.ids[0] == VISION_BOS
    assert first.ids[-1] == VISION_EOS
    assert len(first.ids) == 2 + 4
    assert (first.ids, first.key) == (again.ids, again.key)
    assert first.key != other.key


def test_a_model_without_senses_says_so(tmp_path: Path) -> None:
    """Text models refuse sound and pictures by name."""
    text = load(twins.save(twins.qwen2(), tmp_path), Loading(torch.float32))
    stream = stream_of(text)
    with pytest.raises(UnsupportedInput, match="qwen2 takes no pictures"):
        ModelImageEncoder(text).encode_image(picture(1), stream)
    listening = ModelRecognizer(text, TailPolicy.CLOSED).open(stream)
    with pytest.raises(UnsupportedInput, match="qwen2 takes no sound"):
        listening.feed(torch.zeros(100))
