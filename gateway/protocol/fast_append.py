"""A fast path for the most frequent event, `input_audio_buffer.append`.

One typed decoder replaces `parse_client_event` and `decode_audio` (JSON, schema, base64), at a
fifth of the cost. Anything it does not accept returns None, and the general path finds the error
and its message. A test compares the two.

"""

from __future__ import annotations

import msgspec

from headstart.gateway.protocol import limits

_CAPTURED_AT = limits.RANGES["captured_at_ms"]
_MARK = '"input_audio_buffer.append"'
_MARK_WITHIN_CHARS = 120  # from either end: some clients put the type first, some last


class FastAppend(
    msgspec.Struct, tag_field="type", tag="input_audio_buffer.append", forbid_unknown_fields=True
):
    """`audio`: s16 mono at 24 kHz, validated as by `decode_audio`."""

    audio: bytes
    event_id: str | None = None


class TimedFastAppend(FastAppend, tag="input_audio_buffer.append"):
    """With the timestamp that sessions with extensions may send."""

    captured_at_ms: float | None = None


_decoder = msgspec.json.Decoder(FastAppend)
_timed_decoder = msgspec.json.Decoder(TimedFastAppend)


def fast_append(text: str, *, extensions: bool) -> FastAppend | None:
    """The append in `text`, if it is a valid one; otherwise None."""
    if len(text) > limits.MAX_EVENT_CHARS or not _looks_like_one(text):
        return None
    try:
        append = (_timed_decoder if extensions else _decoder).decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):  # ValidationError is a DecodeError
        return None
    return append if _is_right(append) else None


def _looks_like_one(text: str) -> bool:
    return (
        text.find(_MARK, 0, _MARK_WITHIN_CHARS) >= 0 or text.find(_MARK, -_MARK_WITHIN_CHARS) >= 0
    )


def _is_right(append: FastAppend) -> bool:
    size_bytes = len(append.audio)
    if not 0 < size_bytes <= limits.MAX_AUDIO_BYTES or size_bytes % 2:
        return False
    if append.event_id is not None and len(append.event_id) > limits.MAX_ID_CHARS:
        return False
    if not isinstance(append, TimedFastAppend) or append.captured_at_ms is None:
        return True
    return _CAPTURED_AT.holds(append.captured_at_ms)
