import dataclasses
import json
from typing import Any

import pytest
from openai.types.realtime.realtime_session_create_response import RealtimeSessionCreateResponse

from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.extensions import GatewayOptions
from headstart.gateway.protocol.parse import parse_session
from headstart.gateway.protocol.schema import strict
from headstart.gateway.protocol.session_config import (
    SemanticVadConfig,
    ServerVadConfig,
    SessionConfig,
)
from tests.gateway.protocol.samples import recorded

CONFIG = SessionConfig(session_id="sess_1", model="small", expires_at=1_756_324_625)


def _apply(config: SessionConfig = CONFIG, /, **session: Any) -> SessionConfig:
    return config.apply(parse_session({"type": "realtime", **session}))


def _input(config: SessionConfig = CONFIG, /, **settings: Any) -> SessionConfig:
    return _apply(config, audio={"input": settings})


def test_a_new_session_has_the_apis_defaults() -> None:
    """As on the live service, but for the answers: text, as long as no voice is installed."""
    assert CONFIG.to_wire() == {
        "type": "realtime",
        "object": "realtime.session",
        "id": "sess_1",
        "model": "small",
        "expires_at": 1_756_324_625,
        "output_modalities": ["text"],
        "instructions": "",
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "include": None,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 200,
                    "idle_timeout_ms": None,
                    "create_response": True,
                    "interrupt_response": True,
                },
            },
            "output": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "voice": "marin",
                "speed": 1.0,
            },
        },
    }


def test_an_empty_update_changes_nothing() -> None:
    """Absent keys keep their values at every depth."""
    assert _apply() == CONFIG
    assert _apply(audio={"input": {}, "output": {}}) == CONFIG


def test_every_setting_is_applied_and_echoed() -> None:
    """What the client sets is what `session.updated` says."""
    session: dict[str, Any] = {
        "instructions": "be brief",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "function", "name": "f"},
        "max_output_tokens": 100,
        "tracing": {"workflow_name": "w"},
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
        "prompt": {"id": "p"},
        "include": ["item.input_audio_transcription.logprobs"],
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
        "gateway": {"events": ["latency"], "chunk_ms": 200},
    }
    audio = {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24000},
            "transcription": {"model": "whisper-9", "language": "en"},
            "noise_reduction": {"type": "far_field", "strength": 0.5},
            "turn_detection": {
                "type": "semantic_vad",
                "eagerness": "high",
                "create_response": False,
                "interrupt_response": False,
            },
        },
        "output": {
            "format": {"type": "audio/pcm", "rate": 24000},
            "voice": "cedar",
            "speed": 1.25,
        },
    }
    wire = _apply(**session, audio=audio).to_wire()
    assert {key: wire[key] for key in session} == session
    assert wire["audio"] == audio


def test_the_model_never_changes() -> None:
    """Clients name a model in their update that differs from the one they connected to."""
    assert _apply(model="gpt-realtime-9").model == "small"


@pytest.mark.parametrize(
    ("speaks", "asked", "effective"),
    [(False, "audio", "text"), (False, "text", "text"), (True, "audio", "audio")],
)
def test_answers_are_spoken_only_with_a_voice(speaks: bool, asked: str, effective: str) -> None:
    """The echo says what really comes, and the wish is kept for when a voice is there."""
    config = dataclasses.replace(CONFIG, speaks=speaks)
    changed = _apply(config, output_modalities=[asked])
    assert changed.output_modality == effective
    assert changed.to_wire()["output_modalities"] == [effective]
    spoken = {"output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin"}}
    assert changed.response_audio() == (spoken if effective == "audio" else None)


def test_turn_detection_is_merged_within_its_type() -> None:
    """One changed field keeps the others; another type starts from its own defaults."""
    first = _input(turn_detection={"type": "server_vad", "threshold": 0.7, "idle_timeout_ms": 9000})
    second = _input(first, turn_detection={"type": "server_vad", "silence_duration_ms": 400})
    assert second.turn_detection == ServerVadConfig(
        threshold=0.7, silence_duration_ms=400, idle_timeout_ms=9000
    )
    third = _input(second, turn_detection={"type": "server_vad", "idle_timeout_ms": None})
    assert isinstance(third.turn_detection, ServerVadConfig)
    assert third.turn_detection.idle_timeout_ms is None
    fourth = _input(third, turn_detection={"type": "semantic_vad", "create_response": False})
    assert fourth.turn_detection == SemanticVadConfig(eagerness="auto", create_response=False)
    fifth = _input(fourth, turn_detection={"type": "semantic_vad", "eagerness": "low"})
    assert fifth.turn_detection == SemanticVadConfig(eagerness="low", create_response=False)
    sixth = _input(fifth, turn_detection={"type": "server_vad"})
    assert sixth.turn_detection == ServerVadConfig()


