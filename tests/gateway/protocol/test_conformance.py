"""The Realtime API as one table: each client event and its replies, each server event, each error.

Every event that a scenario makes the core send is read by the library's own closed union, as the
strictest client does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from headstart.engine import api
from headstart.gateway.protocol.parse import CLIENT_EVENT_TYPES
from tests.gateway.session_bench import Json, SessionBench, clip_pcm, silence_pcm, user_text

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
TRANSCRIBED = {"input": {"transcription": {"model": "whisper-1"}}}
BY_HAND = {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
SECOND = base64.b64encode(bytes(48_000)).decode()


def said_by_hand(bench: SessionBench) -> None:
    """Push-to-talk: append, commit, and the words."""
    bench.update(audio=BY_HAND)
    bench.client("input_audio_buffer.append", audio=SECOND)
    bench.client("input_audio_buffer.commit")
    ended = bench.commands(api.EndSpeech)[-1]
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", ended.ref, item_id, "hello there", 3))


def heard_by_vad(bench: SessionBench) -> None:
    """Speech under server VAD, and its answer."""
    bench.update(audio=TRANSCRIBED)
    bench.hear(clip_pcm("capital.wav") + silence_pcm(1_000))
    ended = bench.commands(api.EndSpeech)[-1]
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", ended.ref, item_id, "the capital of France", 3))
    bench.answer("Paris.")
    bench.say_all()


def not_understood(bench: SessionBench) -> None:
    bench.update(audio=TRANSCRIBED)
    bench.hear(clip_pcm("capital.wav")[: 48 * 1_500])
    bench.engine_lost()


def text_answer(bench: SessionBench) -> None:
    bench.client("conversation.item.create", item=user_text("Hi", id="u1"))
    bench.client("response.create", response={"output_modalities": ["text"]})
    bench.answer("Hello", " you.")


def spoken_answer(bench: SessionBench) -> None:
    bench.client("response.create")
    bench.answer("It is big.")
    bench.say_all()


def function_call(bench: SessionBench) -> None:
    bench.update(tools=[TOOL])
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Call("sess_test", generation, 0, "weather", '{"city":', False))
    bench.engine(api.Call("sess_test", generation, 0, "weather", ' "Rome"}', True))
    bench.finish(generation, "")
    call_id = bench.last("response.function_call_arguments.done")["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
    bench.client("conversation.item.create", item=output)


def cancelled(bench: SessionBench) -> None:
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "It is", 0))
    bench.client("response.cancel")
    bench.finish(generation, "It is", api.FinishReason.CANCELLED)


def out_of_band(bench: SessionBench) -> None:
    bench.client("conversation.item.create", item=user_text("Hi", id="u1"))
    given = [{"type": "item_reference", "id": "u1"}, user_text("Classify")]
    bench.client(
        "response.create",
        response={"conversation": "none", "metadata": {"k": "v"}, "input": given},
    )
    bench.answer("spam")
    bench.say_all()


def items_read_and_deleted(bench: SessionBench) -> None:
    text_answer(bench)
    bench.client("conversation.item.retrieve", item_id="u1")
    bench.client("conversation.item.delete", item_id="u1")


def truncated_twice(bench: SessionBench) -> None:
    spoken_answer(bench)
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    for _ in range(2):
        bench.client(
            "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=500
        )
    bench.client("conversation.item.retrieve", item_id=item_id)


def nobody_speaks(bench: SessionBench) -> None:
    bench.update(
        audio={"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}}}
    )
    spoken_answer(bench)
    bench.hear(silence_pcm(7_000))


def played_by_the_server(bench: SessionBench) -> None:
    spoken_answer(bench)
    bench.playout("started", 480)
    bench.client("output_audio_buffer.clear")
    bench.cleared(12_000)
    spoken_answer(bench)
    bench.playout("stopped", 36_000)


def appended_by_hand(bench: SessionBench) -> None:
    bench.update(audio=BY_HAND)
    bench.client("input_audio_buffer.append", audio=SECOND)


def buffer_cleared(bench: SessionBench) -> None:
    appended_by_hand(bench)
    bench.client("input_audio_buffer.clear")


def own_input_in_the_conversation(bench: SessionBench) -> None:
    bench.client("response.create", response={"input": [user_text("Only this")]})
    bench.answer("Yes.")
    bench.say_all()


def a_mistake(bench: SessionBench) -> None:
    bench.client("response.cancel", event_id="mine")


Scenario = Callable[[SessionBench], None]
SCENARIOS: list[Scenario] = [
    said_by_hand,
    heard_by_vad,
    not_understood,
    text_answer,
    spoken_answer,
    function_call,
    cancelled,
    out_of_band,
    items_read_and_deleted,
    truncated_twice,
    nobody_speaks,
    played_by_the_server,
    buffer_cleared,
    own_input_in_the_conversation,
    a_mistake,
]

TIER_1 = [
    "error",
    "session.created",
    "session.updated",
    "conversation.item.added",
    "conversation.item.done",
    "conversation.item.retrieved",
    "conversation.item.truncated",
    "conversation.item.deleted",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.completed",
    "conversation.item.input_audio_transcription.failed",
    "input_audio_buffer.committed",
    "input_audio_buffer.cleared",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.timeout_triggered",
    "output_audio_buffer.started",
    "output_audio_buffer.stopped",
    "output_audio_buffer.cleared",
    "response.created",
    "response.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_audio_transcript.delta",
    "response.output_audio_transcript.done",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
]


def played(scenario: Scenario) -> SessionBench:
    bench = SessionBench(speaks=True)
    scenario(bench)
    return bench


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_every_event_is_one_of_the_apis(scenario: Scenario) -> None:
    """As the library's closed union has it, and no error but the one that was asked for."""
    bench = played(scenario)
    for event in bench.sent:
        parsed = SERVER_EVENT.validate_json(json.dumps(event))
        assert parsed.type == event["type"]
        assert event["event_id"]
    errors = 1 if scenario is a_mistake else 0
    assert len(bench.of("error")) == errors, bench.of("error")


