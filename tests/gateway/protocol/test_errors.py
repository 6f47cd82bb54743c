"""The rows of the API's error table that come from state, to the letter."""

import pytest

from headstart.gateway.protocol import errors
from headstart.gateway.protocol.errors import FatalProtocolError, ProtocolError

ROWS = [
    (
        errors.commit_too_small(0),
        "input_audio_buffer_commit_empty",
        None,
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
        "but buffer only has 0.00ms of audio.",
    ),
    (
        errors.duplicate_item("X"),
        "item_create_duplicate_item_id",
        None,
        "Error adding item: an item with id 'X' already exists.",
    ),
    (
        errors.previous_item_not_found("X"),
        "item_create_invalid_item_id",
        "previous_item_id",
        "Error adding item: the previous item with id 'X' does not exist.",
    ),
    (
        errors.item_not_found("retrieve", "X"),
        "item_retrieve_invalid_item_id",
        "item_id",
        "Error retrieving item: the item with id 'X' does not exist.",
    ),
    (
        errors.item_not_found("delete", "X"),
        "item_delete_invalid_item_id",
        None,
        "Error deleting item: the item with id 'X' does not exist.",
    ),
    (
        errors.item_not_found("truncate", "X"),
        "item_truncate_invalid_item_id",
        None,
        "Error truncating item: the item with id 'X' does not exist.",
    ),
    (
        errors.truncate_not_audio(),
        None,
        None,
        "Only model output audio messages can be truncated",
    ),
    (
        errors.truncate_beyond_end(9250, 57340),
        "invalid_value",
        None,
        "Audio content of 9250ms is already shorter than 57340ms",
    ),
    (
        errors.unknown_tool_call("call_1"),
        "invalid_tool_call_id",
        "item.call_id",
        "Error adding item: no function call with call_id 'call_1' exists.",
    ),
    (
        errors.active_response("resp_X"),
        "conversation_already_has_active_response",
        None,
        "Conversation already has an active response in progress: resp_X. "
        "Wait until the response is finished before creating a new one.",
    ),
    (
        errors.cancel_not_active(),
        "response_cancel_not_active",
        None,
        "Cancellation failed: no active response found",
    ),
    (
        errors.voice_locked(),
        "cannot_update_voice",
        None,
        "Cannot update a conversation's voice if assistant audio is present.",
    ),
    (
        errors.referenced_item_not_found(2, "X"),
        "invalid_value",
        "response.input[2].id",
        "Error creating response: the item with id 'X' does not exist.",
    ),
]

FATAL_ROWS = [
    (errors.invalid_api_key(), 3000, "invalid_request_error.invalid_api_key"),
    (errors.invalid_intent(), 4000, "invalid_request_error.invalid_intent"),
    (errors.beta_shape(), 4000, "invalid_request_error.beta_api_shape_disabled"),
    (
        errors.session_expired(),
        1001,
        "Your session hit the maximum duration of 60 minutes.",
    ),
]


@pytest.mark.parametrize(("error", "code", "param", "message"), ROWS)
def test_state_errors_are_to_the_letter(
    error: ProtocolError, code: str | None, param: str | None, message: str
) -> None:
    """Clients match on these codes and on the beginnings of these sentences."""
    wire = error.about("mine").to_event("event_1")
    assert wire == {
        "type": "error",
        "event_id": "event_1",
        "error": {
            "type": "invalid_request_error",
            "code": code,
            "message": message,
            "param": param,
            "event_id": "mine",
        },
    }


@pytest.mark.parametrize(("error", "close_code", "close_reason"), FATAL_ROWS)
def test_fatal_errors_know_how_the_socket_closes(
    error: FatalProtocolError, close_code: int, close_reason: str
) -> None:
    """The close code tells a client not to retry; the reason fits a close frame's 123 bytes."""
    assert (error.close_code, error.close_reason) == (close_code, close_reason)
    assert len(error.close_reason.encode()) <= 123


def test_the_first_named_client_event_stays() -> None:
    """`about` fills in the client's event id once; a missing one stays null on the wire."""
    error = errors.cancel_not_active()
    assert error.to_event("e")["error"]["event_id"] is None
    assert error.about(None).about("a").about("b").event_id == "a"


def test_a_server_error_says_whose_fault_it_is() -> None:
    """Our own failures carry the type server_error."""
    assert errors.server_error("engine_restarted", "…").to_event("e")["error"]["type"] == (
        "server_error"
    )


def test_messages_repeat_only_a_bounded_part_of_a_client_value() -> None:
    """A megabyte in a wrong field does not come back in the message."""
    error = errors.unsupported_value("type", "x" * (1 << 20), ["a"])
    assert len(error.message) < 300
    assert "an object" in errors.invalid_value("a", "b", {"x" * 999: 1}).message
    assert "'true'" in errors.invalid_value("a", "b", True).message
