"""A Whisper's words beside a model's own audio encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.engine import api
from headstart.engine.asr.errors import NoSuchRecognizer
from headstart.engine.interfaces import LiveFrameEncoder
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.captions import CaptionedRecognizer, find_transcriber
from headstart.engine.models.perception.interface import StreamModel, TailPolicy
from headstart.engine.models.perception.senses import ModelRecognizer
from tests.engine.fakes import FakeRecognizer
from tests.engine.models.omni_twin import tiny_twin, write_directory


class Progress:
    def note(self, text: str) -> None:
        """Nobody reads it."""

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        raise AssertionError("nothing is fetched here")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StreamModel:
    folder = write_directory(tiny_twin(), tmp_path_factory.mktemp("omni"))
    return load(folder, Loading(torch.float32))


def test_words_stand_beside_what_the_model_reads(model: StreamModel) -> None:
    """The tokens are those of the model's audio encoder alone; the words and their work are the
    Whisper's, at the end of the utterance too. The model still sees while it hears."""
    stream = Stream("s", BlockPool(100, 16), 200, 1_000, model.new_positions())
    alone = ModelRecognizer(model, TailPolicy.PROVISIONAL)
    both = CaptionedRecognizer(alone, FakeRecognizer("turn left now"))
    plain, captioned = alone.open(stream), both.open(stream)
    assert isinstance(captioned, LiveFrameEncoder)
    pcm = np.random.default_rng(0).standard_normal(24_000).astype(np.float32)
    view = api.Image(56, 56, bytes(3 * 56 * 56))
    for utterance in (plain, captioned):
        utterance.add_frame(view, 0.0)
    (one,), (two,) = alone.recognize_batch([plain], [pcm]), both.recognize_batch([captioned], [pcm])
    assert (one.parts, one.sure_parts) == (two.parts, two.sure_parts)
    assert not one.transcribed
    assert two.transcribed
    assert "turn" in two.committed + two.tentative
    assert set(two.stages_ms) >= {"mel", "encode"}
    assert captioned.token_ids() == plain.token_ids()
    first, last = alone.finish(plain), both.finish(captioned)
    assert first.parts == last.parts
    assert last.committed.startswith(two.committed)


def test_a_fetched_transcriber_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Auto takes what is fetched, and fetches nothing; ears name another; "off" is off."""
    monkeypatch.setenv("HEADSTART_HOME", str(tmp_path))
    assert find_transcriber("auto", None, "en", Progress()) == ()
    assert find_transcriber("auto", str(tmp_path), "en", Progress()) == (tmp_path.resolve(),)
    assert find_transcriber("off", str(tmp_path), "en", Progress()) == ()
    with pytest.raises(NoSuchRecognizer):
        find_transcriber("on", "no-such-whisper", "en", Progress())
