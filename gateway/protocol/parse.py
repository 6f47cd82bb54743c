"""Parses a frame's text to a validated client event, or an error.

Only `ProtocolError` is ever raised, whatever the text. A returned event is an instance of the
`openai` package's type (or of ours in `extensions`) that satisfies `limits` and `rules`.

"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pybase64
from openai.types.realtime import (
    ConversationItemCreateEvent,
    ConversationItemDeleteEvent,
    ConversationItemRetrieveEvent,
    ConversationItemTruncateEvent,
    InputAudioBufferAppendEvent,
    InputAudioBufferClearEvent,
    InputAudioBufferCommitEvent,
    OutputAudioBufferClearEvent,
    ResponseCancelEvent,
    ResponseCreateEvent,
    SessionUpdateEvent,
)
from pydantic import BaseModel, ValidationError

from headstart.gateway.protocol import errors, limits, rules
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.extensions import (
    InputImageBufferAppend,
    PlayoutStarted,
    TimedAudioAppend,
)
from headstart.gateway.protocol.schema import strict
from headstart.gateway.protocol.session_config import SessionUpdate
from headstart.gateway.protocol.translate import first_error

ClientEvent = (
    SessionUpdateEvent
    | InputAudioBufferAppendEvent
    | InputAudioBufferCommitEvent
    | InputAudioBufferClearEvent
    | OutputAudioBufferClearEvent
    | ConversationItemCreateEvent
    | ConversationItemRetrieveEvent
    | ConversationItemTruncateEvent
    | ConversationItemDeleteEvent
    | ResponseCreateEvent
    | ResponseCancelEvent
    | InputImageBufferAppend
    | PlayoutStarted
)

_MODELS: dict[str, type[BaseModel]] = {
    "session.update": SessionUpdateEvent,
    "input_audio_buffer.append": InputAudioBufferAppendEvent,
    "input_audio_buffer.commit": InputAudioBufferCommitEvent,
    "input_audio_buffer.clear": InputAudioBufferClearEvent,
    "output_audio_buffer.clear": OutputAudioBufferClearEvent,
    "conversation.item.create": ConversationItemCreateEvent,
    "conversation.item.retrieve": ConversationItemRetrieveEvent,
    "conversation.item.truncate": ConversationItemTruncateEvent,
    "conversation.item.delete": ConversationItemDeleteEvent,
    "response.create": ResponseCreateEvent,
    "response.cancel": ResponseCancelEvent,
    "input_image_buffer.append": InputImageBufferAppend,
    "gateway.playout.started": PlayoutStarted,
}
CLIENT_EVENT_TYPES = tuple(_MODELS)

_LONG_CHARS = 64 * 1024


def prepare() -> None:
    """Derive every model now: about 0.1 s, which the first event of each type would take
    otherwise."""
    for model in (*_MODELS.values(), TimedAudioAppend):
        strict(model)


def parse_client_event(text: str | bytes, *, extensions: bool = False) -> ClientEvent:
    """Parse one client event. `bytes` are a binary frame, which this protocol does not have.

    With `extensions` (the session has sent `session.gateway`) an append may carry `captured_at_ms`.
    Raises `ProtocolError`, with the client's `event_id` if it can be read.

    """
    value = decode_json(text)
    if not isinstance(value, dict) or "type" not in value:
        raise errors.missing_type()
    event_id = value.get("event_id")
    if not isinstance(event_id, str) or len(event_id) > limits.MAX_ID_CHARS:
        event_id = None
    try:
        return _validate(value, len(text), extensions)
    except ProtocolError as error:
        raise error.about(event_id) from None


def parse_session(value: object) -> SessionUpdate:
    """Parse a session object from an HTTP body read by `decode_json`, with the schema of a
    `session.update`. Raises `ProtocolError` with paths that begin with `session`."""
    event = _validate({"type": "session.update", "session": value}, 0, False)
    return cast(SessionUpdateEvent, event).session


def decode_audio(
    audio: str, limit_bytes: int = limits.MAX_AUDIO_BYTES, param: str = "audio"
) -> bytes:
    """PCM16 bytes of an append. Raises `ProtocolError` naming `param` unless `audio` is strict
    base64 of whole samples within the limit."""
    pcm = decode_bytes(audio, limit_bytes, param)
    if len(pcm) % 2:
        raise errors.invalid_audio(param, f"an odd number of bytes ({len(pcm)})")
    return pcm


def decode_bytes(
    audio: str, limit_bytes: int = limits.MAX_AUDIO_BYTES, param: str = "audio"
) -> bytes:
    """Audio bytes of any format. Raises as `decode_audio` does."""
    if len(audio) // 4 * 3 > limit_bytes + 2:  # two bytes at most are padding
        raise errors.invalid_audio(param, f"more than {limit_bytes} bytes")
    try:
        pcm = pybase64.b64decode(audio, validate=True)
    except ValueError:  # binascii.Error, also for text that is not ASCII
        raise errors.invalid_audio(param, "an invalid value") from None
    if not pcm:
        raise errors.invalid_audio(param, "empty bytes")
    if len(pcm) > limit_bytes:
        raise errors.invalid_audio(param, f"{len(pcm)} bytes, which is over {limit_bytes}")
    return pcm


def decode_json(text: str | bytes) -> Any:
    """JSON of bounded size, width and depth; for HTTP bodies too. NaN and infinities are not JSON.

    Raises `ProtocolError`. `bytes` are a binary frame: decode an HTTP body to text first.
    """
    if isinstance(text, bytes):
        raise errors.binary_frame()
    if len(text) > limits.MAX_EVENT_CHARS:
        raise errors.event_too_large(len(text), limits.MAX_EVENT_CHARS, "characters")
    values = _count_values(text)
    if values > limits.MAX_EVENT_VALUES:
        raise errors.event_too_large(values, limits.MAX_EVENT_VALUES, "values")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise errors.invalid_json() from None
    if isinstance(value, dict) and values > limits.MAX_DEPTH:  # fewer cannot be too deep
        _check_shape(value)
    return value


def _count_values(text: str) -> int:
    """An upper bound on the values in the JSON. In a long text, counting stops past the limit: the
    search it uses there is fast unless there are many matches."""
    if len(text) <= _LONG_CHARS:
        return text.count("{") + text.count("[") + text.count(",")
    values = 0
    for mark in ("{", "[", ","):
        position = text.find(mark)
        while position >= 0 and values <= limits.MAX_EVENT_VALUES:
            values += 1
            position = text.find(mark, position + 1)
    return values


def _check_shape(value: dict[str, Any]) -> None:
    """Raises `ProtocolError` for JSON that is nested too deep or has an object with too many
    keys."""
    level: list[Any] = [value]
    for _ in range(limits.MAX_DEPTH):
        inner: list[Any] = []
        for container in level:
            children = container.values() if isinstance(container, dict) else container
            if isinstance(container, dict) and len(container) > limits.MAX_OBJECT_KEYS:
                raise errors.event_too_large(
                    len(container), limits.MAX_OBJECT_KEYS, "keys in one object"
                )
            inner.extend(child for child in children if isinstance(child, (dict, list)))
        if not inner:
            return
        level = inner
    raise errors.event_too_large(limits.MAX_DEPTH + 1, limits.MAX_DEPTH, "levels of nesting")


def _validate(value: dict[str, Any], size_chars: int, extensions: bool) -> ClientEvent:
    name = value["type"]
    if not isinstance(name, str):
        raise errors.invalid_type("type", "a string", name)
    model = _MODELS.get(name)
    if model is None:
        raise errors.unsupported_value("type", name, CLIENT_EVENT_TYPES)
    if extensions and model is InputAudioBufferAppendEvent:
        model = TimedAudioAppend
    if model is SessionUpdateEvent and size_chars > limits.MAX_SESSION_CHARS:
        raise errors.event_too_large(size_chars, limits.MAX_SESSION_CHARS, "characters")
    try:
        event = cast(ClientEvent, strict(model).model_validate(value))
    except ValidationError as error:
        raise first_error(error) from None
    rules.check(event)
    return event
