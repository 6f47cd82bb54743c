"""headstart.benchmarks.peers.realtime: what a server's events mean."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from headstart.benchmarks.peers.clips import Clip, Plan
from headstart.benchmarks.peers.realtime import RATE_HZ, Log
from headstart.benchmarks.peers.score import ASSISTANT, USER, Conversation

PLAN = Plan(0, "inside", "joe", "How old is the universe?", "", pause_ms=800)
CLIP = Clip(PLAN, np.zeros(16_000, np.int16))


def item(item_id: str, role: str, previous: str | None = None) -> dict[str, Any]:
    return {
        "type": "conversation.item.added",
        "previous_item_id": previous,
        "item": {"id": item_id, "type": "message", "role": role},
    }


def heard(item_id: str, text: str) -> dict[str, Any]:
    return {
        "type": "conversation.item.input_audio_transcription.completed",
        "item_id": item_id,
        "transcript": text,
    }


def created(response: str) -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": response}}


def done(response: str, status: str = "completed") -> dict[str, Any]:
    return {"type": "response.done", "response": {"id": response, "status": status}}


def word(response: str, item_id: str, text: str) -> dict[str, Any]:
    return {
        "type": "response.output_audio_transcript.delta",
        "response_id": response,
        "item_id": item_id,
        "delta": text,
    }


def sound(response: str, item_id: str, seconds: float) -> dict[str, Any]:
    pcm = np.full(round(seconds * RATE_HZ), 6000, np.int16)
    return {
        "type": "response.output_audio.delta",
        "response_id": response,
        "item_id": item_id,
        "delta": base64.b64encode(pcm.tobytes()).decode(),
    }


def played(*events: tuple[float, dict[str, Any]]) -> tuple[Log, list[dict[str, Any]]]:
    """The log after these events, and what a client has sent for them."""
    log, sent = Log(), []
    for at_s, event in events:
        sent += log.take(event, at_s)
    return log, sent


def talk(log: Log) -> Conversation:
    return log.conversation(CLIP, 10.0)


TURN = (
    (10.4, item("u1", USER)),
    (10.5, created("r1")),
    (10.5, item("a1", ASSISTANT, "u1")),
    (10.52, word("r1", "a1", "It is")),
    (10.6, heard("u1", " How old is the universe? ")),
    (10.7, sound("r1", "a1", 1.0)),
    (10.8, word("r1", "a1", " old.")),
    (10.9, done("r1")),
)


def test_a_turn() -> None:
    """The transcript may come after the answer has begun."""
    log, sent = played(*TURN)
    found = talk(log)
    assert sent == []
    assert found.heard == ["How old is the universe?"]
    (answer,) = found.answers
    assert answer.read == [(USER, "How old is the universe?")]
    assert (answer.first_token_at_s, answer.first_sound_at_s) == (10.52, 10.7)
    assert answer.text == "It is old."
    assert answer.heard_before_end_s == 0.0


def test_when_a_conversation_is_over() -> None:
    """When the answer's sound has been played and nothing has come for a while."""
    assert not played(*TURN[:-1])[0].settled(20.0)
    log, _ = played(*TURN)
    assert not log.settled(11.6)
    assert not log.settled(10.9)
    assert log.settled(11.9)
    assert not Log().settled(100.0)


def test_speech_over_an_answer_stops_it() -> None:
    """The server is told how much was heard; the model then reads that half was answered."""
    log, sent = played(
        (8.0, item("u1", USER)),
        (8.0, created("r1")),
        (8.0, item("a1", ASSISTANT, "u1")),
        (8.1, word("r1", "a1", "It is old.")),
        (8.25, sound("r1", "a1", 3.0)),
        (8.3, heard("u1", "How old")),
        (8.75, {"type": "input_audio_buffer.speech_started"}),
        (8.8, sound("r1", "a1", 3.0)),
        (8.9, done("r1", "cancelled")),
        (10.3, item("u2", USER, "a1")),
        (10.4, heard("u2", "is the universe?")),
        (10.5, created("r2")),
        (10.6, word("r2", "a2", "Old.")),
    )
    assert sent == [
        {
            "type": "conversation.item.truncate",
            "item_id": "a1",
            "content_index": 0,
            "audio_end_ms": 500,
        }
    ]
    first, second = talk(log).answers
    assert abs(first.heard_before_end_s - 0.5) < 1e-6
    assert second.read == [
        (USER, "How old"),
        (ASSISTANT, "It is old."),
        (USER, "is the universe?"),
    ]


def test_an_answer_of_which_nothing_was_heard_was_none() -> None:
    """Speech before its first sample is played: the message it was to goes on."""
    log, sent = played(
        (8.0, item("u1", USER)),
        (8.0, created("r1")),
        (8.0, item("a1", ASSISTANT, "u1")),
        (8.1, word("r1", "a1", "It is old.")),
        (8.2, sound("r1", "a1", 3.0)),
        (8.2, {"type": "input_audio_buffer.speech_started"}),
        (10.3, item("u2", USER, "a1")),
        (10.5, created("r2")),
    )
    assert [event["audio_end_ms"] for event in sent] == [0]
    assert talk(log).answers[1].read == [(USER, ""), (ASSISTANT, ""), (USER, "")]


def test_an_answer_that_was_taken_back() -> None:
    """Its item is deleted, and the user's message goes on under its id."""
    log, _ = played(
        (8.0, item("u1", USER)),
        (8.1, heard("u1", "How old")),
        (8.2, created("r1")),
        (8.2, item("a1", ASSISTANT, "u1")),
        (8.9, {"type": "conversation.item.deleted", "item_id": "a1"}),
        (10.4, heard("u1", "How old is the universe?")),
        (10.5, created("r2")),
        (10.5, {"type": "conversation.item.deleted", "item_id": "never-added"}),
    )
    found = talk(log)
    assert found.heard == ["How old is the universe?"]
    assert found.answers[1].read == [(USER, "How old is the universe?")]


def test_speech_after_an_answer_stops_nothing() -> None:
    """Nor is the server told of a cut."""
    _, sent = played(*TURN, (15.0, {"type": "input_audio_buffer.speech_started"}))
    assert sent == []


def test_items_stand_where_the_server_puts_them() -> None:
    """A user's item may be added after its answer's."""
    log, _ = played(
        (1.0, item("a1", ASSISTANT)),
        (1.1, item("u2", USER, "a1")),
        (1.2, item("x", USER, "nobody")),
        (1.3, item("u1.5", USER, "a1")),
        (1.4, {**item("call", USER), "item": {"id": "call", "type": "function_call"}}),
    )
    assert log.order == ["a1", "u1.5", "u2", "x"]


def test_what_the_server_measured_is_kept() -> None:
    """Where it has measured something; errors too."""
    log, _ = played(
        (
            1.0,
            {
                "type": "gateway.latency.report",
                "budget": {"total_ms": 530.0},
                "voice": {"total_ms": 700.0},
            },
        ),
        (2.0, {"type": "gateway.latency.report", "budget": {"total_ms": None}, "voice": None}),
        (3.0, {"type": "error", "error": {"message": "no"}}),
    )
    assert log.own_ms == {"first_token": [530.0], "first_sound": [700.0]}
    assert log.errors == ['{"message": "no"}']
