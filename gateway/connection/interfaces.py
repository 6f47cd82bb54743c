"""What the runner needs of its neighbours: the session core, the connection, and a playout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headstart.engine import api
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.session.actions import Action, Hangup, Send
from headstart.gateway.tts.messages import ClauseDone, SynthesisedAudio
from headstart.gateway.tts.status import VoiceStatus
from headstart.gateway.video.decode import DecodedImage, Outcome

if TYPE_CHECKING:  # the schema takes a second to import
    from headstart.gateway.protocol.session_config import SessionUpdate


class SessionCore(Protocol):
    """What the runner needs of `headstart.gateway.session.session.Session`."""

    def preset(self, update: SessionUpdate, now_ns: int) -> None: ...
    def set_server_plays(self, server_plays: bool) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def state(self, now_ns: int) -> str: ...
    def offer_resume(self, token: str, keep_ms: int) -> None: ...
    @property
    def resumable(self) -> bool: ...
    def resumed(self, replayed: int | None, now_ns: int) -> list[Action]: ...
    def start(self, now_ns: int) -> list[Action]: ...
    def prepare(self, text: str) -> Callable[[int], list[Action]]: ...
    def more(self, now_ns: int) -> list[Action]: ...
    def receive_text(self, text: str, now_ns: int) -> list[Action]: ...
    def receive_sound(self, text: str, now_ns: int) -> list[Action] | None: ...
    def receive_binary(self, size: int, now_ns: int) -> list[Action]: ...
    def receive_audio(
        self, pcm24k: bytes, arrival: Arrival | None, now_ns: int
    ) -> list[Action]: ...
    @property
    def frame_size(self) -> api.PictureSize: ...
    @property
    def frame_before(self) -> bytes | None: ...
    @property
    def camera_rung(self) -> str | None: ...
    def receive_image(self, decoded: DecodedImage, now_ns: int) -> list[Action]: ...
    def decoded(self, request_id: int, outcome: Outcome, now_ns: int) -> list[Action]: ...
    def receive_engine(self, event: api.Event, now_ns: int) -> list[Action]: ...
    def engine_lost(self, now_ns: int) -> list[Action]: ...
    def engine_ready(self, ready: api.Ready, now_ns: int) -> list[Action]: ...
    def receive_voice(self, event: SynthesisedAudio | ClauseDone, now_ns: int) -> list[Action]: ...
    def voice_changed(self, status: VoiceStatus, now_ns: int) -> list[Action]: ...
    def playing(self, what: str, position_sample: int, now_ns: int) -> list[Action]: ...
    def cleared(self, dropped_samples: int, now_ns: int) -> list[Action]: ...
    def tick(self, now_ns: int) -> list[Action]: ...
    def sent(self, action: Send, now_ns: int) -> list[Action]: ...
    def close(self, now_ns: int) -> list[Action]: ...


TryInline = Callable[[str], bool]
"""Offers a text to the session without waking the reader; returns whether it was taken."""


class Channel(Protocol):
    """One client's connection for events."""

    async def receive(self, try_inline: TryInline | None = None) -> str | int | None:
        """Returns the next text; for a binary message, which the protocol does not have, its size
        in bytes; None when the client is gone. While this waits, a channel may offer arriving texts
        to `try_inline`; texts it takes are not returned."""

    @property
    def unread_since_ns(self) -> int | None:
        """Since when (`time.monotonic_ns`) a message has been waiting while `receive` returned
        none; None: no message waits, or the channel cannot tell."""

    async def send(self, text: str) -> bool:
        """Returns once `text` was handed to the network; False: the client is gone."""

    def try_send(self, data: bytes) -> bool:
        """Send a text's UTF-8 if that needs no waiting. False: nothing was sent. Not to be called
        while a `send` is running."""

    async def close(self, hangup: Hangup) -> None:
        """Close the connection, giving the client the reason as far as the transport can."""


class Connection(Channel, Protocol):
    """A channel that may be one of several that carry a session, one after the other."""

    @property
    def finished(self) -> bool:
        """After the end: whether one side closed it on purpose, rather than the network."""

    async def answers(self, wait_s: float) -> bool:
        """Check whether the client responds. False: no response within `wait_s`."""

    def cut(self) -> None:
        """Close at once without a close message; `receive` then returns None."""


class Player(Protocol):
    """A transport's own playout (`gateway.transport.webrtc.audio_sender`). Where there is one,
    audio goes to it and not into events."""

    on_started: Callable[[], None]
    on_stopped: Callable[[], None]

    @property
    def sent_samples(self) -> int: ...
    def put(self, pcm24k: bytes) -> bool: ...
    def clear(self) -> int: ...
    def hold(self, held: bool) -> None: ...

    def take_over(self, before: Player) -> None:
        """Continue with the unplayed audio of another playout of its kind, which has ended."""
