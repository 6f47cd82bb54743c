"""What a session core asks of the shell around it: the only things that leave a `Session`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.engine.api import SMALL_PICTURE, Command, PictureSize
from headstart.gateway.tts.messages import Speak, Stop
from headstart.gateway.video.decode import Encoded


@dataclass(frozen=True, slots=True)
class Send:
    """One protocol event for the client. With `wants_sent_stamp` the shell calls `Session.sent`
    with the instant at which the event had been written to the socket."""

    event: dict[str, Any]
    wants_sent_stamp: bool = False


@dataclass(frozen=True, slots=True)
class SendToEngine:
    """One command for the engine."""

    command: Command


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the connection, once all that was sent before is written."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendToTts:
    """One command for the voice: speak a clause, or stop."""

    command: Speak | Stop


@dataclass(frozen=True, slots=True)
class Play:
    """Sound of an answer, s16 mono at 24 kHz. A transport with a playout of its own gets `pcm`;
    any other gets `event`, `response.output_audio.delta`, with the sound put in as its `delta`: as
    `encoded`, if the client wants another format. `wants_sent_stamp`: as in `Send`."""

    event: dict[str, Any]
    pcm: bytes
    encoded: bytes | None = None
    wants_sent_stamp: bool = False


@dataclass(frozen=True, slots=True)
class ClearPlayout:
    """Drop what a playout of our own still holds; the shell answers with `Session.cleared`.
    Where the client plays, this is the client's business."""


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode pictures off the loop, none larger than `size`, then call `Session.decoded` with
    `ticket` and what came of it; `ordered`: before any further event of the client's."""

    ticket: int
    pictures: tuple[Encoded, ...]
    ordered: bool
    size: PictureSize = SMALL_PICTURE


@dataclass(frozen=True, slots=True)
class ContinueLater:
    """There is more of this event to do: call `Session.more` when all others have had their turn,
    before the client's next event."""


@dataclass(frozen=True, slots=True)
class HoldPlayout:
    """Have a playout of our own stand still, or go on; `ClearPlayout` ends a hold. Where the client
    plays, nothing happens."""

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
