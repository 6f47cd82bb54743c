"""The messages between gateway and engine, and their encoding.

They travel as msgpack over ZeroMQ: from the engine's DEALER to a DEALER of its own in the gateway,
or to the ROUTER that engines from elsewhere connect to, then with keys (`keys`). The gateway sends
`Command`s, the engine answers with `Event`s. All audio is 16 kHz mono. Sample numbers count the
samples received since the session started, so that live and faster-than-real-time runs have the
same numbers. Instants are `time.monotonic_ns()`, which is one clock for all processes of a machine;
those of an engine on another one are translated by the gateway.

An answer has a `generation`, a number that only grows within a session. An event whose generation
is not the session's current one is stale, and the receiver drops it.

Beside the messages are `deferred_import` and `host`, which others use as well.

May import: nothing of ours.
Never: imports anything of the engine or the gateway.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headstart.engine.api.commands import (
    AddItem,
    Audio,
    BeginSpeech,
    Cancel,
    Clip,
    Close,
    Command,
    ContinueSpeech,
    DropSpeech,
    EndSpeech,
    Frame,
    Hush,
    Instruct,
    Leave,
    Open,
    Ping,
    ReleaseSpeech,
    Remember,
    RemoveItem,
    Respond,
    Resume,
    picture_bytes,
)
from headstart.engine.api.events import (
    LIBRARIES,
    STEP_SECONDS_LE,
    STEP_SESSIONS_LE,
    STEP_TOKENS_LE,
    Call,
    Chunk,
    ClipHeard,
    Counts,
    Delta,
    Draining,
    EndOfMessage,
    Event,
    Failed,
    Finished,
    Heard,
    Hearing,
    ImagesConsumed,
    LlmServerStatus,
    LlmServerTotals,
    Loading,
    ModelInfo,
    Moved,
    Prepared,
    Pressure,
    Ready,
    Stats,
    StepStats,
    StepTotals,
)
from headstart.engine.api.values import (
    MAX_FRAME_TOKENS,
    MIN_FRAME_TOKENS,
    SAMPLE_RATE_HZ,
    SMALL_PICTURE,
    FinishReason,
    Image,
    Item,
    KvStats,
    Level,
    Message,
    Move,
    Part,
    PictureSize,
    Role,
    Sampling,
    Sound,
    Span,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    TurnRef,
    Usage,
    Window,
    call_item_id,
)

__all__ = [
    "LIBRARIES",
    "MAX_FRAME_TOKENS",
    "MIN_FRAME_TOKENS",
    "SAMPLE_RATE_HZ",
    "SMALL_PICTURE",
    "STEP_SECONDS_LE",
    "STEP_SESSIONS_LE",
    "STEP_TOKENS_LE",
    "AddItem",
    "Audio",
    "BeginSpeech",
    "Call",
    "Cancel",
    "Chunk",
    "Clip",
    "ClipHeard",
    "Close",
    "Command",
    "ContinueSpeech",
    "Counts",
    "Delta",
    "Draining",
    "DropSpeech",
    "EndOfMessage",
    "EndSpeech",
    "Event",
    "Failed",
    "FinishReason",
    "Finished",
    "Frame",
    "Heard",
    "Hearing",
    "Hush",
    "Image",
    "ImagesConsumed",
    "Instruct",
    "Item",
    "KvStats",
    "Leave",
    "Level",
    "LlmServerStatus",
    "LlmServerTotals",
    "Loading",
    "Message",
    "ModelInfo",
    "Move",
    "Moved",
    "Open",
    "Part",
    "PictureSize",
    "Ping",
    "Prepared",
    "Pressure",
    "Ready",
    "ReleaseSpeech",
    "Remember",
    "RemoveItem",
    "Respond",
    "Resume",
    "Role",
    "Sampling",
    "Sound",
    "Span",
    "Stats",
    "StepStats",
    "StepTotals",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "TurnRef",
    "Usage",
    "Window",
    "call_item_id",
    "decode_command",
    "decode_event",
    "encode",
    "picture_bytes",
]

_Message = TypeVar("_Message")
_encoder = msgspec.msgpack.Encoder()
_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode(message: Command | Event) -> bytes:
    """One message as msgpack bytes."""
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """Decode what a gateway sent. Raises `msgspec.ValidationError` or `DecodeError`."""
    return _decoded(_command_decoder, data)


def decode_event(data: bytes) -> Event:
    """Decode what an engine sent. Raises `msgspec.ValidationError` or `DecodeError`."""
    return _decoded(_event_decoder, data)


def _decoded(decoder: msgspec.msgpack.Decoder[_Message], data: bytes) -> _Message:
    """msgspec has other errors for text that is no UTF-8, and for what nests without end."""
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
