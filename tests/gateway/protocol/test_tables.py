"""Every field of a session and of a response, and every error code, with the test that shows what
becomes of it. Fields are read from the library's types: a new one fails here until it has a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeResponseCreateParams
from pydantic import BaseModel

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.extensions import GatewaySession, GatewayTranscriptionSession
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

HERE = Path(__file__).parents[1]
CONFIG = "protocol/test_session_config"
RULES = "protocol/test_rules"
_DEFAULTS = f"{CONFIG}::test_every_setting_is_applied_and_echoed"
_CLEARED = f"{CONFIG}::test_transcription_and_noise_reduction_are_merged_and_cleared"
_DETECTION = "audio/test_turn_detection::test_detection_follows_the_protocols_settings"
_MCP = f"{RULES}::test_mcp_is_refused_by_name"
_ASKED = "session/test_response_request::test_what_is_given_counts_for_this_response"

# A row holds for all fields below it that have none of their own.
SESSION = {
    "type": "session/test_updates::test_a_session_keeps_its_type",
    "model": f"{CONFIG}::test_the_model_never_changes",
    "audio.input.format": "audio/test_formats::test_a_telephones_turn",
    "audio.input.noise_reduction": _CLEARED,
    "audio.input.transcription": _CLEARED,
    "audio.input.turn_detection": _DETECTION,
    "audio.input.turn_detection.create_response": (
        "protocol/test_tables::test_speech_is_not_answered_where_that_is_off"
    ),
    "audio.input.turn_detection.interrupt_response": (
        "session/test_session::test_a_question_during_an_answer_waits_when_interrupting_is_off"
    ),
    "audio.input.turn_detection.idle_timeout_ms": (
        "session/test_idle::test_a_silence_behind_an_answer_is_an_item_and_has_an_answer"
    ),
    "audio.output.format": "audio/test_formats::test_a_telephones_turn",
    "audio.output.speed": "protocol/test_tables::test_speed_is_the_voices",
    "audio.output.voice": f"{CONFIG}::test_a_custom_voice_is_echoed_by_its_id",
    "include": _DEFAULTS,
    "instructions": "session/test_updates::test_what_follows_from_an_update_is_told_to_the_engine",
    "max_output_tokens": (
        "session/test_context::test_answers_are_never_longer_than_the_server_allows"
    ),
    "output_modalities": "session/test_speech_output::test_text_when_text_is_wanted",
    "parallel_tool_calls": _DEFAULTS,
    "prompt": _DEFAULTS,
    "reasoning": _DEFAULTS,
    "tool_choice": "session/test_function_calls::test_tool_choice_is_carried_out",
    "tool_choice.server_label": f"{RULES}::test_a_tool_choice_of_mcp_is_refused_by_name",
    "tools": _MCP,
    "tools.name": "session/test_function_calls::test_the_tools_reach_the_engine",
    "tools.description": "session/test_function_calls::test_the_tools_reach_the_engine",
    "tools.parameters": "session/test_function_calls::test_the_tools_reach_the_engine",
    "tools.type": "session/test_function_calls::test_what_is_no_function_is_refused_by_name",
    "tracing": _DEFAULTS,
    "truncation": "session/test_retention::test_the_api_s_own_truncation_is_obeyed",
    "gateway": "protocol/test_extensions::test_every_option_of_the_session_key_is_read",
}
RESPONSE = {
    "audio.output.format": "audio/test_formats::test_a_response_may_have_a_format_of_its_own",
    "audio.output.voice": "protocol/test_parse::test_minimal_and_full_events_are_read_back_whole",
    "conversation": _ASKED,
    "input": "protocol/test_rules::test_a_response_speaks_the_same_rules",
    "input.content.audio": "session/test_item_audio::test_an_answer_may_be_given_sound_alone",
    "instructions": _ASKED,
    "max_output_tokens": _ASKED,
    "metadata": "protocol/test_conformance::test_metadata_and_conversation_are_echoed",
    "output_modalities": _ASKED,
    "parallel_tool_calls": "protocol/test_parse::test_minimal_and_full_events_are_read_back_whole",
    "prompt": "protocol/test_parse::test_minimal_and_full_events_are_read_back_whole",
    "reasoning": "protocol/test_parse::test_minimal_and_full_events_are_read_back_whole",
    "tool_choice": _ASKED,
    "tools": "session/test_function_calls::test_a_response_may_have_tools_of_its_own",
}
_TABLE = "protocol/test_error_table::test_a_mistake_has_its_error_to_the_letter"
_TRANSLATE = "protocol/test_translate::test_each_kind_of_error_has_its_code_path_and_sentence"
CODES = {
    **dict.fromkeys(
        (
            "unknown_parameter",
            "missing_required_parameter",
            "invalid_value",
            "string_above_max_length",
            "input_audio_buffer_commit_empty",
            "item_create_duplicate_item_id",
            "item_create_invalid_item_id",
            "invalid_tool_call_id",
            "conversation_already_has_active_response",
            "response_cancel_not_active",
            "cannot_update_voice",
            "invalid_event",
            "item_retrieve_invalid_item_id",
            "item_delete_invalid_item_id",
            "item_truncate_invalid_item_id",
        ),
        _TABLE,
    ),
    "invalid_json": "session/test_session_errors::test_bad_input_is_named_and_the_session_goes_on",
    "invalid_type": _TRANSLATE,
    "array_above_max_length": _TRANSLATE,
    "invalid_parameter": "session/test_updates::test_a_session_keeps_its_type",
    "rate_limit_exceeded": "session/test_responses::test_answers_out_of_band_have_a_bound",
    "invalid_api_key": "auth/test_middleware::test_a_wrong_key_is_told_so",
    "invalid_intent": "server/test_handshake::test_each_refusal_has_its_code",
    "beta_api_shape_disabled": "server/test_handshake::test_a_beta_client_is_told_and_closed",
    "renegotiation_unsupported": (
        "transport/webrtc/test_renegotiation::test_another_offer_is_refused_and_the_call_goes_on"
    ),
    "call_id_not_found": "transport/webrtc/test_calls::test_unknown_calls_and_keys",
    "session_expired": "session/test_session::test_a_session_ends_when_its_time_is_over",
    "no_room": (
        "session/test_session_errors::"
        "test_an_engine_without_room_ends_the_session_and_says_when_to_come_back"
    ),
    "resume_token_unknown": (
        "connection/test_registry::test_a_token_that_is_not_known_or_not_any_more"
    ),
    "resume_in_use": "connection/test_registry::test_the_same_token_from_a_second_place_is_refused",
}


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The paths of all fields, those of every member of a union."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for inner in _models(field.annotation):
            yield from fields(inner, f"{prefix}{name}.")


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]


def row_of(path: str, rows: dict[str, str]) -> str | None:
    """The row that says most about a field."""
    steps = path.split(".")
    heads = (".".join(steps[:length]) for length in range(len(steps), 0, -1))
    return next((head for head in heads if head in rows), None)


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (GatewaySession, SESSION),
        (GatewayTranscriptionSession, SESSION),
        (RealtimeResponseCreateParams, RESPONSE),
    ],
)
def test_every_field_has_a_row(model: type[BaseModel], rows: dict[str, str]) -> None:
    """But for those that only hold others."""
    holders = {"audio", "audio.input", "audio.output"}
    assert {path for path in fields(model) if row_of(path, rows) is None} == holders & set(
        fields(model)
    )


def test_every_row_is_of_a_field() -> None:
    """What the library has given up goes here, too."""
    assert set(SESSION) <= set(fields(GatewaySession))
    assert set(RESPONSE) <= set(fields(RealtimeResponseCreateParams))


def test_every_code_has_a_row() -> None:
    """All that `errors.py` can say."""
    source = Path(errors.__file__).read_text()
    codes = set(re.findall(r'ProtocolError\(\s*f?"([a-z_{}]+)"', source))
    codes.discard("item_{action}_invalid_item_id")
    assert codes <= set(CODES)


@pytest.mark.parametrize("proof", sorted({*SESSION.values(), *RESPONSE.values(), *CODES.values()}))
def test_every_proof_is_there(proof: str) -> None:
    """A file of tests, and the test in it where one is named."""
    file, _, name = proof.partition("::")
    assert f"def {name}" in (HERE / f"{file}.py").read_text()


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_codes_proof_knows_it(code: str) -> None:
    """The code stands in that file to the letter."""
    file = CODES[code].partition("::")[0]
    assert re.search(rf"\b{code}\b", (HERE / f"{file}.py").read_text())


def test_speech_is_not_answered_where_that_is_off() -> None:
    """`create_response` false: the turn is told and committed, nothing is speculated on or asked;
    the client asks itself."""
    bench = SessionBench()
    bench.update(
        audio={"input": {"turn_detection": {"type": "server_vad", "create_response": False}}}
    )
    bench.hear(clip_pcm("capital.wav") + silence_pcm(1_000))
    assert bench.of("input_audio_buffer.committed")
    assert {hush.speculate for hush in bench.commands(api.Hush)} == {None}
    assert bench.commands(api.Respond) == []
    bench.client("response.create")
    assert bench.commands(api.Respond)


def test_speed_is_the_voices() -> None:
    """Of each answer that begins after it was set."""
    bench = SessionBench(speaks=True)
    bench.update(audio={"output": {"speed": 1.25}})
    bench.client("response.create")
    bench.answer("One.")
    (clause,) = bench.uttered
    assert getattr(clause, "speed", None) == 1.25
