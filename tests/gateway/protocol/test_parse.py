import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.gateway.protocol import limits
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.parse import (
    CLIENT_EVENT_TYPES,
    decode_audio,
    parse_client_event,
    parse_session,
    prepare,
)
from headstart.gateway.protocol.schema import strict
from tests.gateway.protocol.samples import FULL, MINIMAL, recorded


def _refused(text: str | bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        parse_client_event(text)
    return caught.value


# --- accepted -----------------------------------------------------------------------------------


def test_the_minimal_events_are_all_there_are() -> None:
    """One for each type, so that no type goes untested."""
    assert {event["type"] for event in MINIMAL} == set(CLIENT_EVENT_TYPES)


@pytest.mark.parametrize("event", MINIMAL + FULL, ids=lambda event: event["type"])
def test_minimal_and_full_events_are_read_back_whole(event: dict[str, Any]) -> None:
    """What is parsed dumps to what was sent."""
    parsed = parse_client_event(json.dumps(event))
    assert parsed.model_dump(exclude_unset=True) == event


@pytest.mark.parametrize("event", MINIMAL, ids=lambda event: event["type"])
def test_every_event_may_carry_an_id(event: dict[str, Any]) -> None:
    """A string, or null."""
    for event_id in ("mine", None):
        assert parse_client_event(json.dumps(event | {"event_id": event_id})).event_id == event_id


@pytest.mark.parametrize(("client", "line"), recorded())
def test_what_stock_clients_send_is_accepted(client: str, line: str) -> None:
    """Every event recorded from the unmodified clients parses and dumps to what was sent."""
    parsed = parse_client_event(line)
    assert parsed.model_dump(exclude_unset=True) == json.loads(line)


def test_explicit_nulls_are_absent_keys() -> None:
    """Clients send null for what they do not set, at every depth."""
    session = {
        "type": "realtime",
        **dict.fromkeys(
            ("instructions", "tools", "tool_choice", "max_output_tokens", "output_modalities")
        ),
        **dict.fromkeys(("tracing", "truncation", "prompt", "include", "model", "reasoning")),
        "audio": {
            "input": dict.fromkeys(
                ("format", "transcription", "noise_reduction", "turn_detection")
            ),
            "output": dict.fromkeys(("format", "voice", "speed")),
        },
    }
    parse_client_event(json.dumps({"type": "session.update", "session": session}))
    keys = ("instructions", "input", "metadata", "conversation", "audio", "tools", "tool_choice")
    parse_client_event(json.dumps({"type": "response.create", "response": dict.fromkeys(keys)}))
    parse_client_event('{"type":"response.create","response":null}')
    parse_client_event('{"type":"response.cancel","response_id":null}')


def test_prepared_models_are_the_ones_used() -> None:
    """After `prepare` no event of any type has to wait for its model to be derived."""
    prepare()
    derived = strict.cache_info().misses
    for event in MINIMAL + FULL:
        parse_client_event(json.dumps(event))
        parse_client_event(json.dumps(event), extensions=True)
    assert strict.cache_info().misses == derived


# --- refused ------------------------------------------------------------------------------------

_LIST = (
    "'session.update', 'input_audio_buffer.append', 'input_audio_buffer.commit', "
    "'input_audio_buffer.clear', 'output_audio_buffer.clear', 'conversation.item.create', "
    "'conversation.item.retrieve', 'conversation.item.truncate', 'conversation.item.delete', "
    "'response.create', 'response.cancel', 'input_image_buffer.append', and "
    "'gateway.playout.started'"
)
_NOT_JSON = ("invalid_json", None, "Invalid event: failed to parse JSON value.")
_NO_TYPE = ("invalid_event", None, "The 'type' field is missing.")


@pytest.mark.parametrize(
    ("text", "code", "param", "message"),
    [
        ("", *_NOT_JSON),
        ("{", *_NOT_JSON),
        ("{'type': 'x'}", *_NOT_JSON),
        ('{"type":"response.create"} x', *_NOT_JSON),
        ('{"type":"response.create","x":NaN}', *_NOT_JSON),
        ('{"type":"response.create","x":Infinity}', *_NOT_JSON),
        ('{"type":"response.create","x":-Infinity}', *_NOT_JSON),
        ('{"type":"response.create","x":1e999}', *_NOT_JSON),
        ('"\\ud800"', *_NOT_JSON),
        ('"\ud800"', *_NOT_JSON),
        ("[" * 10_000, *_NOT_JSON),
        ("[]", *_NO_TYPE),
        ('"response.create"', *_NO_TYPE),
        ("null", *_NO_TYPE),
        ("{}", *_NO_TYPE),
        (
            b'{"type":"response.create"}',
            "invalid_event",
            None,
            "Expected a text WebSocket message; binary frames are not supported.",
        ),
        (
            '{"type":"x"}',
            "invalid_value",
            "type",
            f"Invalid value: 'x'. Supported values are: {_LIST}.",
        ),
        (
            '{"type":7}',
            "invalid_type",
            "type",
            "Invalid type for 'type': expected a string, but got an integer instead.",
        ),
        (
            '{"type":"session.update","session":{}}',
            "missing_required_parameter",
            "session.type",
            "Missing required parameter: 'session.type'.",
        ),
        (
            '{"type":"session.update"}',
            "missing_required_parameter",
            "session",
            "Missing required parameter: 'session'.",
        ),
        (
            '{"type":"response.cancel","item":1}',
            "unknown_parameter",
            "item",
            "Unknown parameter: 'item'.",
        ),
        (
            '{"type":"conversation.item.create","item":{"type":"function_call_output",'
            f'"output":"","call_id":"{"x" * 438}"}}}}',
            "string_above_max_length",
            "item.call_id",
            "Invalid 'item.call_id': string too long. Expected a string with maximum length 32, "
            "but got a string with length 438",
        ),
        (
            '{"type":"conversation.item.truncate","item_id":"x","content_index":0,'
            '"audio_end_ms":-1}',
            "invalid_value",
            "audio_end_ms",
            "Invalid value: '-1'. Expected 'audio_end_ms' to be at least 0.",
        ),
        (
            '{"type":"response.create","response":{"max_output_tokens":-5}}',
            "invalid_value",
            "response.max_output_tokens",
            "Invalid value: '-5'. Expected 'response.max_output_tokens' to be at least 1.",
        ),
    ],
)
def test_bad_events_get_the_named_error(
    text: str | bytes, code: str, param: str | None, message: str
) -> None:
    """The code, the path and the sentence, to the letter."""
    error = _refused(text)
    assert (error.code, error.param, error.message) == (code, param, message)
    assert error.type == "invalid_request_error"


def test_the_error_carries_the_clients_event_id_when_it_can_be_read() -> None:
    """By it a client finds the call that failed."""
    assert _refused('{"type":"x","event_id":"mine"}').event_id == "mine"
    assert _refused('{"type":"response.cancel","x":1,"event_id":"mine"}').event_id == "mine"
    assert _refused('{"type":"x","event_id":7}').event_id is None
    assert _refused('{"type":"response.cancel","event_id":7}').param == "event_id"
    assert _refused("{").event_id is None


def test_a_huge_event_id_is_refused_and_not_repeated() -> None:
    """It would come back in every error."""
    error = _refused(json.dumps({"type": "response.create", "event_id": "x" * 513}))
    assert (error.code, error.param) == ("string_above_max_length", "event_id")
    assert error.event_id is None


def test_a_transcription_session_has_fields_of_its_own() -> None:
    """None that is about answers, at any depth."""
    update = '{"type":"session.update","session":{"type":"transcription",%s}}'
    assert parse_client_event(update % '"include":null').type == "session.update"
    error = _refused(update % '"instructions":"x"')
    assert (error.code, error.param) == ("unknown_parameter", "session.instructions")
    error = _refused(update % '"audio":{"output":{}}')
    assert (error.code, error.param) == ("unknown_parameter", "session.audio.output")


def test_a_session_from_elsewhere_is_held_to_the_same_schema() -> None:
    """An HTTP body's session gives the same object and the same errors."""
    assert parse_session({"type": "realtime", "instructions": "x"}).type == "realtime"
    for session, param in ((None, "session"), ({"type": "realtime", "x": 1}, "session.x")):
        with pytest.raises(ProtocolError) as caught:
            parse_session(session)
        assert caught.value.param == param


def _append_of(chars: int) -> str:
    head, tail = '{"type":"input_audio_buffer.append","audio":"', '"}'
    return head + "A" * (chars - len(head) - len(tail)) + tail


def test_events_over_a_limit_are_refused() -> None:
    """Too long, too many values, too many keys, too deep: each says the limit and what came."""
    parse_client_event(_append_of(limits.MAX_EVENT_CHARS))
    assert "characters" in _refused(_append_of(limits.MAX_EVENT_CHARS + 1)).message
    assert "values" in _refused("[" + "1," * limits.MAX_EVENT_VALUES + "1]").message
    wide = {f"k{n}": 1 for n in range(limits.MAX_OBJECT_KEYS + 1)}
    assert "keys" in _refused(json.dumps({"type": "response.create", "response": wide})).message
    deep = "[" * limits.MAX_DEPTH + "]" * limits.MAX_DEPTH  # and the event around it
    assert "nesting" in _refused(f'{{"type":"response.create","response":{deep}}}').message
    many = {"type": "session.update", "session": {"type": "realtime", "tools": []}}
    padded = json.dumps(many) + " " * limits.MAX_SESSION_CHARS
    assert "characters" in _refused(padded).message


def test_json_at_the_limits_is_read() -> None:
    """The widest object and the deepest nesting allowed."""
    schema: Any = {f"k{n}": 1 for n in range(limits.MAX_OBJECT_KEYS)}
    for _ in range(limits.MAX_DEPTH - 5):  # around it: event, session, tools, tool; in it: schema
        schema = [schema]
    tool = {"type": "function", "name": "f", "parameters": schema}
    session = {"type": "realtime", "tools": [tool]}
    parse_client_event(json.dumps({"type": "session.update", "session": session}))


# --- audio --------------------------------------------------------------------------------------


def test_audio_is_decoded_to_the_byte() -> None:
    """Any even number of bytes comes back as it was."""
    pcm = bytes(range(256)) * 3
    assert decode_audio(base64.b64encode(pcm).decode()) == pcm


@pytest.mark.parametrize(
    "audio", ["!!!!", "AAA", "AA==AA==", "AA AA", "AAAA\n", "é", "A", "====", "-_-_"]
)
def test_garbage_is_not_decoded(audio: str) -> None:
    """Strict base64: no stray characters, no missing padding, not the URL alphabet."""
    with pytest.raises(ProtocolError) as caught:
        decode_audio(audio)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "audio")
    assert caught.value.message == (
        "Invalid 'audio'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) "
        "but got an invalid value."
    )


