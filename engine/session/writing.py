"""What is written in the pictures of one session: which readings are under way, and what the
language model is told of them.

A frame is read while the conversation goes on, and the note on it comes behind what was said
meanwhile. A short note will do until somebody asks about what is written; then the model gets a
longer one, and small print is read from the same picture more closely. An answer waits only for a
reading that it needs: of a picture sent with the question, or of what the question is about.

An answer out of band has the pictures of its own items read (`OwnReadings`), and waits as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.engine import api
from headstart.engine.interfaces import Look, PictureReader, Reading
from headstart.engine.kvcache.token_stream import Stream

# How long an answer waits for a reading: to a question about what is written, or to another one,
# sent with a picture; and one out of band whose client is to be told what is written.
WAIT_NS = 8_000_000_000
WAIT_UNASKED_NS = 2_000_000_000
WAIT_REPORTED_NS = 30_000_000_000

Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A note, and where it belongs: behind the tokens `place` of a picture; None: to what is said
    or shown now."""

    text: str
    place: Place | None = None
    live: bool = True


class Writing:
    """The readings of one session, by `reader`; without one there are none."""

    def __init__(self, reader: PictureReader | None, stream: Stream) -> None:
        self._reader, self._stream = reader, stream
        self._waiting: list[tuple[Reading, Place | None]] = []
        self._newest: Reading | None = None  # begun last
        self._told: Reading | None = None
        self._told_text = ""
        self._look = Look.GLANCE  # what the newest question asks for
        self._is_answered = False  # whether an answer to it has begun
        self.spans: list[api.Span] = []
        """Of the readings taken since somebody emptied this."""

    def look_at(self, picture: api.Image, place: Place, *, live: bool) -> None:
        """Begin to read a picture, whose tokens are `place`."""
        if self._reader is None:
            return
        domain = self._stream.share_domain
        begun = self._reader.begin(picture, self._stream.name, domain, self._newest, live=live)
        if begun is not None:
            self._newest = begun
            self._waiting.append((begun, place))

    def ask(self, question: str) -> list[Note]:
        """Take a question. What it gets to know at once of what has been read already."""
        self._is_answered = False
        if self._reader is None:
            return []
        self._look = self._reader.look_for(question)
        newest = self._newest
        caveat = "" if newest is None else self._reader.caveat(question)
        if caveat:
            return [Note(caveat)]
        if self._look is Look.GLANCE or newest is None:
            return []
        if self._look is Look.CLOSELY or (newest.done and newest.has_more):
            closer = self._reader.begin_closer(newest, self._stream.share_domain)
            if closer is not None:
                self._newest = closer
                self._waiting.append((closer, None))
                return []
        if not newest.done or not self._is_news(newest, whole=True):
            return []
        return [Note(self._tell(newest, whole=True))]

    def take(self) -> list[Note]:
        """The notes on what has been read since."""
        done = [(reading, place) for reading, place in self._waiting if reading.done]
        self._waiting = [pair for pair in self._waiting if not pair[0].done]
        notes = []
        for reading, place in done:
            if reading.ended_ns > reading.began_ns:
                self.spans.append(api.Span("read", reading.began_ns, reading.ended_ns))
            whole = self._look is not Look.GLANCE
            if self._is_news(reading, whole=whole):
                notes.append(Note(self._tell(reading, whole=whole), place, reading.live))
        return notes

    @property
    def has_read(self) -> bool:
        """Whether `take` has something to take."""
        return any(reading.done for reading, _ in self._waiting)

    @property
    def is_reading(self) -> bool:
        """Whether a picture is being read, or waits for it."""
        return bool(self._waiting)

    def holds_up(self, waited_ns: int) -> bool:
        """Whether an answer that has waited for so long should wait for a reading."""
        if self._is_answered:
            return False
        if self._look is not Look.GLANCE:
            return bool(self._waiting) and waited_ns < WAIT_NS
        return any(not reading.live for reading, _ in self._waiting) and waited_ns < WAIT_UNASKED_NS

    def answer_begins(self) -> None:
        """The newest question is being answered; a further answer, as behind a function's result,
        does not wait for what it asked."""
        self._is_answered = True

    def close(self) -> None:
        """Drop what is not read yet."""
        if self._reader is not None:
            self._reader.forget(self._stream.name)

    def _is_news(self, reading: Reading, *, whole: bool) -> bool:
        """Whether its note says something that the last one did not."""
        text = reading.note(whole=whole)
        if not text or self._told is None:
            return bool(text)
        longer = len(text) > len(self._told_text)
        if reading is self._told:
            return longer
        if reading.look is Look.CLOSELY:  # of the picture that was told of last, or of another
            return longer or not reading.same_as(self._told)
        return not reading.live or not reading.same_as(self._told)

    def _tell(self, reading: Reading, *, whole: bool) -> str:
        self._told, self._told_text = reading, reading.note(whole=whole)
        return self._told_text


