"""Sound inside clients' items."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from headstart.engine import api
from headstart.gateway.audio import g711
from headstart.gateway.session.item_audio import CLIPS_MAX, UNHEARD_MAX
from tests.gateway.session_bench import MODEL, Json, SessionBench, clip_pcm

TRANSCRIBED = {"input": {"transcription": {"model": "whisper-1"}}}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def spoken(*sounds: bytes, **fields: Any) -> Json:
    content = [{"type": "input_audio", "audio": b64(sound)} for sound in sounds]
    return {"type": "message", "role": "user", "content": content, **fields}


def sent_clips(bench: SessionBench) -> dict[str, bytes]:
    """What the engine was told of each clip, s16 at 16 kHz."""
    clips: dict[str, bytes] = {}
    for piece in bench.commands(api.Clip):
        clips[piece.clip] = clips.get(piece.clip, b"") + piece.pcm
    return clips


def heard(bench: SessionBench, text: str, *, transcribed: bool = True) -> None:
    """Play the recogniser's part for the clip that was sent last."""
    piece = bench.commands(api.Clip)[-1]
    bench.engine(
        api.ClipHeard("sess_test", piece.clip, piece.samples, text, transcribed, final=True)
    )


def test_sound_in_an_item_is_heard_and_transcribed() -> None:
    """The item is echoed at once; its sound goes to the engine before it, whole and at 16 kHz; its
    words come like those of what was said into the microphone."""
    bench = SessionBench()
    bench.update(audio=TRANSCRIBED)
    bench.clear()
    pcm = clip_pcm("capital.wav")
    bench.client("conversation.item.create", item=spoken(pcm, id="u1"))
    added = bench.last("conversation.item.added")["item"]
    assert added["content"] == [{"type": "input_audio", "transcript": None}]
    assert bench.types() == ["conversation.item.added", "conversation.item.done"]
    ((name, sound),) = sent_clips(bench).items()
    assert len(sound) == -(-len(pcm) // 2 * 2 // 3) * 2
    pieces = bench.commands(api.Clip)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert max(piece.samples for piece in pieces) <= 2 * api.SAMPLE_RATE_HZ + 16
    add = bench.told[-1]
    assert isinstance(add, api.AddItem)
    assert add.item == api.Item("u1", api.Role.USER, (api.Sound(name),))
    heard(bench, "the capital")
    assert bench.types()[2:] == [
        f"conversation.item.input_audio_transcription.{kind}" for kind in ("delta", "completed")
    ]
    completed = bench.sent[-1]
    assert (completed["item_id"], completed["transcript"]) == ("u1", "the capital")
    assert completed["usage"] == {"type": "duration", "seconds": len(pcm) / 48_000}
    bench.client("conversation.item.retrieve", item_id="u1")
    item = bench.last("conversation.item.retrieved")["item"]
    assert item["content"][0]["transcript"] == "the capital"


def test_no_turn_begins_and_nothing_is_answered() -> None:
    """An item is an item: only `response.create` behind it asks."""
    bench = SessionBench()
    bench.client("conversation.item.create", item=spoken(clip_pcm("capital.wav")))
    assert bench.commands(api.BeginSpeech) == bench.commands(api.Respond) == []
    assert not bench.of("input_audio_buffer.speech_started")
    bench.client("response.create")
    order = [type(c) for c in bench.told if isinstance(c, api.Clip | api.AddItem | api.Respond)]
    assert order[-2:] == [api.AddItem, api.Respond]


def test_sound_stands_among_text() -> None:
    """In the order of the content, and its words come under its own content index; a restarted
    engine reads them."""
    bench = SessionBench()
    bench.update(audio=TRANSCRIBED)
    item = spoken(bytes(4_800), id="u1")
    item["content"].insert(0, {"type": "input_text", "text": "Repeat:"})
    bench.client("conversation.item.create", item=item)
    assert bench.commands(api.AddItem)[-1].item.parts == (api.Text("Repeat:"), api.Sound("clip_1"))
    heard(bench, "hello")
    kind = "conversation.item.input_audio_transcription.completed"
    assert bench.last(kind)["content_index"] == 1
    bench.engine_lost()
    bench.engine_ready()
    (restored,) = bench.commands(api.Open)[-1].items
    assert restored.parts == (api.Text("Repeat:"), api.Text("hello"))


@pytest.mark.parametrize("law", ["audio/pcmu", "audio/pcma"])
def test_sound_is_read_in_the_sessions_format(law: g711.Law) -> None:
    """A telephone's bytes become the same sound, at its pitch and of its length."""
    bench = SessionBench()
    bench.update(audio={"input": {"format": {"type": law}}})
    tone = np.sin(np.arange(24_000) * 2 * np.pi * 500 / 24_000) * 8_000
    bench.client(
        "conversation.item.create",
        item=spoken(g711.Encoder(law).feed(tone.astype(np.int16).tobytes())),
    )
    ((_, sound),) = sent_clips(bench).items()
    samples = np.frombuffer(sound, np.int16)
    assert abs(len(samples) - 16_000) <= 320
    spectrum = np.abs(np.fft.rfft(samples[:16_000], 16_000))
    assert int(spectrum.argmax()) == 500


def test_sound_with_words_is_taken_at_its_word() -> None:
    """What a client gives back has been heard before."""
    bench = SessionBench()
    item = spoken(bytes(4_800))
    item["content"][0]["transcript"] = "hello"
    bench.client("conversation.item.create", item=item)
    assert bench.commands(api.Clip) == []
    assert bench.commands(api.AddItem)[-1].item.parts == (api.Text("hello"),)


BAD: list[tuple[Json, str, str]] = [
    (spoken() | {"content": [{"type": "input_audio", "audio": "%"}]}, "[0]", "an invalid value"),
    (spoken(b""), "[0]", "empty bytes"),
    (spoken(bytes(2), bytes(3)), "[1]", "an odd number of bytes (3)"),
    (spoken(*[bytes(2)] * (CLIPS_MAX + 1)), f"[{CLIPS_MAX}]", "more than 16 parts with sound"),
    (spoken(bytes(48_000 * 200), bytes(48_000 * 101)), "[1]", "301.00 s, more than 300 s"),
    (spoken(bytes(15 * (1 << 20) + 2)), "[0]", "more than 15728640 bytes"),
]


@pytest.mark.parametrize(("item", "where", "got"), BAD, ids=[row[2] for row in BAD])
def test_bad_sound_is_refused_whole(item: Json, where: str, got: str) -> None:
    """Named by its place, with no item, and nothing told to the engine; the same in a response's
    input."""
    bench = SessionBench()
    response = {"conversation": "none", "input": [item]}
    for name, fields, param in [
        ("conversation.item.create", {"item": item}, "item"),
        ("response.create", {"response": response}, "response.input[0]"),
    ]:
        bench.clear()
        bench.client(name, event_id="mine", **fields)
        assert bench.types() == ["error"]
        error = bench.error()
        assert (error["code"], error["event_id"]) == ("invalid_value", "mine")
        assert error["param"] == f"{param}.content{where}.audio"
        assert got in error["message"]
        assert bench.told == []


def test_an_answer_may_be_given_sound_alone() -> None:
    """Out of band: its input is heard first, and an error behind it is the client's own event's."""
    bench = SessionBench()
    given = {"conversation": "none", "input": [spoken(bytes(4_800))]}
    bench.client("response.create", response=given)
    items = bench.respond_command().items
    assert items is not None
    assert items[0].parts == (api.Sound("clip_1"),)
    heard(bench, "hello")
    assert not bench.of("conversation.item.added")
    assert not [t for t in bench.types() if "transcription" in t]
    own = {"input": [spoken(bytes(4_800))]}
    bench.client("response.create", response=own)
    bench.client("response.create", response=own, event_id="mine")
    assert bench.error()["code"] == "conversation_already_has_active_response"
    assert bench.error()["event_id"] == "mine"


def test_a_long_clip_leaves_room_for_others() -> None:
    """It is taken apart a piece at a time, each time the shell comes back; the engine dies in
    between, and is not told of the rest."""
    bench = SessionBench()
    text = {"type": "conversation.item.create", "item": spoken(bytes(48_000 * 9), id="u1")}
    session = bench.session
    actions = session.receive_text(json.dumps(text), 0)
    assert len([a for a in actions if type(a).__name__ == "SendToEngine"]) == 1
    assert session.more(0)
    session.engine_lost(0)
    session.engine_ready(api.Ready("x", MODEL), 0)
    told = [a.command for a in session.more(0) if hasattr(a, "command")]
    assert told == []


def test_words_that_never_come_are_told() -> None:
    """As a failed transcription, once, and never as an error: the engine lost or down, a piece
    that it could not take, a recogniser without words."""
    kind = "conversation.item.input_audio_transcription.failed"
    bench = SessionBench()
    bench.update(audio=TRANSCRIBED)
    bench.client("conversation.item.create", item=spoken(bytes(4_800), id="u1"))
    bench.engine_lost()
    bench.client("conversation.item.create", item=spoken(bytes(4_800), id="u2"))
    bench.engine_ready()
    bench.client("conversation.item.create", item=spoken(bytes(4_800), id="u3"))
    name = bench.commands(api.Clip)[-1].clip
    for _ in range(2):
        bench.engine(api.Failed("sess_test", "clip", "session_overloaded", "…", name))
    bench.client("conversation.item.create", item=spoken(bytes(4_800), id="u4"))
    heard(bench, "", transcribed=False)
    told = [(e["item_id"], e["error"]["code"]) for e in bench.of(kind)]
    assert told == [
        ("u1", "engine_lost"),
        ("u2", "engine_unavailable"),
        ("u3", "session_overloaded"),
        ("u4", "no_transcriber"),
    ]
    assert not bench.of("error")


def test_an_engine_that_is_not_there_is_told_nothing() -> None:
    """What it never gets it would never report: an answer to sound fails at once."""
    bench = SessionBench(engine_ready=False)
    response = {"conversation": "none", "input": [spoken(bytes(4_800))]}
    bench.client("response.create", response=response)
    assert bench.commands(api.Clip) == []
    details = bench.last("response.done")["response"]["status_details"]
    assert details["error"]["code"] == "engine_unavailable"


def test_unheard_clips_are_bounded() -> None:
    """An engine too far behind is told of, the oldest first."""
    bench = SessionBench()
    bench.update(audio=TRANSCRIBED)
    for number in range(UNHEARD_MAX + 1):
        bench.client("conversation.item.create", item=spoken(bytes(4_800), id=f"u{number}"))
    (failed,) = bench.of("conversation.item.input_audio_transcription.failed")
    assert (failed["item_id"], failed["error"]["code"]) == ("u0", "engine_behind")


def test_an_item_deleted_before_it_was_heard_is_gone() -> None:
    """For the engine, too; its words go nowhere but to who asked for them."""
    bench = SessionBench()
    bench.client("conversation.item.create", item=spoken(bytes(4_800), id="u1"))
    bench.client("conversation.item.delete", item_id="u1")
    assert bench.commands(api.RemoveItem)
    heard(bench, "hello")
    assert not bench.of("error")
    bench.update(audio={"input": {"transcription": {"model": "x"}}})
    bench.client("conversation.item.create", item=spoken(bytes(4_800), id="u2"))
    bench.client("conversation.item.delete", item_id="u2")
    bench.clear()
    bench.engine_lost()
    assert bench.sent == []
