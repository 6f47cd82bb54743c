"""Conversation items, content and responses as JSON objects for events.

An optional string without a value is left out, never null: one client's schemas refuse null for
`id`, `role`, `status`, `name` and for a part's `text`, `transcript` and `audio`. The exceptions,
which are null on the real service too, are `content[].transcript`, `usage` and `status_details`.

Content in *items* is spelt `output_text`; *parts* in `response.content_part.*` are spelt `text`.

"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

Json = dict[str, Any]

MAX_ECHOED_IMAGE_CHARS = 64 * 1024  # a camera frame fits; the data channel takes 256 KiB in total

Role = Literal["system", "user", "assistant"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]
StatusReason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class ResponseUsage:
    """Token counts of one response by kind; `cached` counts input tokens found in the cache."""

    input_text: int = 0
    input_audio: int = 0
    input_image: int = 0
    cached: int = 0
    output_text: int = 0
    output_audio: int = 0

    def to_wire(self) -> Json:
        input_tokens = self.input_text + self.input_audio + self.input_image
        output_tokens = self.output_text + self.output_audio
        return {
            "total_tokens": input_tokens + output_tokens,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "input_token_details": {
                "text_tokens": self.input_text,
                "audio_tokens": self.input_audio,
                "image_tokens": self.input_image,
                "cached_tokens": self.cached,
            },
            "output_token_details": {
                "text_tokens": self.output_text,
                "audio_tokens": self.output_audio,
            },
        }


@dataclass(frozen=True, slots=True)
class StatusDetails:
    """Why a response ended; `code` and `message` belong to a failed one."""

    type: Literal["completed", "cancelled", "incomplete", "failed"]
    reason: StatusReason | None = None
    code: str | None = None
    message: str | None = None
    error_type: str = "server_error"

    def to_wire(self) -> Json:
        wire: Json = {"type": self.type}
        if self.reason is not None:
            wire["reason"] = self.reason
        if self.code is not None or self.message is not None:
            wire["error"] = _without_none(
                type=self.error_type, code=self.code, message=self.message
            )
        return wire


def _without_none(**pairs: object) -> Json:
    return {key: value for key, value in pairs.items() if value is not None}


# --- content and parts --------------------------------------------------------------------------


def input_text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def output_text(text: str) -> Json:
    return {"type": "output_text", "text": text}


def input_audio(transcript: str | None) -> Json:
    """A user's utterance; the transcript is null until it is known. The audio is not sent back."""
    return {"type": "input_audio", "transcript": transcript}


def input_image(image_url: str, detail: str | None = None) -> Json:
    return {"type": "input_image", "image_url": image_url} | _without_none(detail=detail)


def text_part(text: str = "") -> Json:
    return {"type": "text", "text": text}


def output_audio(transcript: str) -> Json:
    """What was spoken; the audio itself went to the client and is not kept."""
    return {"type": "output_audio", "transcript": transcript}


def audio_part(transcript: str = "") -> Json:
    return {"type": "audio", "transcript": transcript}


# --- items --------------------------------------------------------------------------------------


def message(
    item_id: str, role: Role, content: Sequence[Json], status: ItemStatus = "completed"
) -> Json:
    """A message item as clients see it; `content`: its parts."""
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "message",
        "status": status,
        "role": role,
        "content": list(content),
    }


def function_call(
    item_id: str, call_id: str, name: str, arguments: str, status: ItemStatus
) -> Json:
    """A function call item as clients see it; `arguments`: JSON, not parsed."""
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def client_item(item_id: str, item: BaseModel) -> Json:
    """Echo of an item that a client created, without its bulk: audio is never sent back, images
    only if small, because an event has to fit a client's frame and data channel."""
    echo = item.model_dump(exclude_unset=True, exclude_none=True)
    room_chars = MAX_ECHOED_IMAGE_CHARS
    for part in echo.get("content", ()):
        part.pop("audio", None)
        if part["type"] == "input_audio":
            part.setdefault("transcript", None)  # until it is known
        room_chars -= len(part.get("image_url", ""))
        if room_chars < 0:
            part.pop("image_url", None)
    return {"object": "realtime.item", "status": "completed"} | echo | {"id": item_id}


# --- responses ----------------------------------------------------------------------------------


def response(
    response_id: str,
    *,
    status: ResponseStatus,
    output: Sequence[Json] = (),
    conversation_id: str | None,
    output_modalities: Sequence[str],
    max_output_tokens: int | Literal["inf"] = "inf",
    audio: Json | None = None,
    metadata: Mapping[str, str] | None = None,
    status_details: StatusDetails | None = None,
    usage: ResponseUsage | None = None,
) -> Json:
    """The response object. `conversation_id` is None out of band; `metadata` is the client's own,
    by which it finds its response; `audio` is `SessionConfig.response_audio()`."""
    wire: Json = {
        "object": "realtime.response",
        "id": response_id,
        "status": status,
        "status_details": status_details.to_wire() if status_details is not None else None,
        "output": list(output),
        "conversation_id": conversation_id,
        "output_modalities": list(output_modalities),
        "max_output_tokens": max_output_tokens,
        "usage": usage.to_wire() if usage is not None else None,
        "metadata": dict(metadata) if metadata is not None else None,
    }
    if audio is not None:
        wire["audio"] = audio
    return wire
