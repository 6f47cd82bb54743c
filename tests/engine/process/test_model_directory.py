"""A model directory served: sound and pictures as commands, answers as events."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from headstart.engine import api
from headstart.engine.chat.render import Modality
from headstart.engine.config import EngineConfig
from headstart.engine.device.choice import Found
from headstart.engine.engine import Engine
from headstart.engine.errors import BadSettings, NoDevice
from headstart.engine.models.perception.interface import VideoFrame
from headstart.engine.models.perception.still_details import StillDetails
from headstart.engine.models.perception.still_regions import StillRegions
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from headstart.engine.models.source import source_of
from headstart.engine.process.model_directory import assemble_source
from tests.engine.models.loading import loaded
from tests.engine.models.omni_twin import offline
from tests.engine.models.playing import Sounded
from tests.engine.models.served import write_served, write_tiled

SAMPLES, CHUNK = 72_000, 8_000
GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=6)


class Served(NamedTuple):
    theirs: Any
    folder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("served") / "omni"
    return Served(write_served(folder), folder)


@pytest.fixture(params=["auto", "device"])
def backend(request: pytest.FixtureRequest) -> str:
    """The CPU's decoder, and the one for GPUs on CPU tensors."""
    return str(request.param)


def infos(served: Served, **settings: Any) -> api.ModelInfo:
    """What the engine of `served` tells of itself."""
    config = EngineConfig(
        model=str(served.folder), threads=1, weights="fp32", kv_pool_bytes=1 << 22, **settings
    )
    source = source_of(config)
    assert source is not None
    engine, info = assemble_source(source, config, lambda event: None, lambda *told: None)
    engine.close()
    return info


def start(
    served: Served, tail: str, weights: str = "fp32", **settings: Any
) -> tuple[Engine, list[api.Event]]:
    events: list[api.Event] = []
    config = EngineConfig(
        model=str(served.folder),
        threads=1,
        weights=weights,
        tail=tail,
        **{"kv_pool_bytes": 1 << 22, **settings},
    )
    source = source_of(config)
    assert source is not None
    engine, info = assemble_source(source, config, events.append, lambda *told: None)
    assert (info.name, info.context_tokens) == ("omni", 4096)
    events.clear()  # those of warming up
    engine.receive(api.Open("s", "Be brief."))
    return engine, events


def run(engine: Engine) -> None:
    while engine.step():
        pass
    engine.check_accounting()


def pcm() -> bytes:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(SAMPLES) * 3_000).astype("<i2").tobytes()


def picture(seed: int) -> api.Image:
    rgb = np.random.default_rng(seed).integers(0, 256, (56, 84, 3), dtype=np.uint8)
    return api.Image(84, 56, rgb.tobytes())


def speak(engine: Engine, item_id: str, *, seen: bool) -> None:
    """4.5 s of sound in half-second chunks; with `seen`, a frame every half second."""
    ref, sound = api.TurnRef(1), pcm()
    engine.receive(api.BeginSpeech("s", ref, item_id, 0))
    for at in range(0, SAMPLES, CHUNK):
        if seen:
            engine.receive(api.Frame("s", at, picture(at)))
        engine.receive(api.Audio("s", ref, at, sound[2 * at : 2 * (at + CHUNK)], 0))
        run(engine)
    engine.receive(api.Hush("s", ref, SAMPLES, GREEDY))
    run(engine)
    engine.receive(api.EndSpeech("s", ref, SAMPLES))
    engine.receive(api.Respond("s", generation=1, item_id="a", sampling=GREEDY))
    run(engine)


