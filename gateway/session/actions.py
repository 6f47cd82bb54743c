"""Actions: what a `Session` returns for the session runner to carry out. It has no other output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.engine.api import SMALL_PICTURE, Command, PictureSize
from headstart.gateway.tts.messages import VoiceCommand
from headstart.gateway.video.decode import Encoded


@dataclass(frozen=True, slots=True)
class Send:
    """One protocol event for the client. With `wants_sent_stamp`, the runner calls `Session.sent`
    with the time at which the event was written to the socket."""

    event: dict[str, Any]
    wants_sent_stamp: bool = False


@dataclass(frozen=True, slots=True)
class SendToEngine:
    """One command for the engine."""

    command: Command


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the connection after everything sent earlier has been written."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendToTts:
    """One command for the TTS worker: speak a clause, or stop."""

    command: VoiceCommand


@dataclass(frozen=True, slots=True)
class Play:
    """Audio of a response, s16 mono at 24 kHz. A transport with its own playout gets `pcm`. Any
    other gets `event`, a `response.output_audio.delta`, with the audio filled in as its `delta`:
    `encoded` if the client wants another format, else `pcm`. `wants_sent_stamp`: as in `Send`."""

    event: dict[str, Any]
    pcm: bytes
    encoded: bytes | None = None
    wants_sent_stamp: bool = False


@dataclass(frozen=True, slots=True)
class ClearPlayout:
    """Drop the audio queued in the transport's own playout. The runner then calls
    `Session.cleared`. Does nothing where the client plays the audio itself."""


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode images off the event loop, each scaled to at most `size`, then call `Session.decoded`
    with `request_id` and the outcome. `ordered`: finish before the client's next event is
    processed."""

    request_id: int
    pictures: tuple[Encoded, ...]
    ordered: bool
    size: PictureSize = SMALL_PICTURE


@dataclass(frozen=True, slots=True)
class ContinueLater:
    """The current event has work left. The runner calls `Session.more` after the other sessions had
    their turn and before this client's next event."""


@dataclass(frozen=True, slots=True)
class HoldPlayout:
    """Pause the transport's own playout, or resume it. `ClearPlayout` also ends a pause. Does
    nothing where the client plays the audio itself."""

    held: bool


Action = (
    Send
    | SendToEngine
    | Decode
    | SendToTts
    | Play
    | HoldPlayout
    | ClearPlayout
    | ContinueLater
    | Hangup
)
