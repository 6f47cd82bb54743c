"""Flow control towards the engine: unacknowledged audio (samples) and images (bytes) per session.

A session that exceeds a limit is not read until the engine has caught up.

"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from headstart.engine import api

AUDIO_BEHIND_SAMPLES = 30 * api.SAMPLE_RATE_HZ
PICTURES_BEHIND_BYTES = 16 << 20
"""An image is megabytes, and a large model takes seconds to process it. One event's images may
exceed this limit."""

_SPEECH = ("begin_speech", "audio", "hush", "resume", "end_speech")


class CreditWindow:
    """What was sent and is not yet acknowledged, by part (a turn, a clip or an image)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.outstanding = 0
        self._by_part: dict[Hashable, int] = {}

    @property
    def is_spent(self) -> bool:
        return self.outstanding > self.limit

    def sent(self, part: Hashable, amount: int) -> None:
        assert amount >= 0
        if amount:
            self._by_part[part] = self._by_part.get(part, 0) + amount
            self.outstanding += amount

    def acknowledged(self, part: Hashable, amount: int) -> None:
        """Acknowledge this amount of a part, at most what is left of it. Unknown parts are ignored:
        acknowledgements still arrive after the engine was lost or speech was dropped."""
        left = self._by_part.get(part, 0) - amount
        self._set(part, max(0, left))

    def settled(self, part: Hashable) -> None:
        """Nothing more of that part will be acknowledged."""
        self._set(part, 0)

    def parts(self) -> tuple[Hashable, ...]:
        return tuple(self._by_part)

    def reset(self) -> None:
        self._by_part.clear()
        self.outstanding = 0

    def _set(self, part: Hashable, left: int) -> None:
        before = self._by_part.pop(part, 0)
        if left:
            self._by_part[part] = left
        self.outstanding += left - before


class FlowControl:
    """The windows of one session. `on_room` is called when none of them is used up any more."""

    def __init__(self, on_room: Callable[[], None] = lambda: None) -> None:
        self.audio = CreditWindow(AUDIO_BEHIND_SAMPLES)
        self.pictures = CreditWindow(PICTURES_BEHIND_BYTES)
        self.must_wait = False
        """A window is spent."""
        self._on_room = on_room

    def command_sent(self, command: api.Command, *, was_sent: bool) -> None:
        """A command was sent to the engine, or could not be sent."""
        match command:
            case api.Audio() if was_sent:
                self.audio.sent(command.ref.turn, command.samples)
            case api.Clip() if was_sent:
                self.audio.sent(command.clip, command.samples)
            case api.DropSpeech():
                self.audio.settled(command.ref.turn)
            case api.AddItem() | api.Respond() | api.Frame() if was_sent:
                self.pictures.sent(None, api.picture_bytes(command))
            case _:
                return
        self._update()

    def engine_event(self, event: api.Event) -> None:
        """Process an engine event."""
        match event:
            case api.Chunk():
                self.audio.acknowledged(event.ref.turn, event.samples)
            case api.Heard():
                self.audio.settled(event.ref.turn)
            case api.ClipHeard():
                self.audio.acknowledged(event.clip, event.samples)
            case api.ImagesConsumed():
                self.pictures.acknowledged(None, event.bytes)
            case api.Failed() if event.about == "clip":
                self._settle_all(str)
            case api.Failed() if event.about in _SPEECH:
                self._settle_all(int)
            case _:
                return
        self._update()

    def reset(self) -> None:
        """The engine was lost, or another one is ready."""
        self.audio.reset()
        self.pictures.reset()
        self._update()

    def _settle_all(self, sort: type[int] | type[str]) -> None:
        """Settle all parts of one kind: turns are ints, clips are strings."""
        for part in self.audio.parts():
            if isinstance(part, sort):
                self.audio.settled(part)

    def _update(self) -> None:
        before, self.must_wait = self.must_wait, self.audio.is_spent or self.pictures.is_spent
        if before and not self.must_wait:
            self._on_room()