def test_null_turn_detection_is_push_to_talk() -> None:
    """It is stored, echoed as null, and can be left again."""
    off = _input(turn_detection=None)
    assert off.turn_detection is None
    assert off.to_wire()["audio"]["input"]["turn_detection"] is None
    assert _input(off, turn_detection={"type": "server_vad"}).turn_detection == ServerVadConfig()


def test_nulls_inside_turn_detection_keep_the_value() -> None:
    """Only `idle_timeout_ms` may itself be null."""
    nulls = dict.fromkeys(("threshold", "create_response", "silence_duration_ms"))
    kept = _input(turn_detection={"type": "server_vad", **nulls})
    assert kept.turn_detection == ServerVadConfig()


def test_transcription_and_noise_reduction_are_merged_and_cleared() -> None:
    """A key is kept, changed or cleared by null; null for the whole clears all."""
    on = _input(
        transcription={"model": "a", "language": "en"}, noise_reduction={"type": "near_field"}
    )
    changed = _input(
        on, transcription={"language": None, "prompt": "x"}, noise_reduction={"strength": 1}
    )
    assert changed.transcription == {"model": "a", "prompt": "x"}
    assert changed.noise_reduction == {"type": "near_field", "strength": 1}
    off = _input(changed, transcription=None, noise_reduction=None)
    assert (off.transcription, off.noise_reduction) == (None, None)


def test_noise_reduction_needs_a_type_the_first_time() -> None:
    """A strength alone says nothing while it is off."""
    with pytest.raises(ProtocolError) as caught:
        _input(noise_reduction={"strength": 1})
    assert caught.value.code == "missing_required_parameter"
    assert caught.value.param == "session.audio.input.noise_reduction.type"


def test_empty_values_clear_and_nulls_clear_what_may_be_null() -> None:
    """`""` clears instructions and `[]` tools; null clears tracing, prompt and include."""
    full = _apply(
        instructions="x",
        tools=[{"type": "function", "name": "f"}],
        tracing="auto",
        prompt={"id": "p"},
        include=["item.input_audio_transcription.logprobs"],
    )
    nulls = _apply(full, instructions=None, tools=None, max_output_tokens=None, truncation=None)
    assert nulls == full
    assert (
        _apply(full, instructions="", tools=[], tracing=None, prompt=None, include=None) == CONFIG
    )


def test_the_voice_is_locked_once_it_has_spoken() -> None:
    """Another voice is refused; the same one again is not a change."""
    update = parse_session({"type": "realtime", "audio": {"output": {"voice": "ash"}}})
    assert CONFIG.apply(update).voice == "ash"
    with pytest.raises(ProtocolError) as caught:
        CONFIG.apply(update, voice_locked=True)
    assert caught.value.code == "cannot_update_voice"
    assert CONFIG.apply(update).apply(update, voice_locked=True).voice == "ash"


def test_a_custom_voice_is_echoed_by_its_id() -> None:
    """A response object has room for a string only."""
    assert _apply(audio={"output": {"voice": {"id": "voice_1"}}}).voice == "voice_1"


def test_gateway_options_are_merged_and_echoed_only_if_sent() -> None:
    """Our key appears in the echo of those sessions alone that sent it."""
    assert "gateway" not in CONFIG.to_wire()
    assert _apply().gateway is None
    first = _apply(gateway={"events": ["latency"], "sampling": {"seed": 1, "top_k": 5}})
    second = _apply(first, gateway={"chunk_ms": 1000, "sampling": {"seed": 2}})
    assert isinstance(second.gateway, GatewayOptions)
    assert second.to_wire()["gateway"] == {
        "events": ["latency"],
        "chunk_ms": 1000,
        "sampling": {"seed": 2, "top_k": 5},
    }
    assert _apply(first, gateway={"sampling": None}).to_wire()["gateway"] == {"events": ["latency"]}
    assert _apply(second, gateway=None).gateway is None


@pytest.mark.parametrize("client", sorted({name for name, _ in recorded()}))
def test_stock_clients_find_what_they_set_in_the_echo(client: str) -> None:
    """Applied one after the other, each recorded update shows in the session as it was sent."""
    config = dataclasses.replace(CONFIG, speaks=True)
    sent = [json.loads(line) for name, line in recorded() if name == client]
    updates = [event["session"] for event in sent if event["type"] == "session.update"]
    assert updates
    for session in updates:
        config = config.apply(parse_session(session))
        session["model"] = "small"
        _assert_within(session, config.to_wire())


def _assert_within(part: dict[str, Any], whole: dict[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and value:
            _assert_within(value, whole[key])
        else:
            assert whole[key] == value


@pytest.mark.parametrize("gateway", [None, {"events": []}])
def test_the_session_object_is_the_librarys_but_for_our_key(gateway: Any) -> None:
    """Strictly valid as the library's own session response, without an unknown key."""
    wire = _apply(gateway=gateway, instructions="x").to_wire()
    wire.pop("gateway", None)
    strict(RealtimeSessionCreateResponse).model_validate(wire)
