"""How far the engine is behind what it was sent, sound in samples and pictures in bytes, and the
wait until that is less: a picture is megabytes, and a large model looks at it for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from headstart.engine import api

AUDIO_BEHIND_SAMPLES = 30 * api.SAMPLE_RATE_HZ
PICTURES_BEHIND_BYTES = 16 << 20
"""A picture is megabytes, and a large model looks at it for seconds. At most one event's pictures
come on top of that."""

_SPEECH = ("begin_speech", "audio", "hush", "resume", "end_speech")


class CreditWindow:
    """What was sent of one kind and is not acknowledged, by whatever names its parts."""

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
        """So much of that part, or the rest of it. Of a part that is not known (any more): an
        engine that was lost, or speech that was dropped, is still heard of for a while."""
        left = self._by_part.get(part, 0) - amount
        self._set(part, max(0, left))

    def settled(self, part: Hashable) -> None:
        """Nothing of that part will be acknowledged any more."""
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
    """One session's windows. `on_room`: called when the last of them that was spent is not any
    more."""

    def __init__(self, on_room: Callable[[], None] = lambda: None) -> None:
        self.audio = CreditWindow(AUDIO_BEHIND_SAMPLES)
        self.pictures = CreditWindow(PICTURES_BEHIND_BYTES)
        self.must_wait = False
        """A window is spent."""
        self._on_room = on_room

    def told(self, command: api.Command, *, was_sent: bool) -> None:
        """A command for the engine went out, or could not."""
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

    def heard(self, event: api.Event) -> None:
        """What the engine says."""
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
        """Turns are numbers, clips have names."""
        for part in self.audio.parts():
            if isinstance(part, sort):
                self.audio.settled(part)

    def _update(self) -> None:
        before, self.must_wait = self.must_wait, self.audio.is_spent or self.pictures.is_spent
        if before and not self.must_wait:
            self._on_room()