@pytest.mark.parametrize(
    ("pcm", "got"),
    [(b"", "empty bytes"), (b"abc", "an odd number of bytes (3)"), (b"x" * 12, "12 bytes")],
)
def test_other_bytes_than_whole_samples_within_the_limit_are_refused(pcm: bytes, got: str) -> None:
    """Empty, half a sample, and more than the limit."""
    with pytest.raises(ProtocolError) as caught:
        decode_audio(base64.b64encode(pcm).decode(), limit_bytes=10, param="item.content[0].audio")
    assert caught.value.param == "item.content[0].audio"
    assert f"but got {got}" in caught.value.message


def test_an_append_of_15_mib_is_taken_and_one_of_more_is_not() -> None:
    """The API's own limit, exactly, before and after decoding."""
    full = bytes(limits.MAX_AUDIO_BYTES)
    assert len(decode_audio(base64.b64encode(full).decode())) == limits.MAX_AUDIO_BYTES
    for surplus in (2, 1000):
        with pytest.raises(ProtocolError) as caught:
            decode_audio(base64.b64encode(full + bytes(surplus)).decode())
        assert (caught.value.code, caught.value.param) == ("invalid_value", "audio")


# --- fuzz ---------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON value."""
    steps = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        place
        for step, inner in steps
        for place in (
            [(*path, step)]
            + (_places(inner, (*path, step)) if isinstance(inner, (dict, list)) else [])
        )
    ]


