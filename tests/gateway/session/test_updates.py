"""Settings that change, and sessions that only transcribe."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from pydantic import TypeAdapter

from headstart.engine import api
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.parse import parse_session
from headstart.gateway.protocol.schema import strict
from headstart.gateway.session.updates import SessionUpdates, open_command
from tests.gateway.session_bench import Json, SessionBench, clip_pcm, silence_pcm

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def transcribing(**session: Any) -> SessionBench:
    """A session that began as one of type `transcription`."""

    def preset(bench: SessionBench) -> None:
        bench.session.preset(parse_session({"type": "transcription", **session}), 0)

    return SessionBench(before_start=preset)


def wanted(**session: Any) -> Json:
    return {"session": {"type": "transcription", **session}}


def test_what_follows_from_an_update_is_told_to_the_engine() -> None:
    """Instructions and tools when they changed, how far to remember, and nothing else."""
    assert callable(SessionUpdates)
    assert callable(open_command)
    bench = SessionBench()
    bench.clear()
    bench.update(tracing="auto")
    assert bench.told == []
    bench.update(instructions="Be brief.")
    bench.update(truncation={"type": "retention_ratio", "retention_ratio": 0.5})
    assert [type(command) for command in bench.told] == [api.Instruct, api.Remember]


def test_a_transcription_session_says_what_it_is() -> None:
    """In full and without a word about answers, strictly as the library reads it; the engine is
    told that nothing will be asked."""
    bench = transcribing(audio={"input": {"turn_detection": {"type": "server_vad"}}})
    session = bench.last("session.created")["session"]
    assert session == {
        "type": "transcription",
        "object": "realtime.transcription_session",
        "id": "sess_test",
        "expires_at": session["expires_at"],
        "include": None,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": {"model": "tiny"},
                "noise_reduction": None,
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                },
            }
        },
    }
    strict(RealtimeTranscriptionSessionCreateResponse).model_validate(session)
    (opened,) = bench.commands(api.Open)
    assert opened.only_hears


def test_speech_is_put_into_words_and_not_answered() -> None:
    """The events of a spoken turn up to its transcript, nothing speculated on, nothing asked; what
    the update says of responses counts for nothing."""
    bench = transcribing()
    detection = {"type": "server_vad", "create_response": True, "interrupt_response": True}
    transcription = {"model": "gpt-4o-transcribe", "language": "en"}
    bench.client(
        "session.update",
        **wanted(audio={"input": {"turn_detection": detection, "transcription": transcription}}),
    )
    updated = bench.last("session.updated")["session"]["audio"]["input"]
    assert updated["transcription"] == transcription
    assert "create_response" not in updated["turn_detection"]
    bench.hear(clip_pcm("capital.wav") + silence_pcm(1_000))
    bench.hearing("what is the", final=True)
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    ref = bench.commands(api.EndSpeech)[-1].ref
    bench.engine(api.Heard("sess_test", ref, item_id, "what is the capital", 3))
    assert [hush.speculate for hush in bench.commands(api.Hush)] == [None]
    assert bench.commands(api.Respond) == []
    kinds = [e["type"] for e in bench.sent if e["type"] != "session.updated"]
    assert list(dict.fromkeys(kinds)) == [
        "session.created",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ]
    for event in bench.sent:
        assert SERVER_EVENT.validate_json(json.dumps(event)).type == event["type"]


def test_words_by_hand() -> None:
    """Turn detection off: append and commit."""
    bench = transcribing()
    bench.client("session.update", **wanted(audio={"input": {"turn_detection": None}}))
    bench.hear(silence_pcm(500))
    bench.client("input_audio_buffer.commit")
    assert bench.commands(api.EndSpeech)
    assert bench.commands(api.Respond) == []


def test_a_response_is_refused_in_so_many_words() -> None:
    """No code, no parameter; the session goes on."""
    bench = transcribing()
    for fields in ({}, {"response": {"conversation": "none"}}):
        bench.client("response.create", event_id="mine", **fields)
        error = bench.error()
        assert (error["code"], error["param"], error["event_id"]) == (None, None, "mine")
    assert bench.commands(api.Respond) == []
    bench.client("response.cancel")
    assert bench.error()["code"] == "response_cancel_not_active"


@pytest.mark.parametrize("begun", ["realtime", "transcription"])
def test_a_session_keeps_its_type(begun: str) -> None:
    """An update of the other one is refused to the letter, and changes nothing."""
    bench = transcribing() if begun == "transcription" else SessionBench()
    other = "transcription" if begun == "realtime" else "realtime"
    before = bench.session.describe()
    bench.client("session.update", session={"type": other})
    error = bench.error()
    assert error["code"] == "invalid_parameter"
    assert error["message"] == (
        f"Passing a {other} session update event to a {begun} session is not allowed."
    )
    assert bench.session.describe() == before


def test_settings_of_a_connection_may_change_its_type() -> None:
    """The last word counts; what was about transcripts alone does not stay."""
    bench = SessionBench()
    for type_ in ("transcription", "transcription", "realtime"):
        bench.session.preset(parse_session({"type": type_}), 0)
        assert bench.session.describe()["type"] == type_
    assert bench.session.describe()["audio"]["input"]["transcription"] is None
    with pytest.raises(ProtocolError):
        parse_session({"type": "transcription", "instructions": "x"})


def test_our_own_settings_hold_for_transcripts_too() -> None:
    """The size of a chunk, and events of ours."""
    bench = transcribing(gateway={"events": ["hearing"], "chunk_ms": 200})
    assert bench.last("session.created")["session"]["gateway"]["chunk_ms"] == 200
    bench.hear(clip_pcm("capital.wav"))
    bench.hearing("what")
    assert bench.last("gateway.hearing")["tentative"] == "what"
    *whole, rest = (len(c.pcm) for c in bench.commands(api.Audio))
    assert set(whole) == {2 * 3_200}
    assert 0 < rest <= 2 * 3_200
