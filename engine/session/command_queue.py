"""The waiting commands of one session, in order, and which audio chunks are taken together.

A session that fell behind has several chunks waiting. Chunks that came in real time are then
recognised in one pass, so that the session catches up; and so are those before what ends the
utterance, for the final pass hears them anyway. A file that is sent faster than real time is
told by its arrival times; it is recognised chunk by chunk and so gives the same words as a live
session that is on schedule.

A command with pictures may have to wait until they are encoded, beside the engine's steps. What
stands behind it waits too, except that sound goes past live frames: they are seen as soon as they
are ready, and before anything that ends a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from headstart.engine import api
from headstart.engine.session.errors import SessionOverloaded

# Commands waiting in one session: about ten minutes of half-second chunks. Further commands are
# refused with `SessionOverloaded`; the words recognised so far stay.
MAX_WAITING = 1_200
# Picture bytes waiting. A gateway that heeds `ImagesConsumed` stays far below.
MAX_PICTURE_BYTES = 128 << 20
# Audio taken in one pass of a session that is behind. The recogniser takes this much in one step.
MAX_TOGETHER_SAMPLES = 2 * api.SAMPLE_RATE_HZ
# Chunks count as live if they arrive at least this share of their own length apart. Networks bunch
# packets, but half a second of audio at twice the speed comes from a file.
LIVE_SHARE = 0.5
# A final pass or an answer precedes chunks of other sessions that are late by less than this,
# because a user waits for it. A larger value would let many short turns starve a long one.
URGENT_NS = 1_000_000_000

_URGENT = (api.Hush, api.EndSpeech, api.Respond)


class Encoding(Protocol):
    """A picture that is being encoded (`headstart.engine.interfaces.EncodedPicture`)."""

    @property
    def done(self) -> bool: ...


@dataclass(slots=True)
class Waiting:
    """A waiting command, its deadline, and the encoding of its pictures. `refused`: those of them
    that nobody encodes yet."""

    command: api.Command
    due_ns: int
    encoding: Sequence[Encoding] = ()
    refused: Sequence[api.Image] = ()

    @property
    def is_ready(self) -> bool:
        return all(picture.done for picture in self.encoding)


class CommandQueue:
    """Waiting commands of the session `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[Waiting] = deque()
        self._clips_due_ns = 0  # deadline of the last clip piece
        self.picture_bytes = 0  # in the waiting commands

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, command: api.Command, now_ns: int) -> Waiting:
        """Queue a command. Raises `SessionOverloaded` when the queue is full."""
        if isinstance(command, api.Resume):
            # A final pass that has not begun is not needed any more.
            self.remove(lambda c: isinstance(c, api.Hush))
        if len(self._waiting) >= MAX_WAITING:
            raise SessionOverloaded(self._name, MAX_WAITING)
        pictures = api.picture_bytes(command)
        if pictures and self.picture_bytes + pictures > MAX_PICTURE_BYTES:
            raise SessionOverloaded(self._name, MAX_PICTURE_BYTES, "bytes of pictures")
        due_ns = _due_ns(command, now_ns)
        if isinstance(command, api.Clip):
            due_ns = self._clips_due_ns = max(self._clips_due_ns, now_ns) + _length_ns(command)
        self.picture_bytes += pictures
        self._waiting.append(Waiting(command, due_ns))
        return self._waiting[-1]

    @property
    def due_ns(self) -> int:
        """The earliest deadline in the queue, since a command is as urgent as those behind it.

        A clip in front keeps its own deadline: minutes of clips may come at once, and they are
        recognised no sooner than the live speech of other sessions.
        """
        if isinstance(self._waiting[0].command, api.Clip):
            return self._waiting[0].due_ns
        return min(waiting.due_ns for waiting in self._waiting)

    def remove(self, unwanted: Callable[[api.Command], bool]) -> bool:
        """Remove the `unwanted` commands; whether there were any."""
        kept = deque(w for w in self._waiting if not unwanted(w.command))
        found = len(kept) < len(self._waiting)
        self._waiting = kept
        self.picture_bytes = sum(api.picture_bytes(waiting.command) for waiting in kept)
        return found

    def _next_index(self) -> int | None:
        """Index of the command to carry out next; None: nothing can be done before a picture is
        encoded, or nothing waits."""
        for index, waiting in enumerate(self._waiting):
            if waiting.is_ready and (not index or isinstance(waiting.command, api.Audio)):
                return index
            if not isinstance(waiting.command, api.Frame):
                return None
        return None

    @property
    def is_blocked(self) -> bool:
        """Whether all that waits, if anything, has to wait for pictures."""
        return bool(self._waiting) and self._next_index() is None

    @property
    def front(self) -> Waiting:
        """The oldest command that waits; there must be one."""
        return self._waiting[0]

    @property
    def next(self) -> api.Command | None:
        index = self._next_index()
        return None if index is None else self._waiting[index].command

    @property
    def next_is_audio(self) -> bool:
        return isinstance(self.next, api.Audio)

    @property
    def has_audio(self) -> bool:
        return any(isinstance(waiting.command, api.Audio) for waiting in self._waiting)

    def pop(self) -> api.Command:
        """Remove and return the next command."""
        index = self._next_index()
        assert index is not None, "nothing can be carried out"
        command = self._waiting[index].command
        del self._waiting[index]
        self.picture_bytes -= api.picture_bytes(command)
        return command

    def pop_audio(self, now_ns: int) -> tuple[api.Audio, ...]:
        """Remove and return the next chunk. If it is late, or the utterance ends behind the chunks
        that wait, the following live ones of the same turn come with it, up to
        `MAX_TOGETHER_SAMPLES` in all."""
        chunks = self._next_chunks(now_ns)
        first = self._next_index() or 0
        for _ in chunks:
            del self._waiting[first]
        return tuple(chunks)

    def ends_behind_audio(self, now_ns: int) -> bool:
        """Whether the next commands are chunks that `pop_audio` returns at once and, right behind
        them, one that ends the utterance, perhaps for a while only."""
        if self._next_index() != 0 or not self.next_is_audio:
            return False
        waiting = list(self._audio_in_front())
        return self._ends_behind(waiting) and len(self._next_chunks(now_ns)) == len(waiting)

    def _next_chunks(self, now_ns: int) -> list[api.Audio]:
        chunks: list[api.Audio] = []
        samples = 0
        waiting = list(self._audio_in_front())
        together = chunk_due_ns(waiting[0]) < now_ns or self._ends_behind(waiting)
        for chunk in waiting:
            if chunks:
                before = chunks[-1]
                fits = samples + chunk.samples <= MAX_TOGETHER_SAMPLES
                live = before.ref == chunk.ref and _came_live(before, chunk)
                if not (together and fits and live):
                    break
            chunks.append(chunk)
            samples += chunk.samples
        return chunks

    def _ends_behind(self, sound: Sequence[api.Audio]) -> bool:
        """Whether a command that ends the utterance stands right behind `sound`, which is next."""
        behind = (self._next_index() or 0) + len(sound)
        if behind >= len(self._waiting):
            return False
        return isinstance(self._waiting[behind].command, api.Hush | api.EndSpeech)

    def _audio_in_front(self) -> Iterator[api.Audio]:
        for waiting in islice(self._waiting, self._next_index() or 0, None):
            if not isinstance(waiting.command, api.Audio):
                return
            yield waiting.command


def chunk_due_ns(audio: api.Audio) -> int:
    """A chunk's deadline: the arrival of the next one."""
    return audio.received_ns + _length_ns(audio)


def _length_ns(sound: api.Audio | api.Clip) -> int:
    return sound.samples * 10**9 // api.SAMPLE_RATE_HZ


def _due_ns(command: api.Command, now_ns: int) -> int:
    if isinstance(command, api.Audio):
        return chunk_due_ns(command)
    return now_ns - URGENT_NS if isinstance(command, _URGENT) else now_ns


def _came_live(before: api.Audio, after: api.Audio) -> bool:
    return after.received_ns - before.received_ns >= LIVE_SHARE * _length_ns(after)
