"""Encodes a server event as a frame that every client accepts.

The strictest WebSocket client accepts 1 MiB by default, and a browser closes a data channel above
256 KiB. The echo of an item may be shortened, because the client has the item. Any other event that
does not fit is replaced by an error, which is better than losing the connection.

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
    """An item with each text cut to `chars`, and without images."""
    short = copy.deepcopy(item)
    parts: list[dict[str, Any]] = [short, *short.get("content", ())]
    for part in parts:
        part.pop("image_url", None)
        for key in _SHORTENED:
            if isinstance(part.get(key), str) and len(part[key]) > chars:
                part[key] = part[key][:chars] + _MARK
    return short
