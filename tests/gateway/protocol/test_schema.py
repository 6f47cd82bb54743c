from typing import Any

import pytest
from openai.types.realtime import (
    ConversationItemCreateEvent,
    RealtimeConversationItemUserMessage,
    RealtimeSessionCreateRequest,
    ResponseCreateEvent,
    SessionUpdateEvent,
)
from openai.types.realtime.realtime_audio_formats import AudioPCM, AudioPCMU
from openai.types.realtime.response_item_reference import ResponseItemReference
from pydantic import ValidationError

from headstart.gateway.protocol.extensions import TimedAudioAppend
from headstart.gateway.protocol.schema import strict

UPDATE = strict(SessionUpdateEvent)


def _session(**session: Any) -> RealtimeSessionCreateRequest:
    event = UPDATE.model_validate(
        {"type": "session.update", "session": {"type": "realtime", **session}}
    )
    assert isinstance(event.session, RealtimeSessionCreateRequest)
    return event.session


def test_a_strict_event_is_an_instance_of_the_librarys_type() -> None:
    """At every depth, so that code against the library's types needs no other names."""
    assert issubclass(UPDATE, SessionUpdateEvent)
    event = strict(ConversationItemCreateEvent).model_validate(
        {
            "type": "conversation.item.create",
            "item": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hi"}],
            },
        }
    )
    assert isinstance(event.item, RealtimeConversationItemUserMessage)
    assert event.item.content[0].text == "hi"


def test_models_are_built_once() -> None:
    """Deriving costs milliseconds; validating microseconds."""
    assert strict(SessionUpdateEvent) is UPDATE


@pytest.mark.parametrize(
    "session",
    [
        {"instructions": 5},
        {"max_output_tokens": "5"},
        {"max_output_tokens": 5.0},
        {"max_output_tokens": True},
        {"parallel_tool_calls": 1},
        {"parallel_tool_calls": "true"},
        {"tools": {}},
        {"audio": {"output": {"speed": "1"}}},
        {"audio": {"output": {"speed": True}}},
        {"audio": {"input": {"format": {"type": "audio/pcm", "rate": "24000"}}}},
        {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}},
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": "0.5"}}}},
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": 1}}}},
        {"truncation": {"type": "retention_ratio", "retention_ratio": float("nan")}},
        {"truncation": {"type": "retention_ratio", "retention_ratio": float("inf")}},
    ],
)
def test_nothing_is_coerced(session: dict[str, Any]) -> None:
    """A string is no number, a number no boolean, 5.0 no integer, NaN no number at all."""
    with pytest.raises(ValidationError):
        _session(**session)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_without_a_range_are_finite_all_the_same(value: float) -> None:
    """A session can reach the schema without passing through our JSON reader."""
    append = {"type": "input_audio_buffer.append", "audio": "AAAA", "captured_at_ms": value}
    with pytest.raises(ValidationError):
        strict(TimedAudioAppend).model_validate(append)


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("audio",),
        ("audio", "input"),
        ("audio", "input", "format"),
        ("audio", "input", "noise_reduction"),
        ("audio", "input", "transcription"),
        ("audio", "output"),
        ("tracing",),
        ("prompt",),
        ("reasoning",),
        ("gateway",),
        ("gateway", "sampling"),
    ],
)
def test_unknown_keys_are_refused_at_every_depth(path: tuple[str, ...]) -> None:
    """The error stands at the unknown key itself."""
    session: dict[str, Any] = {}
    inner = session
    for step in path:
        inner = inner.setdefault(step, {})
    if path == ("prompt",):
        inner["id"] = "p"
    inner["surplus"] = 1
    with pytest.raises(ValidationError) as caught:
        _session(**session)
    (error,) = caught.value.errors()
    assert error["type"] == "extra_forbidden"
    steps = [step for step in error["loc"] if not str(step).startswith("\0")]
    assert steps == ["session", *path, "surplus"]


def test_free_form_values_are_left_alone() -> None:
    """A tool's JSON schema may hold any key."""
    parameters = {"type": "object", "properties": {"surplus": {"type": ["string", "null"]}}}
    tools = _session(tools=[{"type": "function", "name": "f", "parameters": parameters}]).tools
    assert tools is not None
    assert tools[0].model_dump()["parameters"] == parameters


@pytest.mark.parametrize(
    ("audio_format", "model"),
    [
        ({"type": "audio/pcm", "rate": 24000}, AudioPCM),
        ({"type": "audio/pcm"}, AudioPCM),
        ({"rate": 24000}, AudioPCM),
        ({"type": "audio/pcmu"}, AudioPCMU),
    ],
)
def test_a_unions_member_is_picked_by_its_type(
    audio_format: dict[str, Any], model: type[Any]
) -> None:
    """Without a `type`, where the library lets it be absent, the first member is meant."""
    session = _session(audio={"input": {"format": audio_format}})
    assert session.audio is not None
    assert session.audio.input is not None
    assert isinstance(session.audio.input.format, model)


def test_item_references_may_stand_in_a_responses_input() -> None:
    """The library's reading type leaves them out; its writing type and its clients have them."""
    event = strict(ResponseCreateEvent).model_validate(
        {"type": "response.create", "response": {"input": [{"type": "item_reference", "id": "x"}]}}
    )
    assert event.response is not None
    assert event.response.input is not None
    assert isinstance(event.response.input[0], ResponseItemReference)


def test_an_array_stops_at_its_first_wrong_element() -> None:
    """Ten thousand wrong elements are one error, not ten thousand."""
    with pytest.raises(ValidationError) as caught:
        _session(include=["x"] * 10_000)
    assert caught.value.error_count() == 1
