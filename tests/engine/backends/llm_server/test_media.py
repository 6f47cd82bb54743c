"""Pictures and sounds as parts of chat messages: what is found out, what is sent, and when."""

from __future__ import annotations

import base64
import gc
import io
import json
import wave
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import av
import numpy as np
import pytest

from headstart.engine import api
from headstart.engine.backends.llm_server import media as module
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.capabilities import Capabilities, PartCosts, PromptForm
from headstart.engine.backends.llm_server.errors import LlmCannot
from headstart.engine.backends.llm_server.http_client import HttpClient
from headstart.engine.backends.llm_server.media import (
    UNIT_SAMPLES,
    MediaParts,
    PartImageEncoder,
    PartRecognizer,
)
from headstart.engine.backends.llm_server.messages import (
    USER,
    MessageMarks,
    TextTokens,
    messages_of,
)
from headstart.engine.backends.llm_server.probe import find_out
from headstart.engine.backends.llm_server.servers import Known, Server, Servers, Vocabulary
from headstart.engine.engine import Engine, EngineParts
from headstart.engine.interfaces import ModelServices
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.captions import CaptionedRecognizer
from headstart.engine.process.llm_server import ServersSampler
from tests.engine.backends.llm_server.bench import PATIENT, AwaitingBench, scripted
from tests.engine.backends.llm_server.pool import Bytes
from tests.engine.backends.llm_server.scripted_server import CHAT, VLLM, ScriptedServer, Seen
from tests.engine.commands import end, hush, respond

BOTH = ("image_url", "input_audio")
PICTURE_TOKENS, SOUND_TOKENS = 12, 50
VOCABULARY = 1 << 48
NAMES = {"system": 256, "user": 257, "assistant": 259}
COSTS = PartCosts(float(PICTURE_TOKENS), 0.0, float(SOUND_TOKENS))


def render(messages: Sequence[dict[str, Any]]) -> list[int]:
    """A chat template in bytes. The first token of a part is a hash of it."""
    tokens: list[int] = []
    for message in messages:
        tokens.append(NAMES[message["role"]])
        content = message["content"]
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in content:
            if part["type"] == "text":
                tokens += part["text"].encode()
            else:
                count = PICTURE_TOKENS if part["type"] == "image_url" else SOUND_TOKENS
                bare = {key: value for key, value in part.items() if key != "uuid"}
                tokens += [1000 + zlib.crc32(json.dumps(bare).encode())] + [999] * (count - 1)
    return [*tokens, 258, 259]


def sensing(senses: Sequence[str] = BOTH, **settings: Any) -> ScriptedServer:
    return scripted(lambda _: "I see.", render=render, senses=senses, **settings)


def picture(shade: int, side: int = 64) -> api.Image:
    return api.Image(side, side, bytes([shade]) * (3 * side * side))


def stream(name: str = "s", domain: bytes = b"") -> Stream:
    made = Stream(name, BlockPool(64, 16), VOCABULARY, 4096, movable=False)
    made.share_within(domain)
    return made


# --- what is found out ---------------------------------------------------------------------------


@pytest.mark.parametrize("senses", [BOTH, BOTH[:1], BOTH[1:]], ids=["both", "eyes", "ears"])
def test_a_server_is_asked_what_it_senses(senses: Sequence[str]) -> None:
    """A small picture and two seconds of silence, and what they cost in tokens."""
    with sensing(senses) as server:
        found = find_out(server.url, None, Bytes(), senses="auto")
    assert (found.sees, found.hears) == ("image_url" in senses, "input_audio" in senses)
    assert found.prompt is PromptForm.MESSAGES
    assert found.warms_up
    assert found.part_uuids
    assert found.part_costs.sound(1) == (SOUND_TOKENS if found.hears else 1)
    assert found.part_costs.picture(448 * 448) == (PICTURE_TOKENS if found.sees else 1)
    told = found.facts()
    assert told["pictures"] == ("to its model" if found.sees else "as notes, in words")
    assert told["speech"].startswith("to its model" if found.hears else "as words")


def test_a_server_without_senses_is_used_as_ever() -> None:
    """It refuses parts: token ids, and words of ours."""
    with scripted(render=render) as server:
        found = find_out(server.url, None, Bytes(), senses="auto")
        assert (found.prompt, found.sees, found.hears) == (PromptForm.IDS, False, False)
        with pytest.raises(LlmCannot, match="senses = native"):
            find_out(server.url, None, Bytes(), senses="native")


def test_a_server_that_leaves_parts_out_does_not_see() -> None:
    """It takes them without an error, and reads not a token more."""

    def blind(messages: Sequence[dict[str, Any]]) -> list[int]:
        bare = [
            {**m, "content": [p for p in m["content"] if p["type"] == "text"]}
            if isinstance(m["content"], list)
            else m
            for m in messages
        ]
        return render(bare)

    with scripted(render=blind, senses=BOTH) as server:
        assert not find_out(server.url, None, Bytes(), senses="auto").sees


