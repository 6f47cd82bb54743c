"""What this server speaks beyond the API: one key of the session, two client events, one field.

`session.gateway` turns our own server events and settings on; nothing of ours is sent to a session
that did not send it. `input_image_buffer.append` is spelt as another vendor's clients send it. What
numbers may be is in `limits.RANGES`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import MaxLen
from openai.types.realtime import (
    InputAudioBufferAppendEvent,
    RealtimeSessionCreateRequest,
    RealtimeTranscriptionSessionCreateRequest,
)
from pydantic import BaseModel

GatewayEventName = Literal[
    "latency", "chunks", "hearing", "endpoint", "engine", "voice", "interruption"
]
Interruption = Literal["words", "speech"]
Endpointing = Literal["fixed", "adaptive", "semantic"]


class SamplingOptions(BaseModel):
    """How the answer's tokens are chosen; what is absent or null stays as the server has it."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_sentences: int | None = None


class VideoOptions(BaseModel):
    """Which of a camera's frames the model sees; what is absent or null stays as the server has it.

    `sampler`: "scene" keeps frames that differ from the last kept one by `motion` (mean absolute
    difference of luma, 0 to 1), and one every `max_gap_ms`, at most `fps` a second, fewer while the
    engine is busy; "uniform" keeps `fps` a second; "all" keeps every frame. `max_frames`: of one
    turn, 0 for no limit.
    """

    sampler: Literal["scene", "uniform", "all"] | None = None
    fps: float | None = None
    motion: float | None = None
    max_gap_ms: float | None = None
    max_frames: int | None = None


class WindowOptions(BaseModel):
    """How much of a long session the model remembers, in tokens: of everything, and of pictures.

    Older pictures and turns are forgotten, whole ones; the instructions never are. With `summarise`
    the model notes in a few sentences what is about to go. What is absent or null stays as the
    server has it; more than the model's context counts as all of it.
    """

    tokens: int | None = None
    vision_tokens: int | None = None
    summarise: bool | None = None


class GatewayOptions(BaseModel):
    """`events`: which of our server events to send. `chunk_ms`: how much audio is heard at once.
    `latency_budget_ms`: endpoint to first token, over which a turn counts as late. `video`: which
    camera frames count. `interruption`: what ends an answer under `interrupt_response`, any
    "speech" at once, or "words" that are more than a sign of listening. `endpointing`: what
    `server_vad` makes of its silence: that length, or one that follows the speaker's pauses, or
    also the language model. `window`: how much is remembered. `resume`:
    keep the session when its connection breaks, and say by which token it is found again."""

    events: Annotated[list[GatewayEventName], MaxLen(16)] | None = None
    chunk_ms: Literal[200, 500, 1000] | None = None
    sampling: SamplingOptions | None = None
    video: VideoOptions | None = None
    window: WindowOptions | None = None
    latency_budget_ms: float | None = None
    interruption: Interruption | None = None
    endpointing: Endpointing | None = None
    resume: bool | None = None


class GatewaySession(RealtimeSessionCreateRequest):
    """A `session.update`'s session with our key in it."""

    gateway: GatewayOptions | None = None


class GatewayTranscriptionSession(RealtimeTranscriptionSessionCreateRequest):
    """The same of a session that only transcribes."""

    gateway: GatewayOptions | None = None


class TimedAudioAppend(InputAudioBufferAppendEvent):
    """`captured_at_ms`: the client's clock when the append's last sample was recorded."""

    captured_at_ms: float | None = None


class InputImageBufferAppend(BaseModel):
    """A camera frame: base64 or a data URI of a PNG or JPEG. Answered by nothing.

    `timestamp_ms` is the client's clock when the frame was taken.
    """

    type: Literal["input_image_buffer.append"]
    image: str
    event_id: str | None = None
    timestamp_ms: float | None = None


class PlayoutStarted(BaseModel):
    """The client has begun to play a response. Answered by nothing; it completes the turn's record.

    `delay_ms`: how long after the first of its sound had come, or `played_at_ms`: when, by the
    clock that `captured_at_ms` is of. One of them; the second counts if there are both.
    """

    type: Literal["gateway.playout.started"]
    response_id: str
    event_id: str | None = None
    delay_ms: float | None = None
    played_at_ms: float | None = None
