"""Ranges beyond the schema's types: `RANGES` for numbers, `LIMITS` for strings and arrays.

Where the API states a range (threshold, speed, max_output_tokens, metadata) it is used; the others
are generous limits that bound the cost of one event. Strings are measured in characters.

Every number that a client can send has a row in `RANGES`, in events and in HTTP bodies. One test
visits all fields, and another sends each of them everything that JSON can hold.

"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from annotated_types import Ge, Le, MaxLen, MinLen

MIB = 1 << 20

MAX_AUDIO_BYTES = 15 * MIB  # of decoded audio in one append, as in the API
MAX_EVENT_CHARS = 24 * MIB  # of one event's JSON: a full append in base64, with a margin
MAX_EVENT_VALUES = 20_000  # commas and brackets: bounds the time to decode one event
MAX_OBJECT_KEYS = 256  # with arrays that stop at their first error, bounds the errors collected
MAX_DEPTH = 64  # of nested objects and arrays; tool schemas nest a dozen deep
MAX_STRING_CHARS = MIB // 4  # of any string without its own limit, and of an item's text
MAX_SESSION_CHARS = 3 * MIB // 4  # of a session.update
MAX_SESSION_BYTES = 240 * 1024  # of a session's echo, which must fit a data channel message
MAX_IMAGE_CHARS = 14 * MIB  # a picture of 10 MiB in base64
MAX_EVENT_PICTURES = 64  # in all items of one event
MAX_ITEM_ID_CHARS = 32  # as on the live service; one client's ids are exactly this long
MAX_ID_CHARS = 512  # of ids that refer to something, and of clients' event ids
MAX_INTEGER = 2**53 - 1  # the largest that every JSON client can represent
MAX_ARRAY = 1024
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512

_AUDIO = (MaxLen(MAX_EVENT_CHARS),)  # checked against MAX_AUDIO_BYTES when it is decoded
_NEW_ITEM_ID = (MinLen(1), MaxLen(MAX_ITEM_ID_CHARS))
_ID = (MaxLen(MAX_ID_CHARS),)
_ONE_OF_TWO = (MinLen(1), MaxLen(1))  # text or audio; audio brings its transcript along


@dataclass(frozen=True, slots=True)
class Range:
    """A closed range."""

    least: float
    most: float

    @property
    def marks(self) -> tuple[Any, ...]:
        return (Ge(self.least), Le(self.most))

    def holds(self, value: float) -> bool:
        """False for NaN."""
        return self.least <= value <= self.most


_SHARE = Range(0, 1)
_COUNT = Range(0, MAX_INTEGER)
_CLOCK_MS = Range(0, MAX_INTEGER)  # with any zero: 285,000 years in whole milliseconds
_ANY_CODE = Range(-MAX_INTEGER, MAX_INTEGER)

# By field name, or by "Class.field" where the name alone is ambiguous (the class as the `openai`
# package names it); fields of HTTP bodies by their path.
RANGES: dict[str, Range] = {
    # turn detection
    "threshold": _SHARE,
    "prefix_padding_ms": Range(0, 10_000),
    "silence_duration_ms": Range(40, 60_000),  # at least as the setting `silence_ms`
    "idle_timeout_ms": Range(1_000, 600_000),
    # session and response
    "strength": _SHARE,
    "speed": Range(0.25, 1.5),
    "max_output_tokens": Range(1, 4096),
    "retention_ratio": _SHARE,
    "post_instructions": _COUNT,
    # events and items
    "content_index": _COUNT,
    "audio_end_ms": _COUNT,
    "RealtimeMcpProtocolError.code": _ANY_CODE,  # in items that are refused anyway
    "RealtimeMcphttpError.code": _ANY_CODE,
    # ours
    "temperature": Range(0, 2),
    "top_p": _SHARE,
    "top_k": Range(0, 1_000_000),
    "repetition_penalty": Range(0.1, 10),
    "seed": _COUNT,
    "max_sentences": Range(0, 1000),
    "scale": Range(0.05, 1),
    "fps": Range(0.05, 30),
    "motion": _SHARE,
    "scene": Range(0, 255),
    "flow": Range(0, 10),
    "max_gap_ms": Range(0, 3_600_000),
    "min_frames": Range(0, 100),
    "max_frames": Range(0, 10_000),
    "tokens": Range(256, 10_000_000),
    "vision_tokens": Range(1, 10_000_000),
    "latency_budget_ms": Range(1, 600_000),
    "captured_at_ms": _CLOCK_MS,
    "timestamp_ms": _CLOCK_MS,
    "played_at_ms": _CLOCK_MS,
    "delay_ms": Range(0, 600_000),
    # HTTP
    "expires_after.seconds": Range(10, 7_200),
}

# By the same keys. A limit applies to the field's strings and arrays.
LIMITS: dict[str, tuple[Any, ...]] = {
    # session and response
    "output_modalities": _ONE_OF_TWO,
    "tools": (MaxLen(MAX_ARRAY),),
    "keywords": (MaxLen(MAX_ARRAY),),
    "languages": (MaxLen(MAX_ARRAY),),
    "RealtimeResponseCreateParams.input": (MaxLen(MAX_ARRAY),),
    # events and items
    "event_id": _ID,
    "item_id": _ID,
    "previous_item_id": _ID,
    "response_id": _ID,
    "ResponseItemReference.id": _ID,
    "content": (MaxLen(MAX_ARRAY),),
    "call_id": _NEW_ITEM_ID,
    "RealtimeConversationItemSystemMessage.id": _NEW_ITEM_ID,
    "RealtimeConversationItemUserMessage.id": _NEW_ITEM_ID,
    "RealtimeConversationItemAssistantMessage.id": _NEW_ITEM_ID,
    "RealtimeConversationItemFunctionCall.id": _NEW_ITEM_ID,
    "RealtimeConversationItemFunctionCallOutput.id": _NEW_ITEM_ID,
    "InputAudioBufferAppendEvent.audio": _AUDIO,
    "Content.audio": _AUDIO,
    "image_url": (MaxLen(MAX_IMAGE_CHARS),),
    "InputImageBufferAppend.image": (MaxLen(MAX_IMAGE_CHARS),),
}