@pytest.mark.parametrize("tail", ["closed", "provisional"])
@pytest.mark.parametrize("seen", [True, False])
def test_a_spoken_turn_is_answered_as_offline(
    served: Served, backend: str, tail: str, seen: bool
) -> None:
    """Sound, with or without live frames beside it: greedy, the answer is what one `transformers`
    forward over the finished conversation says, token for token."""
    engine, events = start(served, tail, backend=backend)
    speak(engine, "u1", seen=seen)
    assert not [event for event in events if isinstance(event, api.Failed)]
    (finished,) = [event for event in events if isinstance(event, api.Finished)]
    assert finished.reason in (api.FinishReason.STOP, api.FinishReason.LENGTH)
    assert finished.usage.input_audio == 112  # 4.5 s, and what the last window rounds off
    assert finished.usage.input_image == (30 if seen else 0)  # five units of 2 x 3
    stream = engine.sessions["s"].stream
    answer = _answer(engine)
    assert answer
    sound = torch.from_numpy(np.frombuffer(pcm(), "<i2").astype(np.float32) / 32768)
    frames = [
        VideoFrame(np.frombuffer(picture(at).rgb, np.uint8).reshape(56, 84, 3), at / 16_000)
        for at in range(0, SAMPLES if seen else 0, CHUNK)
    ]
    clip = Sounded(sound, frames, 1.0)
    ours = loaded(Qwen25Omni, served.folder, torch.float32)
    logits = offline(served.theirs, ours, stream, [clip])
    begin = _begin(stream.tokens, answer)
    chosen = logits[begin - 1 : begin - 1 + len(answer)].argmax(dim=-1)
    assert chosen.tolist() == answer


def _answer(engine: Engine) -> list[int]:
    entry = engine.sessions["s"].conversation.now()[-1]
    assert entry.role is api.Role.ASSISTANT
    return [token for segment in entry.segments for token in segment.ids]


def _begin(tokens: Any, answer: list[int]) -> int:
    places = range(len(tokens) - len(answer), 0, -1)
    return next(i for i in places if list(tokens[i : i + len(answer)]) == answer)


def test_a_picture_in_a_message_is_seen_between_its_delimiters(
    served: Served, backend: str
) -> None:
    """A written message with a picture, on int8 weights: answered, its tokens counted."""
    engine, events = start(served, "closed", weights="int8", backend=backend)
    item = api.Item("u1", api.Role.USER, (picture(1), api.Text("Hi")))
    engine.receive(api.AddItem("s", item, None))
    engine.receive(api.Respond("s", generation=1, item_id="a", sampling=GREEDY))
    run(engine)
    (finished,) = [event for event in events if isinstance(event, api.Finished)]
    assert finished.reason is not api.FinishReason.FAILED
    assert finished.usage.input_image == 8  # 2 x 3 and its delimiters


def test_a_second_session_takes_over_what_it_reads_the_same(served: Served, backend: str) -> None:
    """The same instructions and picture in another session: whole blocks of K/V are taken over, and
    the answer is the same. Another picture shares only what stands before it."""
    engine, events = start(served, "closed", backend=backend)
    for name, seed in (("s", 1), ("same", 1), ("other", 2)):
        if name != "s":
            engine.receive(api.Open(name, "Be brief."))
        item = api.Item("u1", api.Role.USER, (picture(seed), api.Text("Tell me about it, please.")))
        engine.receive(api.AddItem(name, item, None))
        engine.receive(api.Respond(name, generation=1, item_id="a", sampling=GREEDY))
        run(engine)
    first, same, other = (event for event in events if isinstance(event, api.Finished))
    assert first.kv.adopted == 0
    assert same.kv.adopted > other.kv.adopted
    assert same.text == first.text