def test_words_is_words() -> None:
    """Whatever its model could take; nothing of the kind is even asked."""
    with sensing() as server:
        found = find_out(server.url, None, Bytes(), senses="words")
        assert not any("chat" in seen.path for seen in server.requests)
    assert (found.prompt, found.sees, found.hears) == (PromptForm.IDS, False, False)


def test_names_of_parts_are_for_servers_with_extensions() -> None:
    """A plain server gets none."""
    with sensing(dialect=CHAT) as server:
        found = find_out(server.url, None, None, senses="auto")
    assert found.sees
    assert not found.part_uuids


# --- parts ---------------------------------------------------------------------------------------


def test_equal_content_is_the_same_part() -> None:
    """One token, the same bytes and the same name, in any stream of the share domain."""
    media = MediaParts(COSTS)
    one, other, private = stream("a"), stream("b"), stream("c", b"secret")
    first = media.picture(picture(7), one)
    assert media.picture(picture(7), other) == first
    assert media.picture(picture(8), one) != first
    hidden = media.picture(picture(7), private)
    assert hidden != first
    names = [media.json(ids[0], named=True)["uuid"] for ids in (first, hidden)]  # type: ignore[index]
    assert names[0] != names[1]
    assert media.json(first[0]) == media.json(hidden[0])
    assert len(first) == PICTURE_TOKENS
    assert media.json(first[1]) is None


def test_a_picture_and_a_sound_can_be_decoded() -> None:
    """As a JPEG of that size and shade; as 16-bit sound at 16 kHz, sample for sample."""
    media, own = MediaParts(COSTS), stream()
    (look, *_), (hear, *_) = (
        media.picture(api.Image(48, 32, bytes([200, 30, 60]) * (48 * 32)), own),
        media.sound(np.linspace(-0.5, 0.5, UNIT_SAMPLES, dtype=np.float32), own),
    )
    part = media.json(look)
    assert part is not None
    head, _, content = part["image_url"]["url"].partition(",")
    assert head == "data:image/jpeg;base64"
    with av.open(io.BytesIO(base64.b64decode(content)), "r") as file:
        (frame,) = file.decode(video=0)
    pixels = frame.to_ndarray(format="rgb24")
    assert pixels.shape == (32, 48, 3)
    assert np.abs(pixels.astype(int) - [200, 30, 60]).max() < 8
    part = media.json(hear)
    assert part is not None
    with wave.open(io.BytesIO(base64.b64decode(part["input_audio"]["data"]))) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (16_000, 1)
        samples = np.frombuffer(sound.readframes(1 << 20), "<i2")
    assert len(samples) == UNIT_SAMPLES
    assert samples[-1] == int(0.5 * 32767)


def test_messages_with_parts_are_lists_and_others_stay_text() -> None:
    """In order; a part that was dropped is left out."""
    media, own, text = MediaParts(COSTS), stream(), TextTokens()
    ids = media.picture(picture(1), own)
    tokens = [0, *text.encode("Be brief."), 3, USER, *text.encode("Look: "), *ids]
    tokens += text.encode(" nice?")
    system, user = messages_of(tokens, media.json)
    assert system == {"role": "system", "content": "Be brief."}
    kinds = [part["type"] for part in user["content"]]
    assert kinds == ["text", "image_url", "text"]
    assert [p["text"] for p in user["content"] if "text" in p] == ["Look: ", " nice?"]
    assert [p["type"] for p in messages_of(tokens, lambda _: None)[1]["content"]] == ["text"] * 2


def test_parts_go_with_their_streams_and_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a closed stream are dropped; of a long one, the oldest that it no longer reads."""
    media, own = MediaParts(COSTS), stream()
    media.picture(picture(1), own)
    own.close()
    later = stream("t")
    kept = media.picture(picture(2), later)
    assert len(media) == 1
    later.append(kept)
    monkeypatch.setattr(module, "MAX_SESSION_BYTES", 4 * 1024)
    for shade in range(3, 256):
        media.picture(picture(shade), later)
    assert media.json(kept[0]) is not None, "it is still read"
    assert len(media) <= module.MAX_FRAMES + 1


def test_parts_of_a_stream_that_is_gone_are_let_go_of() -> None:
    """Also if nothing else refers to it by the time that another one has a part."""
    media = MediaParts(COSTS)
    for shade in range(4):
        gone = stream(f"s{shade}")
        media.picture(picture(shade), gone)
        gone.close()
        del gone
        gc.collect()
    media.picture(picture(9), stream("last"))
    assert len(media) == 1


def test_a_part_that_comes_again_is_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept as long as others that came so late, though its stream does not read it yet."""
    monkeypatch.setattr(module, "MAX_SESSION_BYTES", 1)
    monkeypatch.setattr(module, "MAX_FRAMES", 2)
    media, own = MediaParts(COSTS), stream()
    first = media.picture(picture(1), own)
    media.picture(picture(2), own)
    assert media.picture(picture(1), own) == first
    media.picture(picture(3), own)
    assert media.json(first[0]) is not None
    assert len(media) == 2


# --- a session -----------------------------------------------------------------------------------


