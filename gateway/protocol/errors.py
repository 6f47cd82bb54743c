"""All errors in client events, with the API's own codes and messages.

    ProtocolError           the event is refused and changes nothing; the session continues
    └── FatalProtocolError  the session cannot continue: send the error, then close the socket

Codes must match the API exactly: one client treats every `error` event as fatal except three codes,
others match the start of the message. Nothing advisory may be sent as an error.

"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

from headstart.gateway.protocol.wording import json_kind, listed, shown

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"

RESUME_IN_USE = "resume_in_use"
CLOSE_GOING_AWAY = 1001
CLOSE_TRY_AGAIN_LATER = 1013
CLOSE_UNAUTHORISED = 3000
CLOSE_INVALID_REQUEST = 4000

ItemAction = Literal["retrieve", "delete", "truncate"]
_GERUND: dict[ItemAction, str] = {
    "retrieve": "retrieving",
    "delete": "deleting",
    "truncate": "truncating",
}


class ProtocolError(Exception):
    """A refused client event.

    `code`, `param` and `event_id` may be None, and are null on the wire then. `event_id` is the
    client's id of the refused event, by which clients find the call that failed.

    """

    def __init__(
        self,
        code: str | None,
        message: str,
        *,
        param: str | None = None,
        event_id: str | None = None,
        type: str = INVALID_REQUEST,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.code = code
        self.message = message
        self.param = param
        self.event_id = event_id

    def about(self, event_id: str | None) -> Self:
        """Set the id of the refused event if it is not known yet. Returns itself."""
        if self.event_id is None:
            self.event_id = event_id
        return self

    def to_event(self, event_id: str) -> dict[str, Any]:
        """The `error` server event; `event_id` is the server's id of this event."""
        error = {
            "type": self.type,
            "code": self.code,
            "message": self.message,
            "param": self.param,
            "event_id": self.event_id,
        }
        return {"type": "error", "event_id": event_id, "error": error}