@pytest.mark.parametrize("tail", ["closed", "provisional"])
@pytest.mark.parametrize("seen", [True, False])
def test_a_turn_that_goes_on_is_answered_as_if_it_had_not_stopped(
    served: Served, backend: str, tail: str, seen: bool
) -> None:
    """A part of it was answered, and taken back; sound and live frames of the rest came by then.
    Greedy, the answer to the whole is the same token for token."""
    texts = []
    for cut in (None, SAMPLES // CHUNK // 2 * CHUNK):
        engine, events = start(served, tail, backend=backend)
        if cut is None:
            speak(engine, "u1", seen=seen)
        else:
            speak_on(engine, cut, seen=seen)
        assert not [event for event in events if isinstance(event, api.Failed)]
        last = [event for event in events if isinstance(event, api.Finished)][-1]
        soft = engine.sessions["s"].stream.soft
        texts.append((last.text, last.usage.input, len(soft) > 0))
    assert texts[0] == texts[1]


def speak_on(engine: Engine, cut: int, *, seen: bool) -> None:
    """The sound of `speak` in two utterances, the second one joined to the first after a second."""
    first, second, sound = api.TurnRef(1), api.TurnRef(2), pcm()

    def say(ref: api.TurnRef, start: int, end: int) -> None:
        for at in range(start, end, CHUNK):
            if seen:
                engine.receive(api.Frame("s", at, picture(at)))
            engine.receive(api.Audio("s", ref, at, sound[2 * at : 2 * (at + CHUNK)], 0))
            run(engine)

    engine.receive(api.BeginSpeech("s", first, "u1", 0))
    say(first, 0, cut)
    engine.receive(api.Hush("s", first, cut, GREEDY))
    run(engine)
    engine.receive(api.EndSpeech("s", first, cut, may_continue=True))
    engine.receive(api.Respond("s", generation=1, item_id="a", sampling=GREEDY))
    run(engine)
    engine.receive(api.BeginSpeech("s", second, "u2", cut, may_continue=True))
    say(second, cut, cut + 2 * CHUNK)
    engine.receive(api.ContinueSpeech("s", second, "u1", "a"))
    say(second, cut + 2 * CHUNK, SAMPLES)
    engine.receive(api.Hush("s", second, SAMPLES, GREEDY))
    run(engine)
    engine.receive(api.EndSpeech("s", second, SAMPLES))
    engine.receive(api.Respond("s", generation=2, item_id="b", sampling=GREEDY))
    run(engine)


def test_an_utterance_without_an_end_stays_within_the_table(served: Served) -> None:
    """Chunks change the open unit's embeddings for five minutes; those that nothing stands for any
    more are given up."""
    engine, events = start(served, "provisional")
    soft = engine.sessions["s"].stream.soft
    soft.limit = 600
    ref = api.TurnRef(1)
    engine.receive(api.BeginSpeech("s", ref, "u1", 0))
    rng = np.random.default_rng(0)
    for at in range(0, 20 * 16_000, 4_000):
        sound = (rng.standard_normal(4_000) * 3_000).astype("<i2").tobytes()
        engine.receive(api.Audio("s", ref, at, sound, 0))
        run(engine)
    assert not [event for event in events if isinstance(event, api.Failed)]
    assert len(soft) <= 600


LARGE = np.random.default_rng(5).integers(0, 256, (140, 140, 3), dtype=np.uint8).tobytes()


def large(max_tokens: int = 0) -> api.Image:
    """A picture of five by five tokens."""
    return api.Image(140, 140, LARGE, max_tokens)


@pytest.mark.parametrize(
    ("way", "budget", "tokens"),
    [("auto", 0, 25), ("auto", 16, 16), ("off", 16, 25), ("merge", 0, 20), ("mean", 17, 16)],
)
def test_frames_become_fewer_tokens(served: Served, way: str, budget: int, tokens: int) -> None:
    """By the setting, and when a frame's budget asks for it: outside of an utterance and in one.
    A picture in a message keeps its tokens."""
    engine, events = start(served, "closed", frame_pooling=way, frame_tokens=20)
    engine.receive(api.Frame("s", 0, large(budget)))
    said = api.Item("u1", api.Role.USER, (large(), api.Text("Hi")))
    engine.receive(api.AddItem("s", said, None))
    run(engine)
    ref = api.TurnRef(1)
    engine.receive(api.BeginSpeech("s", ref, "u2", 0))
    for _ in range(2):
        engine.receive(api.Frame("s", 0, large(budget)))
    engine.receive(api.Audio("s", ref, 0, pcm()[: 2 * CHUNK], 0))
    engine.receive(api.EndSpeech("s", ref, CHUNK))
    engine.receive(api.Respond("s", generation=1, item_id="a", sampling=GREEDY))
    run(engine)
    assert not [event for event in events if isinstance(event, api.Failed)]
    (finished,) = [event for event in events if isinstance(event, api.Finished)]
    delimiters = 2  # of a picture outside of an utterance they count as its own
    assert finished.usage.input_image == (tokens + delimiters) + (25 + delimiters) + tokens


def test_pictures_take_fewer_bytes_of_k_and_v(served: Served) -> None:
    """In int8 beside words in fp32: five or six of the picture's blocks are narrow, the turn's
    report counts their bytes, and another session takes them over and answers the same."""
    engine, events = start(served, "closed", weights="int8", kv_vision_dtype="int8", block_size=4)
    engine.receive(api.Open("same", "Be brief."))
    for name in ("s", "same"):
        item = api.Item("u1", api.Role.USER, (large(), api.Text("Hi")))
        engine.receive(api.AddItem(name, item, None))
        engine.receive(api.Respond(name, generation=1, item_id="a", sampling=GREEDY))
        run(engine)
    first, same = (event for event in events if isinstance(event, api.Finished))
    assert first.reason is not api.FinishReason.FAILED
    narrow = 1 - 5 / 16  # heads of 16 numbers: 20 bytes for 64
    saved = first.kv.tokens - first.kv.bytes / first.kv.bytes_per_token
    assert saved in (20 * narrow, 24 * narrow)
    assert same.kv.adopted > 25
    assert (same.text, same.kv.bytes) == (first.text, first.kv.bytes)


def test_the_gateway_is_told_what_a_frame_can_be_pooled_to(served: Served) -> None:
    """Under load it asks for so few tokens; not where frames are as few already, or are not pooled
    at all."""
    assert infos(served, frame_tokens=20).pooled_frame == 20
    assert infos(served, frame_tokens=20, frame_pooling="merge").pooled_frame == 0
    assert infos(served, frame_pooling="off").pooled_frame == 0


def shown(engine: Engine) -> list[int]:
    """Tokens of the pictures in the conversation, in order, without their delimiters."""
    entries = engine.sessions["s"].conversation.now()
    pictures = [s for entry in entries for s in entry.segments if s.modality is Modality.IMAGE]
    return [len(picture.ids) - 2 for picture in pictures]


def ask(engine: Engine, number: int, *parts: api.Part) -> None:
    item = api.Item(f"u{number}", api.Role.USER, parts)
    engine.receive(api.AddItem("s", item, None))
    sampling = api.Sampling(repetition_penalty=1.0, max_tokens=2)
    engine.receive(api.Respond("s", generation=number, item_id=f"a{number}", sampling=sampling))
    run(engine)


def test_a_question_raises_the_resolution(served: Served, tmp_path: Path) -> None:
    """A glimpse without words, more for a question, all for one about small print: each is encoded
    once, and shown once. A small picture is shown once, whatever is asked."""
    folder = shutil.copytree(served.folder, tmp_path / "omni")
    budget = {"min_pixels": 28 * 28, "max_pixels": 640 * 28 * 28}
    (folder / "preprocessor_config.json").write_text(json.dumps(budget))
    large_served = Served(served.theirs, folder)
    engine, events = start(large_served, "closed", still_detail="asked", kv_pool_bytes=1 << 23)
    engine.receive(api.Remember("s", api.Window(vision_tokens=3000)))
    stills = engine.parts.services.stills
    assert isinstance(stills, StillDetails)
    rng = np.random.default_rng(0)
    page = rng.integers(0, 256, (900, 1000, 3), dtype=np.uint8).tobytes()  # 32 x 36 tokens whole
    picture = api.Image(1000, 900, page)
    ask(engine, 1, picture)
    low, medium, high = 8 * 8, 15 * 17, 23 * 26  # the last is all that this model takes
    assert shown(engine) == [low]
    ask(engine, 2, api.Text("Is it nice?"))
    assert shown(engine) == [low, medium]
    ask(engine, 3, api.Text("Is it warm?"))
    ask(engine, 4, api.Text("Read the small print."))
    assert shown(engine) == [low, medium, high]
    ask(engine, 5, api.Text("What does it say?"))
    ask(engine, 6, api.Text("Why?"))
    assert shown(engine) == [low, medium, high]
    assert (stills.cache.misses, stills.cache.hits) == (3, 0)
    ask(engine, 7, picture, api.Text("What does this say?"))
    assert shown(engine) == [low, medium, high, high]
    assert (stills.cache.misses, stills.cache.hits) == (3, 1)
    ask(engine, 8, large())
    ask(engine, 9, api.Text("What does this say?"))
    assert shown(engine)[4:] == [25]
    assert not [event for event in events if isinstance(event, api.Failed)]


def test_a_question_raises_a_region(served: Served, tmp_path: Path) -> None:
    """An overview without words, then the regions that a question is about, each encoded once and
    shown once; a later question finds them in the context."""
    folder = shutil.copytree(served.folder, tmp_path / "omni")
    budget = {"min_pixels": 28 * 28, "max_pixels": 640 * 28 * 28}
    (folder / "preprocessor_config.json").write_text(json.dumps(budget))
    large_served = Served(served.theirs, folder)
    engine, events = start(large_served, "closed", still_detail="regions", kv_pool_bytes=1 << 23)
    engine.receive(api.Remember("s", api.Window(vision_tokens=3000)))
    stills = engine.parts.services.stills
    assert isinstance(stills, StillRegions)
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (896, 896, 3), dtype=np.uint8)  # two by two regions
    picture = api.Image(896, 896, rgb.tobytes())
    ask(engine, 1, picture)
    overview, region = 8 * 8, 18 * 18  # 504 x 504 pixels of each
    assert shown(engine) == [overview]
    ask(engine, 2, api.Text("What is in the upper left corner?"))
    assert shown(engine) == [overview, region]
    ask(engine, 3, api.Text("And what is on the left?"))
    assert shown(engine) == [overview, region, region]
    ask(engine, 4, api.Text("What is at the left edge, again?"))
    assert shown(engine) == [overview, region, region]
    assert (stills.patches.misses, stills.patches.hits) == (2, 0)
    ask(engine, 5, picture, api.Text("What is on the left?"))
    assert (stills.patches.misses, stills.patches.hits) == (2, 2)
    assert shown(engine)[3:] == [overview + 2 * (2 + region)]  # as one, delimiters within
    assert not [event for event in events if isinstance(event, api.Failed)]
    spans = [span.stage for event in events if isinstance(event, api.Delta) for span in event.spans]
    assert {"encode", "read"} <= set(spans)
    assert infos(large_served, still_detail="regions").still.pixels == 16 * 256 * 28 * 28


