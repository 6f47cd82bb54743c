"""What is written in the pictures of one session: which readings are under way, and what the
language model is told of them.

A frame is read while the conversation goes on, and the note on it comes behind what was said
meanwhile. A short note will do until somebody asks about what is written; then the model gets a
longer one, and small print is read from the same picture more closely. An answer waits only for a
reading that it needs: of a picture sent with the question, or of what the question is about.
"""

from __future__ import annotations

from dataclasses import dataclass

from headstart.engine import api
from headstart.engine.interfaces import Look, PictureReader, Reading
from headstart.engine.kvcache.token_stream import Stream

# How long an answer waits for a reading: to a question about what is written, or to another one,
# sent with a picture.
WAIT_NS = 8_000_000_000
WAIT_UNASKED_NS = 2_000_000_000

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
