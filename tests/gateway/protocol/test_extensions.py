import json
from typing import Any

import pytest
from openai.types.realtime import InputAudioBufferAppendEvent, SessionUpdateEvent

from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.extensions import (
    GatewaySession,
    InputImageBufferAppend,
    TimedAudioAppend,
)
from headstart.gateway.protocol.parse import parse_client_event


def _update(gateway: Any) -> str:
    return json.dumps(
        {"type": "session.update", "session": {"type": "realtime", "gateway": gateway}}
    )


def test_every_option_of_the_session_key_is_read() -> None:
    """`session.gateway` arrives typed, inside the library's own session type."""
    options = {
        "events": ["latency", "chunks", "hearing", "engine", "interruption"],
        "chunk_ms": 200,
        "sampling": {
            "temperature": 0.7,
            "top_p": 1,
            "top_k": 40,
            "repetition_penalty": 1.1,
            "seed": 7,
            "max_sentences": 2,
        },
        "video": {
            "sampler": "scene",
            "scale": 0.5,
            "fps": 2,
            "motion": 0.1,
            "scene": 30,
            "flow": 0.5,
            "max_gap_ms": 5000,
            "min_frames": 2,
            "max_frames": 8,
        },
        "window": {"tokens": 4096, "vision_tokens": 1024, "summarise": True},
        "latency_budget_ms": 800,
        "interruption": "words",
        "endpointing": "adaptive",
        "resume": True,
    }
    event = parse_client_event(_update(options))
    assert isinstance(event, SessionUpdateEvent)
    assert isinstance(event.session, GatewaySession)
    assert event.session.gateway is not None
    assert event.session.gateway.model_dump() == options


@pytest.mark.parametrize("gateway", [None, {}, {"events": None}, {"events": []}])
def test_absent_and_null_options_pass(gateway: Any) -> None:
    """Null means absent here as everywhere."""
    assert isinstance(parse_client_event(_update(gateway)), SessionUpdateEvent)


@pytest.mark.parametrize(
    ("gateway", "code", "param"),
    [
        ({"events": ["latencies"]}, "invalid_value", "session.gateway.events[0]"),
        ({"events": "latency"}, "invalid_type", "session.gateway.events"),
        ({"chunk_ms": 300}, "invalid_value", "session.gateway.chunk_ms"),
        ({"chunk_ms": "200"}, "invalid_type", "session.gateway.chunk_ms"),
        ({"sampling": {"temperature": 3}}, "invalid_value", "session.gateway.sampling.temperature"),
        ({"sampling": {"top_k": 1.5}}, "invalid_type", "session.gateway.sampling.top_k"),
        ({"sampling": {"typical_p": 1}}, "unknown_parameter", "session.gateway.sampling.typical_p"),
        ({"latency_budget_ms": 0}, "invalid_value", "session.gateway.latency_budget_ms"),
        ({"interruption": "cough"}, "invalid_value", "session.gateway.interruption"),
        ({"video": {"fps": 0}}, "invalid_value", "session.gateway.video.fps"),
        ({"video": {"sampler": "best"}}, "invalid_value", "session.gateway.video.sampler"),
        ({"eyes": {}}, "unknown_parameter", "session.gateway.eyes"),
        ([], "invalid_type", "session.gateway"),
    ],
)
def test_wrong_options_are_named(gateway: Any, code: str, param: str) -> None:
    """Our own key is as strict as the API's."""
    with pytest.raises(ProtocolError) as caught:
        parse_client_event(_update(gateway))
    assert (caught.value.code, caught.value.param) == (code, param)


def test_capture_stamps_need_a_session_that_asked() -> None:
    """Without `session.gateway` the stamp is an unknown parameter; with it, it is read."""
    text = json.dumps(
        {"type": "input_audio_buffer.append", "audio": "AAAA", "captured_at_ms": 1234.5}
    )
    with pytest.raises(ProtocolError) as caught:
        parse_client_event(text)
    assert (caught.value.code, caught.value.param) == ("unknown_parameter", "captured_at_ms")
    event = parse_client_event(text, extensions=True)
    assert isinstance(event, InputAudioBufferAppendEvent)
    assert isinstance(event, TimedAudioAppend)
    assert event.captured_at_ms == 1234.5


def test_an_append_without_a_stamp_passes_in_such_a_session() -> None:
    """The stamp is optional."""
    event = parse_client_event(
        '{"type":"input_audio_buffer.append","audio":"AAAA"}', extensions=True
    )
    assert isinstance(event, TimedAudioAppend)
    assert event.captured_at_ms is None


def test_image_appends_are_read() -> None:
    """The frame event of another vendor's clients, with and without our time stamp."""
    event = parse_client_event('{"type":"input_image_buffer.append","image":"AAAA"}')
    assert isinstance(event, InputImageBufferAppend)
    assert (event.image, event.timestamp_ms) == ("AAAA", None)
    with pytest.raises(ProtocolError) as caught:
        parse_client_event('{"type":"input_image_buffer.append"}')
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "image")