class FatalProtocolError(ProtocolError):
    """An error after which the socket is closed with `close_code` and `close_reason`."""

    def __init__(
        self, code: str, message: str, *, close_code: int, close_reason: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.close_code = close_code
        self.close_reason = close_reason or f"{INVALID_REQUEST}.{code}"


# --- the envelope and its fields ----------------------------------------------------------------


def invalid_json() -> ProtocolError:
    return ProtocolError("invalid_json", "Invalid event: failed to parse JSON value.")


def missing_type() -> ProtocolError:
    return ProtocolError("invalid_event", "The 'type' field is missing.")


def binary_frame() -> ProtocolError:
    return ProtocolError(
        "invalid_event", "Expected a text WebSocket message; binary frames are not supported."
    )


def event_too_large(size: int, limit: int, unit: str) -> ProtocolError:
    """An event over one of the limits on a whole event; `unit` says what was counted."""
    return ProtocolError(
        "invalid_event",
        f"Invalid event: too large. Expected at most {limit} {unit}, but got {size}.",
    )


def missing_parameter(param: str) -> ProtocolError:
    return ProtocolError(
        "missing_required_parameter", f"Missing required parameter: '{param}'.", param=param
    )


def unknown_parameter(param: str) -> ProtocolError:
    return ProtocolError("unknown_parameter", f"Unknown parameter: '{param}'.", param=param)


def unsupported_value(param: str, value: object, supported: Iterable[str]) -> ProtocolError:
    """A value that is not in a closed list."""
    return ProtocolError(
        "invalid_value",
        f"Invalid value: {shown(value)}. Supported values are: {listed(supported)}.",
        param=param,
    )


def invalid_value(param: str, expected: str, value: object) -> ProtocolError:
    """A value of the right type that is out of range or malformed."""
    return ProtocolError(
        "invalid_value",
        f"Invalid value: {shown(value)}. Expected '{param}' to be {expected}.",
        param=param,
    )


def invalid_type(param: str, expected: str, value: object) -> ProtocolError:
    """`expected` with its article: "an integer"."""
    return ProtocolError(
        "invalid_type",
        f"Invalid type for '{param}': expected {expected}, but got {json_kind(value)} instead.",
        param=param,
    )


def string_too_long(param: str, limit: int, length: int) -> ProtocolError:
    return ProtocolError(
        "string_above_max_length",
        f"Invalid '{param}': string too long. "
        f"Expected a string with maximum length {limit}, but got a string with length {length}",
        param=param,
    )


def array_too_long(param: str, limit: int, length: int) -> ProtocolError:
    return ProtocolError(
        "array_above_max_length",
        f"Invalid '{param}': array too long. "
        f"Expected an array with maximum length {limit}, but got an array with length {length}",
        param=param,
    )


def unsupported(param: str, what: str) -> ProtocolError:
    """A value of the API that this server does not support."""
    return ProtocolError(
        "invalid_value", f"Invalid value: {what} not supported by this server.", param=param
    )


# --- audio --------------------------------------------------------------------------------------


def invalid_audio(param: str, got: str) -> ProtocolError:
    """`got` with its article: "an invalid value", "empty bytes"."""
    return ProtocolError(
        "invalid_value",
        f"Invalid '{param}'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) "
        f"but got {got}.",
        param=param,
    )


def commit_too_small(buffered_ms: float, minimum_ms: int = 100) -> ProtocolError:
    return ProtocolError(
        "input_audio_buffer_commit_empty",
        f"Error committing input audio buffer: buffer too small. Expected at least {minimum_ms}ms "
        f"of audio, but buffer only has {buffered_ms:.2f}ms of audio.",
    )


# --- items --------------------------------------------------------------------------------------


def duplicate_item(item_id: str) -> ProtocolError:
    return ProtocolError(
        "item_create_duplicate_item_id",
        f"Error adding item: an item with id '{item_id}' already exists.",
    )


def item_id_in_use(item_id: str) -> ProtocolError:
    return ProtocolError(
        "item_create_duplicate_item_id",
        f"Error adding item: the id '{item_id}' is still in use by speech or an answer that is not "
        "over, or was until just now. Expected another id, or none.",
        param="item.id",
    )


def previous_item_not_found(item_id: str) -> ProtocolError:
    return ProtocolError(
        "item_create_invalid_item_id",
        f"Error adding item: the previous item with id '{item_id}' does not exist.",
        param="previous_item_id",
    )


def item_not_found(action: ItemAction, item_id: str) -> ProtocolError:
    return ProtocolError(
        f"item_{action}_invalid_item_id",
        f"Error {_GERUND[action]} item: the item with id '{item_id}' does not exist.",
        param="item_id" if action == "retrieve" else None,
    )


def referenced_item_not_found(index: int, item_id: str) -> ProtocolError:
    """An `item_reference` in `response.create` to an item that does not exist."""
    return ProtocolError(
        "invalid_value",
        f"Error creating response: the item with id '{item_id}' does not exist.",
        param=f"response.input[{index}].id",
    )


def truncate_not_audio() -> ProtocolError:
    return ProtocolError(None, "Only model output audio messages can be truncated")


def no_such_content(content_index: int, count: int) -> ProtocolError:
    """`count`: the item's number of parts."""
    return invalid_value("content_index", f"less than {count}, the item's parts", content_index)


def truncate_beyond_end(audio_ms: int, audio_end_ms: int) -> ProtocolError:
    return ProtocolError(
        "invalid_value",
        f"Audio content of {audio_ms}ms is already shorter than {audio_end_ms}ms",
    )


def unknown_tool_call(call_id: str) -> ProtocolError:
    return ProtocolError(
        "invalid_tool_call_id",
        f"Error adding item: no function call with call_id '{call_id}' exists.",
        param="item.call_id",
    )


def answered_tool_call(call_id: str) -> ProtocolError:
    return ProtocolError(
        "invalid_tool_call_id",
        f"Error adding item: the function call with call_id '{call_id}' has its output already.",
        param="item.call_id",
    )


def invalid_image(param: str, problem: str) -> ProtocolError:
    """`problem` is a whole sentence: what was expected and what came."""
    return ProtocolError("invalid_value", f"Invalid '{param}'. {problem}", param=param)


# --- responses and the session ------------------------------------------------------------------


def active_response(response_id: str) -> ProtocolError:
    return ProtocolError(
        "conversation_already_has_active_response",
        f"Conversation already has an active response in progress: {response_id}. "
        "Wait until the response is finished before creating a new one.",
    )


def cancel_not_active() -> ProtocolError:
    """Clients tell this harmless race from a failure by the message's first two words."""
    return ProtocolError(
        "response_cancel_not_active", "Cancellation failed: no active response found"
    )


def other_session_type(now: str, asked: str) -> ProtocolError:
    """The type of a session cannot change."""
    return ProtocolError(
        "invalid_parameter",
        f"Passing a {asked} session update event to a {now} session is not allowed.",
    )


def no_responses() -> ProtocolError:
    """`response.create` in a session that has no responses."""
    return ProtocolError(None, "Responses cannot be created in a transcription session.")


def voice_locked() -> ProtocolError:
    return ProtocolError(
        "cannot_update_voice",
        "Cannot update a conversation's voice if assistant audio is present.",
    )


def no_renegotiation() -> ProtocolError:
    return ProtocolError(
        "renegotiation_unsupported",
        "A call cannot be changed by another offer: no ICE restart, and no track or data channel "
        "is added later. Call again from a new RTCPeerConnection that offers everything at once. "
        "With the header headstart-resume (the token is in gateway.session.resumable) the "
        "conversation goes on. To mute or change a microphone or camera, replace its track: that "
        "needs no offer.",
        param="sdp",
    )


def server_error(code: str, message: str) -> ProtocolError:
    """An internal error. Inside a response, prefer a failed `response.done` to this event."""
    return ProtocolError(code, message, type=SERVER_ERROR)


# --- after these the socket is closed -----------------------------------------------------------


def invalid_api_key() -> FatalProtocolError:
    return FatalProtocolError(
        "invalid_api_key", "Incorrect API key provided.", close_code=CLOSE_UNAUTHORISED
    )


def invalid_intent() -> FatalProtocolError:
    return FatalProtocolError("invalid_intent", "Invalid intent", close_code=CLOSE_INVALID_REQUEST)


def no_sideband() -> FatalProtocolError:
    """A second connection to a call by its id, which this server does not support."""
    return FatalProtocolError(
        "call_id_not_found",
        "No session found for the provided call_id",
        close_code=CLOSE_INVALID_REQUEST,
    )


def beta_shape() -> FatalProtocolError:
    return FatalProtocolError(
        "beta_api_shape_disabled",
        "The Realtime Beta API is no longer supported. Please use /v1/realtime for the GA API.",
        close_code=CLOSE_INVALID_REQUEST,
    )


def session_expired(minutes: int = 60) -> FatalProtocolError:
    message = f"Your session hit the maximum duration of {minutes} minutes."
    return FatalProtocolError(
        "session_expired", message, close_code=CLOSE_GOING_AWAY, close_reason=message
    )


def no_room(message: str, retry_after_s: float, code: str = "no_room") -> FatalProtocolError:
    """The engine takes no other session now; `message` says what is missing."""
    error = FatalProtocolError(
        code,
        message,
        close_code=CLOSE_TRY_AGAIN_LATER,
        close_reason=f"{code}; retry_after_s={retry_after_s:.0f}",
    )
    error.type = SERVER_ERROR
    return error


def resume_unknown() -> FatalProtocolError:
    return FatalProtocolError(
        "resume_token_unknown",
        "There is no session to resume: the token is unknown, or the session is over.",
        close_code=CLOSE_INVALID_REQUEST,
    )


def resume_in_use() -> FatalProtocolError:
    return FatalProtocolError(
        RESUME_IN_USE,
        "The session cannot be resumed: it is still connected elsewhere.",
        close_code=CLOSE_INVALID_REQUEST,
    )