def _survives(text: str) -> None:
    try:
        parsed = parse_client_event(text)
    except ProtocolError as error:
        json.dumps(error.to_event("e"), allow_nan=False).encode()
    else:
        json.dumps(parsed.model_dump(), allow_nan=False).encode()


@given(_JSON)
@settings(max_examples=150, deadline=None)
def test_any_json_gives_an_event_or_a_protocol_error(value: Any) -> None:
    """As the event itself and as its session; the error can be sent."""
    _survives(json.dumps(value))
    for key in ("session", "item", "response", "audio"):
        for event in MINIMAL:
            if key in event or event["type"] == "response.create":
                _survives(json.dumps(event | {key: value}))


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_gives_an_event_or_a_protocol_error(text: str) -> None:
    """Mostly not JSON at all."""
    _survives(text)


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_mutated_real_events_give_an_event_or_a_protocol_error(data: st.DataObject) -> None:
    """A value replaced, removed, or joined by another key, anywhere in a full event."""
    event = json.loads(json.dumps(data.draw(st.sampled_from(FULL + MINIMAL))))
    *way, last = data.draw(st.sampled_from(_places(event)))
    parent = event
    for step in way:
        parent = parent[step]
    change = data.draw(st.sampled_from(("replace", "remove", "add")))
    if change == "remove":
        del parent[last]
    elif change == "add" and isinstance(parent, dict):
        parent[data.draw(st.text(max_size=8))] = data.draw(_JSON)
    else:
        parent[last] = data.draw(_JSON)
    _survives(json.dumps(event))


@given(st.sampled_from(FULL), st.data())
@settings(max_examples=150, deadline=None)
def test_events_cut_or_smeared_give_an_event_or_a_protocol_error(
    event: dict[str, Any], data: st.DataObject
) -> None:
    """Characters lost or changed in transit."""
    text = json.dumps(event)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    _survives(text[:start] + data.draw(st.text(max_size=4)) + text[end:])
