"""What a client can get wrong: one named error each, and the session goes on."""

from __future__ import annotations

import base64

import pytest

from headstart.engine import api
from tests.gateway.session_bench import SessionBench, user_text


def good_turn(bench: SessionBench) -> None:
    """The session still works: a text turn from beginning to end."""
    bench.client("conversation.item.create", item=user_text("Still there?"))
    bench.client("response.create")
    bench.answer("Yes.")
    assert bench.last("response.done")["response"]["status"] == "completed"


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        ("{nope", "invalid_json", None),
        ("[]", "invalid_event", None),
        ('{"type": "nope"}', "invalid_value", "type"),
        ('{"type": "response.cancel", "x": 1}', "unknown_parameter", "x"),
        ('{"type": "conversation.item.delete"}', "missing_required_parameter", "item_id"),
        (
            '{"type": "input_audio_buffer.append", "audio": "%%%"}',
            "invalid_value",
            "audio",
        ),
        ('{"type": "input_audio_buffer.append", "audio": ""}', "invalid_value", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "AAAA"}', "invalid_value", "audio"),
        ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty", None),
        ('{"type": "response.cancel"}', "response_cancel_not_active", None),
        (
            '{"type": "conversation.item.retrieve", "item_id": "no"}',
            "item_retrieve_invalid_item_id",
            "item_id",
        ),
        (
            '{"type": "conversation.item.truncate", "item_id": "no", "content_index": 0,'
            ' "audio_end_ms": 1}',
            "item_truncate_invalid_item_id",
            None,
        ),
        ('{"type": "session.update", "session": {}}', "missing_required_parameter", "session.type"),
        (
            '{"type": "session.update", "session": {"type": "realtime", "audio": {"input":'
            ' {"turn_detection": {"type": "server_vad", "threshold": 1.5}}}}}',
            "invalid_value",
            "session.audio.input.turn_detection.threshold",
        ),
        (
            '{"type": "session.update", "session": {"type": "realtime", "gateway": {"sampling":'
            ' {"temperature": NaN}}}}',
            "invalid_json",
            None,
        ),
    ],
)
def test_bad_input_is_named_and_the_session_goes_on(
    text: str, code: str, param: str | None
) -> None:
    """One error event with code and parameter; nothing changed; the next turn works."""
    bench = SessionBench()
    told = list(bench.told)
    bench.raw(text)
    assert bench.error()["code"] == code
    assert bench.error()["param"] == param
    assert bench.told == told
    assert len(bench.of("error")) == 1
    good_turn(bench)


def test_a_binary_frame_is_refused() -> None:
    """The protocol is text; the session goes on."""
    bench = SessionBench()
    bench._take(bench.session.receive_binary(100, 0))
    assert bench.error()["code"] == "invalid_event"
    good_turn(bench)


def test_an_append_over_15_mib_is_refused() -> None:
    """Named, with nothing heard of it."""
    bench = SessionBench()
    audio = base64.b64encode(bytes(15 * 2**20 + 2)).decode()
    bench.client("input_audio_buffer.append", audio=audio)
    assert bench.error()["code"] == "invalid_value"
    assert not bench.commands(api.Audio)
    good_turn(bench)


def test_an_engine_without_room_ends_the_session_and_says_when_to_come_back() -> None:
    """The refusal of a new session reaches the client with its numbers, and the socket is closed
    with a code and a reason that a program can read."""
    bench = SessionBench()
    bench.clear()
    message = "there is no room for another session: it needs 300 tokens of KV cache"
    bench.engine(api.Failed("sess_1", "open", "no_room", message, retry_after_s=4.6))
    error = bench.last("error")["error"]
    assert (error["type"], error["code"]) == ("server_error", "no_room")
    assert error["message"] == message
    (hangup,) = bench.hangups
    assert (hangup.code, hangup.reason) == (1013, "no_room; retry_after_s=5")


def test_a_session_that_no_llm_server_takes_is_ended_by_that_name() -> None:
    """As for want of memory."""
    bench = SessionBench()
    bench.clear()
    bench.engine(api.Failed("sess_1", "open", "llm_no_server", "3 down", retry_after_s=2.0))
    assert bench.last("error")["error"]["code"] == "llm_no_server"
    (hangup,) = bench.hangups
    assert (hangup.code, hangup.reason) == (1013, "llm_no_server; retry_after_s=2")
