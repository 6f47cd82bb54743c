"""Invalid events of a client, among them some that only a server that mixes up sessions accepts.

Each must be answered by exactly one `error` with its `event_id`, unless the server cannot read that
far; then the error's code is known.
"""

from __future__ import annotations

import base64
import json
import random
from typing import Any

from headstart.benchmarks.soak.canary import Secret
from headstart.benchmarks.soak.sounds import append_event

Event = dict[str, Any]

ODD_BYTES = base64.b64encode(bytes(961)).decode()
UNREADABLE = (
    '{"type": "response.create"',
    "not json",
    "[]",
    '"text"',
    "{}",
    "\x00",
    '{"type": 7}',
    '{"type": "response.create", "event_id": "deep", "x": ' + "[" * 200 + "]" * 200 + "}",
)
"""Contains nothing that an error could refer to."""


def invalid_events(rng: random.Random, secret: Secret, stranger: str) -> list[Event]:
    """All invalid events, with ids of their own. `stranger`: the code of another visit."""
    told = [*_sounds(), *_items(secret, stranger), *_settings(), *_responses(stranger)]
    rng.shuffle(told)
    secret.known.add(stranger)  # what this client sends may be echoed to it
    for event in told:
        event["event_id"] = f"lie_{secret.code}_{rng.getrandbits(48):x}"
    return told


def _sounds() -> list[Event]:
    append = {"type": "input_audio_buffer.append"}
    return [
        {**append, "audio": "!!not base64!!"},
        {**append, "audio": ODD_BYTES},  # half a sample
        {**append, "audio": ""},
        {**append, "audio": 7},
        {**append},
        {**json.loads(append_event(bytes(4))), "rate": 8000},
        {"type": "input_image_buffer.append", "image": "data:image/png;base64,AAAA"},
    ]


def _items(secret: Secret, stranger: str) -> list[Event]:
    mine = f"nothing_{secret.code}"
    create = {"type": "conversation.item.create"}
    content = [{"type": "input_text", "text": "hello"}]
    message = {"type": "message", "role": "user", "content": content}
    return [
        {"type": "conversation.item.delete", "item_id": mine},
        {"type": "conversation.item.delete", "item_id": item_id(stranger, 0)},
        {"type": "conversation.item.retrieve", "item_id": item_id(stranger, 0)},
        {
            "type": "conversation.item.truncate",
            "item_id": item_id(stranger, 0),
            "content_index": 0,
            "audio_end_ms": 1 << 40,
        },
        {**create, "item": message, "previous_item_id": item_id(stranger, 0)},
        {**create, "item": {**message, "role": "assistant"}},
        {**create, "item": {**message, "role": "king"}},
        {**create, "item": {**message, "content": [{"type": "input_image", "image_url": "x"}]}},
        {**create, "item": {"type": "message", "role": "user", "content": "hello"}},
        {**create, "item": {**message, "id": "x" * 5000}},
        {**create, "item": None},
    ]


def _settings() -> list[Event]:
    def update(**audio_input: Any) -> Event:
        session = {"type": "realtime", "audio": {"input": audio_input}}
        return {"type": "session.update", "session": session}

    return [
        update(format={"type": "audio/pcm", "rate": 8000}),
        update(format={"type": "audio/mp3", "rate": 24_000}),
        update(turn_detection={"type": "server_vad", "threshold": 9}),
        update(turn_detection={"type": "server_vad", "silence_duration_ms": -1}),
        update(volume=11),
        {"type": "session.update", "session": {"type": "realtime", "output_modalities": ["smell"]}},
        {"type": "session.update", "session": {"type": "realtime", "max_output_tokens": -3}},
        {"type": "session.update", "session": []},
    ]


def _responses(stranger: str) -> list[Event]:
    return [
        {"type": "response.cancel", "response_id": f"resp_{stranger}"},
        {"type": "response.create", "response": {"output_modalities": ["smell"]}},
        {"type": "response.create", "response": {"input": [{"type": "item_reference", "id": "x"}]}},
        {"type": "no.such.event"},
        {"type": "response.create", "surprise": _deep(5)},
    ]


def _deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def item_id(code: str, number: int) -> str:
    """The id that visits give to their items, so that others can ask for them."""
    return f"i{number}_{code}"