class OutOfBandReadings:
    """The readings for the next answer out of band of one session, the only one that waits."""

    def __init__(self, reader: PictureReader | None, session: str, stream: Stream) -> None:
        self._reader, self._session, self._stream = reader, session, stream
        self._next: tuple[int, OwnReadings] | None = None  # and the answer's generation

    def of(self, command: api.Respond) -> OwnReadings | None:
        """Those of the answer, begun if they are not; None where there is nothing to read."""
        if self._next is not None:
            generation, readings = self._next
            if generation == command.generation:
                return readings
            self.close()
        items = command.items or ()
        shown = any(isinstance(part, api.Image) for item in items for part in item.parts)
        if self._reader is None or not shown:
            return None
        name = f"{self._session}/{command.generation}"
        begun = OwnReadings(
            self._reader, name, self._stream.share_domain, items, reported=command.reports_writing
        )
        self._next = command.generation, begun
        return begun

    def cancel(self, generation: int) -> None:
        """Drop what is not read yet for an answer that will not begin."""
        if self._next is not None and self._next[0] == generation:
            self.close()

    def close(self) -> None:
        """Drop what is not read yet."""
        if self._next is not None:
            self._next[1].close()
            self._next = None


class OwnReadings:
    """The readings of the pictures in an out-of-band answer's own `items`, for its stream.
    `reported`: whether a client is to be told what was read, whatever the question is about."""

    def __init__(
        self,
        reader: PictureReader,
        stream: str,
        domain: bytes,
        items: Sequence[api.Item],
        *,
        reported: bool,
    ) -> None:
        self._reader, self._stream, self._domain = reader, stream, domain
        self._items, self._reported = items, reported
        parts = [part for item in items for part in item.parts]
        text = " ".join(part.text for part in parts if isinstance(part, api.Text))
        self._look = reader.look_for(text)
        pictures = (part for part in parts if isinstance(part, api.Image))
        self._glances = [reader.begin(p, stream, domain, None, live=False) for p in pictures]
        self._closer: dict[int, Reading | None] = {}

    def holds_up(self, waited_ns: int) -> bool:
        """Whether the answer, which has waited for so long, should go on waiting."""
        self._look_closer()
        found = [*self._glances, *self._closer.values()]
        is_reading = any(reading is not None and not reading.done for reading in found)
        limit_ns = WAIT_UNASKED_NS if self._look is Look.GLANCE else WAIT_NS
        return is_reading and waited_ns < (WAIT_REPORTED_NS if self._reported else limit_ns)

    def _look_closer(self) -> None:
        if self._look is Look.GLANCE:
            return
        for number, reading in enumerate(self._glances):
            if reading is None or number in self._closer:
                continue
            if self._look is Look.CLOSELY or (reading.done and reading.has_more):
                self._closer[number] = self._reader.begin_closer(reading, self._domain)

    def noted_items(self) -> tuple[api.Item, ...]:
        """The items with a note behind each picture in which something was read."""
        whole = self._look is not Look.GLANCE
        best = iter(self._best())
        noted = []
        for item in self._items:
            parts: list[api.Part] = []
            for part in item.parts:
                parts.append(part)
                reading = next(best) if isinstance(part, api.Image) else None
                if reading is not None and (note := reading.note(whole=whole)):
                    parts.append(api.Text(note))
            noted.append(api.Item(item.item_id, item.role, tuple(parts)))
        return tuple(noted)

    def lines(self) -> tuple[tuple[str, ...] | None, ...]:
        """What is written in each picture, in order; None for one that is not read."""
        return tuple(None if reading is None else reading.lines for reading in self._best())

    def spans(self) -> list[api.Span]:
        """When they were read."""
        found = (r for r in (*self._glances, *self._closer.values()) if r is not None and r.done)
        return [api.Span("read", r.began_ns, r.ended_ns) for r in found if r.ended_ns > r.began_ns]

    def close(self) -> None:
        """Drop what is not read yet."""
        self._reader.forget(self._stream)

    def _best(self) -> list[Reading | None]:
        """Of each picture the closer reading, if it was read; else the glance, if that was."""
        found = []
        for number, glance in enumerate(self._glances):
            both = (self._closer.get(number), glance)
            read = (r for r in both if r is not None and r.done and not r.given_up)
            found.append(next(read, None))
        return found
