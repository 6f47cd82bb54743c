"""One server event as one frame that every client takes.

The default of the strictest WebSocket client is 1 MiB, and a data channel is closed by its peer at
256 KiB. What an item holds may be shortened in its echo, for the client has it; any other event
that does not fit becomes an error, which is better than the end of the connection.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from headstart.gateway.protocol.errors import server_error
from headstart.gateway.protocol.items import Json

FRAME_BYTES_MAX: Final = 1024 * 1024 - 1
CHANNEL_BYTES_MAX: Final = 256 * 1024 - 1
_SHORTENED = "text", "transcript", "output", "arguments"
_MARK = "…"


def encode(event: Json, limit_bytes: int = FRAME_BYTES_MAX) -> bytes:
    """The event as JSON of at most `limit_bytes`."""
    encoded = msgspec.json.encode(event)
    if len(encoded) <= limit_bytes:
        return encoded
    if isinstance(event.get("item"), dict):
        for chars in (limit_bytes // 16, 1024, 16):
            encoded = msgspec.json.encode(event | {"item": _shortened(event["item"], chars)})
            if len(encoded) <= limit_bytes:
                return encoded
    message = (
        f"An event of type '{event['type']}' was larger than {limit_bytes} bytes and left out."
    )
    error = server_error("event_too_large", message)
    return msgspec.json.encode(error.to_event(event["event_id"]))


def _shortened(item: Json, chars: int) -> Json:
    """An item with at most `chars` in each of its texts, and without pictures."""
    short = copy.deepcopy(item)
    parts: list[dict[str, Any]] = [short, *short.get("content", ())]
    for part in parts:
        part.pop("image_url", None)
        for key in _SHORTENED:
            if isinstance(part.get(key), str) and len(part[key]) > chars:
                part[key] = part[key][:chars] + _MARK
    return short