def test_every_tier_1_event_is_sent() -> None:
    """By one scenario or another."""
    seen = {event["type"] for scenario in SCENARIOS for event in played(scenario).sent}
    assert set(TIER_1) - seen == set()
    assert seen - set(TIER_1) == set()


# Each client event: what comes before it, the event, and the replies to it, in order.
REPLIES: list[tuple[Scenario | None, str, Json, list[str]]] = [
    (None, "session.update", {"session": {"type": "realtime"}}, ["session.updated"]),
    (None, "input_audio_buffer.append", {"audio": SECOND}, []),
    (buffer_cleared, "input_audio_buffer.clear", {}, ["input_audio_buffer.cleared"]),
    (
        appended_by_hand,
        "input_audio_buffer.commit",
        {},
        ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"],
    ),
    (None, "output_audio_buffer.clear", {}, []),
    (
        None,
        "conversation.item.create",
        {"item": user_text("Hi")},
        ["conversation.item.added", "conversation.item.done"],
    ),
    (
        text_answer,
        "conversation.item.retrieve",
        {"item_id": "u1"},
        ["conversation.item.retrieved"],
    ),
    (text_answer, "conversation.item.delete", {"item_id": "u1"}, ["conversation.item.deleted"]),
    (None, "response.create", {}, ["response.created"]),
    (None, "response.create", {"response": {"conversation": "none"}}, ["response.created"]),
    (None, "input_image_buffer.append", {"image": ""}, ["error"]),
    (None, "gateway.playout.started", {"response_id": "resp_1", "delay_ms": 5}, ["error"]),
]


@pytest.mark.parametrize(("before", "name", "fields", "replies"), REPLIES)
def test_a_client_event_has_its_replies(
    before: Scenario | None, name: str, fields: Json, replies: list[str]
) -> None:
    """The types of what is sent because of it; cancel and truncate are scenarios of their own."""
    bench = SessionBench(speaks=True)
    if before is not None:
        before(bench)
    bench.clear()
    bench.client(name, **fields)
    assert bench.types() == replies


def test_the_tables_name_every_client_event() -> None:
    """All eleven, and the two of ours."""
    scenarios = {"conversation.item.truncate", "response.cancel"}
    assert {name for _, name, _, _ in REPLIES} | scenarios == set(CLIENT_EVENT_TYPES)


def test_metadata_and_conversation_are_echoed() -> None:
    """By metadata one client finds its response; out of band there is no conversation's id."""
    bench = played(out_of_band)
    for name in ("response.created", "response.done"):
        response = bench.last(name)["response"]
        assert response["metadata"] == {"k": "v"}
        assert response["conversation_id"] is None
    aside = bench.respond_command().items
    assert aside is not None
    assert [part for each in aside for part in each.parts] == [
        api.Text("Hi"),
        api.Text("Classify"),
    ]


def test_an_answer_to_its_own_input_joins_the_conversation() -> None:
    """The engine answers from the input alone, and is told the answer as an item afterwards."""
    bench = played(own_input_in_the_conversation)
    assert bench.respond_command().items is not None
    added = bench.commands(api.AddItem)[-1].item
    assert (added.role, added.parts) == ("assistant", (api.Text("Yes."),))
    assert bench.last("response.done")["response"]["conversation_id"] is not None