class SensingBench(AwaitingBench):
    """An engine whose server's model sees and hears; the words are for people."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server.__enter__()
        super().__init__(script="one two three four five six seven eight nine ten")
        media, tokenizer, chat = MediaParts(COSTS), TextTokens(), MessageMarks()
        found = Capabilities(
            server.url, "scripted", prompt=PromptForm.MESSAGES, sees=True, hears=True
        )
        vocabulary = Vocabulary(
            lambda tokens: messages_of(tokens, lambda token: media.json(token, named=True)),
            tokenizer.encode,
            chat.stop_ids,
        )
        client = HttpClient(timeouts=PATIENT, clock=self._clock)
        servers = Servers(client, [Server(server.url, Known(found, vocabulary))])
        self.backend = LlmServerBackend(client, servers, self._clock)
        services = ModelServices(
            chat=chat,
            tokenizer=tokenizer,
            recognizer=CaptionedRecognizer(PartRecognizer(media, sees=True), self.recognizer),
            image_encoder=PartImageEncoder(media),
            new_sampler=ServersSampler,
            stop_ids=chat.stop_ids,
            kv_bytes_per_token=0,
        )

        def new_stream(name: str) -> Stream:
            return Stream(name, self.pool, VOCABULARY, 4096, ahead=1, movable=False)

        parts = EngineParts(
            services, self.pool, self.backend, self.admission, new_stream, self._clock
        )
        self.engine = Engine(parts, self.events.append)

    def close(self) -> None:
        self.engine.close()
        self.server.__exit__()


@pytest.fixture
def bench() -> Iterator[SensingBench]:
    made = SensingBench(sensing(dialect=VLLM))
    yield made
    made.close()


def parts_in(seen: Seen) -> list[dict[str, Any]]:
    last = seen.body["messages"][-1]["content"]
    return last if isinstance(last, list) else []


def kinds_in(seen: Seen) -> list[str]:
    return [part["type"] for part in parts_in(seen)]


def noise(seconds: float, seed: int) -> bytes:
    samples = np.random.default_rng(seed).integers(-9000, 9000, int(seconds * 16_000))
    return samples.astype("<i2").tobytes()


def test_sound_and_pictures_are_read_while_the_person_speaks(bench: SensingBench) -> None:
    """Each closed part of two seconds is sent ahead, with the same bytes ever after; at the hush
    the rest comes, which speech that goes on replaces; the transcript is for people."""
    bench.tell(api.Open("s", "Hi"), api.BeginSpeech("s", api.TurnRef(1), "u1", 0))
    bench.run()

    def hear(at: float, seconds: float, revision: int = 0) -> None:
        pcm, ref = noise(seconds, int(at * 10)), api.TurnRef(1, revision)
        bench.tell(api.Audio("s", ref, int(at * 16_000), pcm, bench.now_ns))
        bench.run()

    def newest() -> Seen:
        return bench.server.of("warm-up")[-1]

    hear(0.0, 1.0)
    assert all("input_audio" not in kinds_in(seen) for seen in bench.server.of("warm-up"))
    hear(1.0, 1.5)
    assert kinds_in(newest()) == ["input_audio"]
    bench.tell(api.Frame("s", 0, picture(9)))
    bench.run()
    hear(2.5, 2.0)
    assert kinds_in(newest()) == ["input_audio", "image_url", "input_audio"]
    ahead = parts_in(newest())
    bench.tell(hush())
    bench.run()
    (asked,) = bench.server.of("answer")
    assert parts_in(asked)[:3] == ahead
    assert kinds_in(asked)[3:] == ["input_audio"]
    assert asked.cached >= 2 * SOUND_TOKENS + PICTURE_TOKENS
    bench.tell(api.Resume("s", api.TurnRef(1, 1)))
    hear(4.5, 2.0, revision=1)
    assert parts_in(newest())[:3] == ahead
    assert kinds_in(newest())[3:] == ["input_audio"]
    bench.tell(end(), respond())
    bench.run()
    assert bench.text() == "I see."
    (heard,) = [event for event in bench.events if isinstance(event, api.Heard)]
    assert heard.transcribed
    assert heard.text.startswith("one two three")
    assert bench.finished().usage.input_audio >= 3 * SOUND_TOKENS
    assert bench.finished().usage.input_image == PICTURE_TOKENS
    whole = [json.dumps(p) for seen in bench.server.requests for p in parts_in(seen)]
    named = {p["uuid"] for seen in bench.server.requests for p in parts_in(seen) if "uuid" in p}
    sounds_and_pictures = {p for p in whole if "uuid" in p}
    assert len(sounds_and_pictures) == len(named) == 6, "one spelling of each part"


def test_a_sent_picture_is_a_part_of_its_message(bench: SensingBench) -> None:
    """With its words, in their order, and before anybody asks for an answer."""
    item = api.Item("u", api.Role.USER, (api.Text("What is this?"), picture(5)))
    bench.tell(api.Open("s", "Hi"), api.AddItem("s", item))
    bench.run()
    assert kinds_in(bench.server.of("warm-up")[-1]) == ["text", "image_url"]
    bench.tell(respond())
    bench.run()
    (asked,) = bench.server.of("answer")
    assert asked.cached >= len(asked.prompt) - 16 - 2
    assert bench.finished().usage.input_image == PICTURE_TOKENS
