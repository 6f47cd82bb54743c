"""Rendering: pure functions from the items of a conversation to tokens.

A session never patches its token stream. It renders what the stream should read now, and
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
    continues: bool = False  # continues the assistant's message before it, if there is one
    whole: tuple[Segment, ...] | None = None  # its segments before it was thinned, if it was


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
    @property
    def system_opens_user(self) -> bool:
        """Whether `system` leaves a user message open, which the first user's text continues."""
        ...

    def system(self, text: str, tools: Sequence[Tool] = ()) -> Sequence[int]:
        """The system message that begins a conversation."""
        ...

    def later_system(self, text: str, tools: Sequence[Tool] = ()) -> Sequence[int]:
        """A system message inside of a conversation."""
        ...

    def call(self, name: str, arguments: str) -> Sequence[int]: ...
    def call_opening(self, tool: Tool | None = None) -> Sequence[int]: ...
    def result(self, output: str) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Separator:
    """Tokens between two consecutive items of one role. They then read as one message, which small
    models understand better than two."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RenderedItem:
    """Where an entry lies in the tokens. `lead`: start of its opening or separator; `content`:
    start of its own tokens; `segments`: ranges of its segments; `end`: end of its own tokens,
    before any closing."""

    lead: int
    content: int
    segments: tuple[tuple[int, int], ...]
    end: int
    joined: bool  # to the entry before it by a separator


@dataclass(slots=True)
class RenderedPrompt:
    """A conversation as tokens, with each token's modality and the entries' locations.

    `opened`: the system prompt opened the first user message, so that the first entry has no
    opening of its own.
    """

    ids: list[int] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    items: list[RenderedItem] = field(default_factory=list)
    opened: bool = False

    def extend(self, ids: Sequence[int], kind: Modality = Modality.TEXT) -> None:
        self.ids.extend(ids)
        self.kinds.extend(bytes((kind,)) * len(ids))

    def add(self, entry: Entry, lead: int, *, joined: bool) -> None:
        """Append an entry's own tokens; its opening or separator began at `lead`."""
        content = len(self.ids)
        ranges = []
        for segment in entry.segments:
            start = len(self.ids)
            self.extend(segment.ids, segment.modality)
            ranges.append((start, len(self.ids)))
        self.items.append(RenderedItem(lead, content, tuple(ranges), len(self.ids), joined))


def render(
    chat: Chat,
    separator: Separator,
    system: Sequence[int],
    entries: Iterable[Entry],
    *,
    answer_next: bool = False,
    extra_system: Sequence[int] = (),
) -> RenderedPrompt:
    """Render a conversation.

    The last user message is left open, so that words can be appended while they are spoken. With
    `answer_next` it is closed, `extra_system` (instructions for one answer) follows, and the
    assistant's turn is opened, ready for decoding.
    """
    out = RenderedPrompt()
    out.extend(system)
    opening = {Role.USER: chat.user_open, Role.ASSISTANT: chat.assistant_open, Role.SYSTEM: ()}
    closing = {Role.USER: chat.user_close, Role.ASSISTANT: chat.assistant_close, Role.SYSTEM: ()}
    out.opened = chat.system_opens_user and bool(system)
    speaker = Role.USER if out.opened else Role.SYSTEM
    for entry in entries:
        first = out.opened and not out.items
        joined = entry.role is speaker and (speaker is Role.USER or entry.continues)
        if not joined:
            out.extend(closing[speaker])
        lead = len(out.ids)
        if not (first and joined):
            out.extend(separator.ids if joined else opening[entry.role])
        joined = joined and not first
        speaker = entry.role
        out.add(entry, lead, joined=joined)
    if answer_next or speaker is Role.ASSISTANT:
        out.extend(closing[speaker])
    if answer_next:
        out.extend(extra_system)
        out.extend(chat.assistant_open)
    return out


def count(entries: Iterable[Entry]) -> dict[Modality, int]:
    """Tokens of `entries` by modality."""
    totals = dict.fromkeys(Modality, 0)
    for entry in entries:
        for segment in entry.segments:
            totals[segment.modality] += len(segment.ids)
    return totals
