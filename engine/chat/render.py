"""How a conversation reads as tokens: pure functions from what was said to what the model sees.

A session never patches its token stream. It lays out what the stream should read now, and
`Stream.reconcile` keeps the longest common prefix. So partial words, camera frames, speculation,
deleted items and cancelled answers need no code of their own here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headstart.engine.api import Role, Tool
from headstart.engine.chat.accounting import Modality

__all__ = [
    "Chat",
    "Entry",
    "Modality",
    "RenderedItem",
    "RenderedPrompt",
    "Segment",
    "Separator",
    "count",
    "render",
]


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens of one modality, in stream order."""

    modality: Modality
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of the conversation as segments."""

    item_id: str
    role: Role
    segments: tuple[Segment, ...]
    continues: bool = False  # the assistant's message before it, if there is one


class Chat(Protocol):
    """The pieces of a chat template (`headstart.engine.chat.template.ChatFormat`)."""

    @property
    def user_open(self) -> Sequence[int]: ...
    @property
    def user_close(self) -> Sequence[int]: ...
    @property
    def assistant_open(self) -> Sequence[int]: ...
    @property
    def assistant_close(self) -> Sequence[int]: ...
    @property
    def call_beginnings(self) -> frozenset[int]: ...
    def system(self, text: str, tools: Sequence[Tool] = ()) -> Sequence[int]: ...
    def call(self, name: str, arguments: str) -> Sequence[int]: ...
    def call_opening(self, tool: Tool | None = None) -> Sequence[int]: ...
    def result(self, output: str) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Separator:
    """What stands between two items of the same person that follow one another: they read as one
    message, which small models understand better than two."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RenderedItem:
    """Where an entry stands in the tokens: its opening piece or separator begins at `lead`, its own
    tokens at `content`; `segments` are the ranges of those; `end` excludes a closing piece."""

    lead: int
    content: int
    segments: tuple[tuple[int, int], ...]
    end: int
    joined: bool  # to the entry before it, by a separator


@dataclass(slots=True)
class RenderedPrompt:
    """A conversation as tokens, what each of them stands for, and where the entries are."""

    ids: list[int] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    places: list[RenderedItem] = field(default_factory=list)

    def extend(self, ids: Sequence[int], kind: Modality = Modality.TEXT) -> None:
        self.ids.extend(ids)
        self.kinds.extend(bytes((kind,)) * len(ids))

    def add(self, entry: Entry, lead: int, *, joined: bool) -> None:
        """An entry's own tokens; what leads up to them began at `lead`."""
        content = len(self.ids)
        ranges = []
        for segment in entry.segments:
            start = len(self.ids)
            self.extend(segment.ids, segment.modality)
            ranges.append((start, len(self.ids)))
        self.places.append(RenderedItem(lead, content, tuple(ranges), len(self.ids), joined))


def render(
    chat: Chat,
    separator: Separator,
    system: Sequence[int],
    entries: Iterable[Entry],
    *,
    answer_next: bool = False,
    extra_system: Sequence[int] = (),
) -> RenderedPrompt:
    """All tokens of a conversation.

    The last user message is left open, so that words can be appended to it while they are being
    spoken. With `answer_next` it is closed, `extra_system` (instructions for one answer) follows,
    and the assistant's turn is opened: what a decoder needs to begin.
    """
    out = RenderedPrompt()
    out.extend(system)
    opening = {Role.USER: chat.user_open, Role.ASSISTANT: chat.assistant_open, Role.SYSTEM: ()}
    closing = {Role.USER: chat.user_close, Role.ASSISTANT: chat.assistant_close, Role.SYSTEM: ()}
    speaker = Role.SYSTEM
    for entry in entries:
        joined = entry.role is speaker and (speaker is Role.USER or entry.continues)
        if not joined:
            out.extend(closing[speaker])
        lead = len(out.ids)
        out.extend(separator.ids if joined else opening[entry.role])
        speaker = entry.role
        out.add(entry, lead, joined=joined)
    if answer_next or speaker is Role.ASSISTANT:
        out.extend(closing[speaker])
    if answer_next:
        out.extend(extra_system)
        out.extend(chat.assistant_open)
    return out


def count(entries: Iterable[Entry]) -> dict[Modality, int]:
    """Tokens by modality."""
    totals = dict.fromkeys(Modality, 0)
    for entry in entries:
        for segment in entry.segments:
            totals[segment.modality] += len(segment.ids)
    return totals
