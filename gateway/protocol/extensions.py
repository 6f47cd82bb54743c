"""Our additions to the API: one key of the session, two client events, one field.

`session.gateway` enables our own server events and settings; a session that did not send it gets
nothing of ours. `input_image_buffer.append` is spelt as another vendor's clients send it.
`limits.RANGES` has the numeric ranges.

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
    "latency",
    "chunks",
    "hearing",
    "endpoint",
    "engine",
    "voice",
    "interruption",
    "turn",
    "frames",
    "pictures",
]
Interruption = Literal["words", "speech"]
Endpointing = Literal["fixed", "adaptive", "semantic", "eager"]
Sampler = Literal["motion", "scene", "flow", "sharp", "load", "uniform", "all"]


class SamplingOptions(BaseModel):
    """Sampling parameters of responses; absent or null ones keep the server's values."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_sentences: int | None = None


class VideoOptions(BaseModel):
    """Which camera frames the model sees; absent or null fields keep the server's values.

    `sampler`: "motion" keeps frames that differ from the last kept one by `motion` (mean absolute
    difference of luma, 0 to 1); "scene" the first frame of each scene, and another when it has
    settled, where a scene begins with a change of at least `scene` (mean absolute difference of
    hue, saturation and value, 0 to 255) from one frame to the next; "flow" a frame each time that
    things have moved by `flow` widths of the frame; "sharp" frames that are as sharp as those
    around them; "load" all that the rate allows. All of these keep at most `fps` per second, fewer
    while the engine is busy, and the first three one every `max_gap_ms`. "uniform" keeps `fps` per
    second however busy the engine is; "all" keeps every frame. `min_frames`: the first of a turn
    that "uniform" and "load" keep however close they are; `max_frames`: per turn, 0 for no limit.
    `scale`: the sides of a frame, as a share of those that the model can use.

    """

    sampler: Sampler | None = None
    scale: float | None = None
    fps: float | None = None
    motion: float | None = None
    scene: float | None = None
    flow: float | None = None
    max_gap_ms: float | None = None
    min_frames: int | None = None
    max_frames: int | None = None


class WindowOptions(BaseModel):
    """How much of a long session the model remembers, in tokens: in total, and of images.

    Older images and turns are dropped as a whole; the instructions never are. With `summarise` the
    model summarises in a few sentences what is about to be dropped. Absent or null fields keep the
    server's values; a number above the model's context means all of it.

    """

    tokens: int | None = None
    vision_tokens: int | None = None
    summarise: bool | None = None


class GatewayOptions(BaseModel):
    """`events`: which of our server events to send. `chunk_ms`: how much audio is processed at
    once. `latency_budget_ms`: from the last speech sample (or the request) to the first token
    sent; slower turns count as late. `video`: which camera frames are used. `interruption`:
    what interrupts a response under `interrupt_response`: "speech", any at once, or "words"
    that are not backchannels. `endpointing`: the policy of `server_vad`: a fixed silence, one
    that follows the speaker's pauses, one that also uses the language model, or one that ends
    early where it finds the message whole, and takes the end back if the speaker goes on.
    `window`: how much is remembered. `resume`: keep the session when its connection breaks, and
    send the token for resuming it.
    """

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
    """The same for a transcription session."""

    gateway: GatewayOptions | None = None


class TimedAudioAppend(InputAudioBufferAppendEvent):
    """`captured_at_ms`: the client's clock when the append's last sample was recorded."""

    captured_at_ms: float | None = None


class InputImageBufferAppend(BaseModel):
    """A camera frame: base64 or a data URI of a PNG or JPEG. It gets no reply but for an
    `error`, and `gateway.frame.judged` if the session asked.

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