@pytest.mark.parametrize("detail", ["asked", "regions"])
def test_tiles_have_one_resolution(tmp_path: Path, detail: str) -> None:
    """The setting is refused by name."""
    write_tiled(tmp_path, 70)
    config = EngineConfig(model=str(tmp_path), kv_pool_bytes=1 << 22, still_detail=detail)
    source = source_of(config)
    assert source is not None
    with pytest.raises(BadSettings, match="llava_onevision takes stills by rules of its own"):
        assemble_source(source, config, lambda event: None, lambda *told: None)


def test_a_frames_budget_out_of_range_is_named(served: Served) -> None:
    """The error says what is allowed; the session goes on."""
    engine, events = start(served, "closed")
    for budget in (15, 4097, -1):
        engine.receive(api.Frame("s", 0, large(budget)))
        run(engine)
    failed = [event for event in events if isinstance(event, api.Failed)]
    assert [event.code for event in failed] == ["bad_token_budget"] * 3
    assert "16 to 4096, got 15" in failed[0].message


def test_what_decodes_is_told_with_the_model(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU, and why."""
    nothing = Found("2.14", built_for_gpu=True, gpus=[], triton=True, compiler=True)
    monkeypatch.setattr(Found, "here", lambda: nothing)
    info = infos(served)
    assert (info.device, info.device_reason) == ("cpu", "the default (torch finds no GPU)")
    assert infos(served, device="cpu").device_reason == "as asked"


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_loaded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name."""
    nothing = Found("2.14", built_for_gpu=True, gpus=[], triton=True, compiler=True)
    monkeypatch.setattr(Found, "here", lambda: nothing)
    config = EngineConfig(model=str(served.folder), device="cuda:1")
    source = source_of(config)
    assert source is not None
    told: list[str] = []
    with pytest.raises(NoDevice, match="cuda:1 cannot be used: torch finds no GPU"):
        assemble_source(source, config, lambda event: None, lambda what, *_: told.append(what))
    assert told == []
