"""A whole engine with real weights: the `tiny` model hears, sees and answers."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
import torch

from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.engine import Engine
from headstart.engine.errors import EngineError
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.assemble import (
    LabelledImageEncoder,
    ModelPaths,
    assemble,
)
from headstart.engine.process.cached_labeller import LABELS_BYTES, CachedLabeller
from headstart.engine.vision import Connector, FrameLabeller, FrameLabels
from headstart.engine.vision.encoder_cache import EncoderCache

pytestmark = pytest.mark.weights

CLIPS = Path(__file__).resolve().parents[3] / "headstart" / "clips"
PHOTOS = Path(__file__).resolve().parents[2] / "data" / "photos"
GREEDY = api.Sampling(max_tokens=24)


class Whole:
    """The engine and its events."""

    def __init__(self, paths: ModelPaths) -> None:
        self.events: list[api.Event] = []
        config = EngineConfig(model="tiny", kv_pool_bytes=1 << 28)
        made: tuple[Engine, api.ModelInfo] = assemble(
            paths, config, self.events.append, lambda *_: None
        )
        self.engine, self.info = made

    def run(self, *commands: api.Command) -> None:
        for command in commands:
            self.engine.receive(command)
        while self.engine.step():
            pass
        self.engine.check_accounting()

    def say(self, session: str, pcm: bytes, chunk_bytes: int = 16_000) -> None:
        """A whole utterance in chunks, then its hush and its end."""
        ref = api.TurnRef(1)
        self.run(api.BeginSpeech(session, ref, "u", 0))
        for start in range(0, len(pcm), chunk_bytes):
            chunk = pcm[start : start + chunk_bytes]
            self.run(api.Audio(session, ref, start // 2, chunk, time.monotonic_ns()))

    def finished(self) -> api.Finished:
        return [e for e in self.events if isinstance(e, api.Finished)][-1]


@pytest.fixture(scope="module")
def paths(
    smollm2_path: Path, whisper_dir: Path, efficientnet_path: Path, imagenet_names_path: Path
) -> ModelPaths:
    return ModelPaths("tiny", smollm2_path, whisper_dir, efficientnet_path, imagenet_names_path)


@pytest.fixture(scope="module")
def whole(paths: ModelPaths) -> Whole:
    return Whole(paths)


@pytest.fixture(scope="module")
def question() -> bytes:
    """ "What is the capital of France?" as s16 mono 16 kHz."""
    with av.open(str(CLIPS / "capital.wav")) as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
        frames += resampler.resample(None)
    return b"".join(frame.to_ndarray().tobytes() for frame in frames)


def picture(name: str) -> api.Image:
    with av.open(str(PHOTOS / name)) as container:
        rgb = next(container.decode(video=0)).to_ndarray(format="rgb24")
    return api.Image(rgb.shape[1], rgb.shape[0], rgb.tobytes())


def test_a_spoken_question_is_recognised_and_answered(whole: Whole, question: bytes) -> None:
    """The words are right, the answer is on topic, and it stood ready at the endpoint."""
    ref = api.TurnRef(1)
    whole.run(api.Open("spoken", "You are a helpful assistant."))
    whole.say("spoken", question)
    whole.run(api.Hush("spoken", ref, 0, GREEDY))
    whole.run(api.EndSpeech("spoken", ref, 0), api.Respond("spoken", 1, "a", GREEDY))
    heard = [e for e in whole.events if isinstance(e, api.Heard)][-1]
    assert heard.text == "What is the capital of France?"
    finished = whole.finished()
    assert "Paris" in finished.text
    assert finished.usage.cached == finished.usage.input
    assert finished.usage.speculated > 0
    assert finished.kv.bytes == finished.kv.tokens * whole.info.kv_bytes_per_token


@pytest.mark.parametrize("chunk_bytes", [6_400, 32_000])
def test_chunks_and_speculation_change_no_token(
    whole: Whole, question: bytes, chunk_bytes: int
) -> None:
    """Whatever the chunks, with or without speculation: the answer to the same words is the same,
    token for token, and equals that of the words given as text."""
    name = f"chunks-{chunk_bytes}"
    ref = api.TurnRef(1)
    whole.run(api.Open(name, "You are a helpful assistant."))
    whole.say(name, question, chunk_bytes)
    whole.run(api.EndSpeech(name, ref, 0), api.Respond(name, 1, "a", GREEDY))
    spoken = whole.finished()
    text = [e for e in whole.events if isinstance(e, api.Heard)][-1].text
    whole.run(api.Open("text", "You are a helpful assistant."))
    item = api.Item("u", api.Role.USER, (api.Text(text),))
    whole.run(api.AddItem("text", item), api.Respond("text", 1, "a", GREEDY))
    assert whole.finished().text == spoken.text


def test_what_do_you_see(whole: Whole) -> None:
    """A pushed frame becomes visual tokens, and the answer mentions what it shows."""
    whole.run(api.Open("seeing", "Describe what the camera shows in one short sentence."))
    whole.run(api.Frame("seeing", 0, picture("chelsea.jpg")))
    item = api.Item("u", api.Role.USER, (api.Text("What do you see?"),))
    whole.run(api.AddItem("seeing", item), api.Respond("seeing", 1, "a", GREEDY))
    finished = whole.finished()
    assert "cat" in finished.text.lower()
    assert 4 <= finished.usage.input_image <= 32


def test_a_repeated_picture_is_encoded_once(
    paths: ModelPaths, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels are kept by content, and there is a bound to their bytes."""
    eyes = FrameLabeller.load(paths.eyes, paths.class_names)
    looks: list[int] = []
    label = eyes.label

    def counted(pixels: npt.NDArray[np.uint8]) -> FrameLabels:
        looks.append(pixels.shape[0])
        return label(pixels)

    monkeypatch.setattr(eyes, "label", counted)
    tokenizer = whole.engine.parts.services.tokenizer
    connector = Connector(tokenizer.encode, lambda ids: torch.ones(len(ids), 8), 8)
    cache = EncoderCache[FrameLabels](2 * LABELS_BYTES, 60, time.monotonic_ns)
    loaded = LabelledImageEncoder(CachedLabeller(eyes, cache), connector)
    stream: Stream = whole.engine.parts.new_stream("eyes")
    for height in (10, 10, 10, 20, 30, 10):  # at 30 the first one has to go
        loaded.encode_image(api.Image(10, height, bytes(30 * height)), stream)
    stream.close()
    assert looks == [10, 20, 30, 10]
    other: Stream = whole.engine.parts.new_stream("another's")
    other.share_within(b"another")
    for _ in range(2):  # it does not learn that the picture was seen, and then it is seen
        loaded.encode_image(api.Image(10, 10, bytes(300)), other)
    other.close()
    assert looks == [10, 20, 30, 10, 10]


