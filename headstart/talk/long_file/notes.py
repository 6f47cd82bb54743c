"""What is known of a recording: a note of each part, and digests of several. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from headstart.talk.connection.session import Event
from headstart.talk.long_file.parts import Part
from headstart.talk.long_file.transcription import Line
from headstart.talk.media.times import clock

SHOWN, SAID = "shown", "said"
_UNKNOWN = re.compile(
    r"\b(?:can['\u2019]t|cannot|can not|couldn['\u2019]t|could not) (?:tell|see|say|make out)\b"
)
_WORD = re.compile(r"\w+")
_QUOTED_SHARE = 0.8
"""Of the words that are written, from which on a caption may only repeat them."""
_INTRODUCTION_WORDS = 4
"""Of a caption that only repeats them, as in "a slide that says"; a longer one may have as many
more of its own as are written."""


@dataclass(frozen=True)
class Caption:
    """What the model says of one picture. `lines`: what is written in it, as the server read it."""

    at_s: float
    text: str
    lines: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """The lines in one."""
        return " / ".join(self.lines)

    def shows_the_same(self, other: Caption) -> bool:
        return (self.text, self.lines) == (other.text, other.lines)

    def to_wire(self) -> Event:
        return {"at_s": round(self.at_s, 2), "text": self.text, "written": list(self.lines)}


@dataclass(frozen=True)
class Entry:
    """One line of a note, of `kind` "shown" or "said". `has_writing`: whether the words are of a
    picture. Times in s of the recording."""

    start_s: float
    end_s: float
    kind: str
    text: str
    has_writing: bool = False

    def __str__(self) -> str:
        return f"{clock(self.start_s)} {self.kind}: {self.text}"

    @property
    def is_unknown(self) -> bool:
        """Whether it is a picture of which the model can't tell what it shows."""
        return not self.has_writing and _UNKNOWN.search(self.text) is not None

    @property
    def sentence(self) -> str:
        """As an answer to when it is shown or said."""
        what = "the video shows this:" if self.kind == SHOWN else "someone says:"
        return f"At {clock(self.start_s)} {what} {self.text}"


@dataclass
class Note:
    """Of one part. `seen`: the model's summary of it, or `captions` of its pictures; `heard`: what
    was said, line by line; `shown_s`: times of the pictures it saw, and `side_px` what they were
    fitted into (None: without a summary). As text it is what the model reads: the summary, then
    what is shown and said in order of time."""

    part: Part
    seen: str = ""
    heard: list[Line] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    shown_s: list[float] = field(default_factory=list)
    side_px: int | None = None
    sampled: int = 0
    took_s: float = 0.0
    usage: Event | None = None

    @property
    def when(self) -> str:
        return f"{clock(self.part.start_s)}-{clock(self.part.end_s)}"

    def new_lines(self) -> list[Line]:
        """Those that the part before does not have."""
        return [line for line in self.heard if line.end_s > self.part.new_s or not self.part.index]

    @property
    def summary(self) -> str:
        """What is shown, in a sentence or a few, and what is written there."""
        return self.seen or " ".join(shown(caption) for caption in self.captions)

    def entries(self) -> list[Entry]:
        """What is shown and said, in order of time."""
        found = [Entry(c.at_s, c.at_s, SHOWN, shown(c), bool(c.lines)) for c in self.captions]
        found += [Entry(s.start_s, s.end_s, SAID, f'"{s.text}"') for s in self.new_lines()]
        return sorted(found, key=lambda entry: entry.start_s)

    def __str__(self) -> str:
        lines = map(str, self.entries())
        return "\n".join((f"[{self.when}]", *([self.seen] if self.seen else []), *lines))

    def to_wire(self) -> Event:
        return {
            "index": self.part.index,
            "start_s": round(self.part.start_s, 3),
            "end_s": round(self.part.end_s, 3),
            "summary": self.summary,
            "captions": [caption.to_wire() for caption in self.captions],
            "heard": [line.to_wire() for line in self.heard],
            "pictures": [round(at_s, 2) for at_s in self.shown_s],
            "pictures_sampled": self.sampled,
            "pictures_side_px": self.side_px,
            "took_s": round(self.took_s, 2),
            "usage": self.usage,
        }


@dataclass(frozen=True)
class Digest:
    """Of several parts, in one text."""

    start_s: float
    end_s: float
    text: str

    def __str__(self) -> str:
        return f"{clock(self.start_s)}-{clock(self.end_s)}: {self.text}"


def shown(caption: Caption) -> str:
    """What a picture shows, for the model: what is written in it word for word, and what else it
    shows, if the model could say that."""
    if not caption.lines:
        return caption.text
    written = f'a text that says "{caption.written}"'
    if _UNKNOWN.search(caption.text) or _repeats(caption):
        return written
    return f"{caption.text} It has {written}"


def _repeats(caption: Caption) -> bool:
    """Whether the model said little more than what is written."""
    written = set(_WORD.findall(caption.written.lower()))
    said = set(_WORD.findall(caption.text.lower()))
    if not written:  # arrows, bullets
        return not said
    is_quoted = len(written & said) >= _QUOTED_SHARE * len(written)
    return is_quoted and len(said - written) <= _INTRODUCTION_WORDS + len(written)


def groups(notes: Sequence[Note], room_chars: int) -> list[list[Note]]:
    """Consecutive notes, as many as fit together."""
    made: list[list[Note]] = []
    size = 0
    for note in notes:
        cost = len(str(note))
        if not made or size + cost > room_chars:
            made.append([])
            size = 0
        made[-1].append(note)
        size += cost
    return made
