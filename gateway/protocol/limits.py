"""The ranges that the schema's types do not know, in one table.

Where the API states a range (threshold, speed, max_output_tokens, metadata) it is that one; the
others are generous bounds that keep one event's cost bounded. Strings are measured in characters.
"""

from __future__ import annotations

from typing import Any

from annotated_types import Ge, Le, MaxLen, MinLen

MIB = 1 << 20

MAX_AUDIO_BYTES = 15 * MIB  # of decoded audio in one append, as the API has it
MAX_EVENT_CHARS = 24 * MIB  # of one event's JSON: a full append in base64, and room around it
MAX_EVENT_VALUES = 20_000  # commas and brackets: bounds the time that decoding one event takes
MAX_OBJECT_KEYS = 256  # bounds, with arrays that stop at their first error, the errors collected
MAX_DEPTH = 64  # of nested objects and arrays; tool schemas nest a dozen deep
MAX_STRING_CHARS = MIB // 4  # of any string without a limit of its own, and of an item's text
MAX_SESSION_CHARS = 3 * MIB // 4  # of a session.update
MAX_SESSION_BYTES = 240 * 1024  # of a session's echo, which has to fit a data channel's message
MAX_IMAGE_CHARS = 14 * MIB  # a picture of 10 MiB in base64
MAX_EVENT_PICTURES = 64  # in all items of one event
MAX_ITEM_ID_CHARS = 32  # as on the live service; one client's ids are exactly this long
MAX_ID_CHARS = 512  # of ids that only refer to something, and of clients' event ids
MAX_INTEGER = 2**53 - 1  # the largest that every JSON client can carry
MAX_ARRAY = 1024
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512

_AUDIO = (MaxLen(MAX_EVENT_CHARS),)  # held to MAX_AUDIO_BYTES when it is decoded
_NEW_ITEM_ID = (MinLen(1), MaxLen(MAX_ITEM_ID_CHARS))
_ID = (MaxLen(MAX_ID_CHARS),)
_ONE_OF_TWO = (MinLen(1), MaxLen(1))  # text or audio; audio brings its transcript along
_NOT_NEGATIVE = (Ge(0), Le(MAX_INTEGER))

# By field name, or by "Class.field" where the name alone would say too much (the class as the
# `openai` package calls it). A limit holds for the field's strings, numbers and arrays.
LIMITS: dict[str, tuple[Any, ...]] = {
    # turn detection
    "threshold": (Ge(0), Le(1)),
    "prefix_padding_ms": (Ge(0), Le(10_000)),
    "silence_duration_ms": (Ge(0), Le(60_000)),
    "idle_timeout_ms": (Ge(1_000), Le(600_000)),
    # session and response
    "strength": (Ge(0), Le(1)),
    "speed": (Ge(0.25), Le(1.5)),
    "max_output_tokens": (Ge(1), Le(4096)),
    "output_modalities": _ONE_OF_TWO,
    "retention_ratio": (Ge(0), Le(1)),
    "post_instructions": _NOT_NEGATIVE,
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
    "content_index": _NOT_NEGATIVE,
    "audio_end_ms": _NOT_NEGATIVE,
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