def test_the_same_picture_in_a_second_session_costs_no_encoder_and_no_decoder_work(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instructions and picture come from the cache; only what lies behind them is computed, and the
    answer is the same."""
    instructions = "You look at pictures. Describe in one short sentence what the camera shows."
    computed = []
    for name in ("first", "second"):
        whole.run(api.Open(name, instructions))
        item = api.Item("p", api.Role.USER, (picture("chelsea.jpg"), api.Text("What is it?")))
        whole.run(api.AddItem(name, item), api.Respond(name, 1, "a", GREEDY))
        stream = whole.engine.sessions[name].stream
        computed.append(stream.prefilled_tokens - whole.finished().usage.output)
        monkeypatch.setattr(FrameLabeller, "label", None)  # the second must not look again
    texts = [e.text for e in whole.events if isinstance(e, api.Finished)][-2:]
    assert texts[0] == texts[1]
    assert computed[1] <= 16 + 8  # the open block, and the turn's suffix
    assert whole.engine.kv_accounting().shared_blocks >= 2


def test_ears_auto_starts_and_says_what_it_chose(paths: ModelPaths) -> None:
    """The real weights are timed; how quick they are here decides which of two is taken, and the
    reason has the figure. The engine then hears."""
    whole = Whole(replace(paths, better_ears=(paths.ears,)))
    assert whole.info.ears == "whisper-tiny.en"
    assert re.match(r"whisper-tiny\.en takes \d+ ms a chunk", whole.info.ears_reason)
    assert "2 at once, 500 ms chunks" in whole.info.ears_reason
    recognizer = whole.engine.parts.services.recognizer
    assert (
        recognizer.finish(recognizer.open(whole.engine.parts.new_stream("quiet"))).committed == ""
    )


def test_what_loading_took_is_told_by_part(whole: Whole) -> None:
    """Every part has a stage, whichever thread loaded it."""
    stages_s = whole.info.load_stages_s
    assert set(stages_s) == {
        "recogniser",
        "eyes",
        "decoder header",
        "tokenizer",
        "decoder weights",
        "warm-up",
    }
    assert all(0 <= took_s <= whole.info.load_s for took_s in stages_s.values())


@pytest.mark.parametrize("part", ["llm", "ears", "eyes", "reading"])
def test_the_part_that_cannot_be_loaded_is_named(
    paths: ModelPaths, tmp_path: Path, part: str
) -> None:
    """Each is loaded in a thread; its error is the start's, and no thread is left behind."""
    broken = tmp_path / f"broken-{part}"
    if part in ("ears", "reading"):
        broken.mkdir()
    else:
        broken.write_bytes(b"nonsense" * 100)
    changed: dict[str, Any] = {part: broken}
    with pytest.raises(EngineError, match=f"broken-{part}|PP-OCR"):
        Whole(replace(paths, **changed))
    assert not [each.name for each in threading.enumerate() if each.name.startswith("load")]


def test_a_models_weight_is_that_of_every_part(tmp_path: Path) -> None:
    """Files and folders, the LoRA's too; a part that is missing weighs nothing."""
    (tmp_path / "lora").mkdir()
    sizes = {"llm": 1000, "ears": 200, "eyes": 30, "names": 7, "lora/a": 4, "lora/b": 1}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    at = tmp_path.joinpath
    paths = ModelPaths("m", at("llm"), at("ears"), at("eyes"), at("names"), None, at("lora"))
    assert paths.weights_bytes == 1235
