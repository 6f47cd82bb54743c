"""How a conversation reads as tokens: pure functions from what was said to what the model sees.

A session never patches its token stream. It lays out what the stream should read now, and
`Stream.reconcile` keeps the longest common prefix. So partial words, camera frames, speculation,
deleted items and cancelled answers need no code of their own here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from engine.api import Role


class Modality(Enum):
    """What a token stands for, for the books."""

    TEXT = "text"
    AUDIO = "audio"
    IMAGE = "image"


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


class Chat(Protocol):
    """The pieces of a chat template (`engine.chat.ChatFormat`)."""

    @property
    def user_open(self) -> Sequence[int]: ...
    @property
    def user_close(self) -> Sequence[int]: ...
    @property
    def assistant_open(self) -> Sequence[int]: ...
    @property
    def assistant_close(self) -> Sequence[int]: ...
    def system(self, text: str) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Separator:
    """What stands between two items of the same person that follow one another: they read as one
    message, which small models understand better than two."""

    ids: tuple[int, ...]


def render(
    chat: Chat,
    separator: Separator,
    system: Sequence[int],
    entries: Iterable[Entry],
    *,
    answer_next: bool = False,
    extra_system: Sequence[int] = (),
) -> list[int]:
    """All tokens of a conversation.

    The last user message is left open, so that words can be appended to it while they are being
    spoken. With `answer_next` it is closed, `extra_system` (instructions for one answer) follows,
    and the assistant's turn is opened: what a decoder needs to begin.
    """
    out = list(system)
    user_is_open = False
    for entry in entries:
        if entry.role is Role.USER:
            out.extend(separator.ids if user_is_open else chat.user_open)
            user_is_open = True
        else:
            if user_is_open:
                out.extend(chat.user_close)
                user_is_open = False
            if entry.role is Role.ASSISTANT:
                out.extend(chat.assistant_open)
        for segment in entry.segments:
            out.extend(segment.ids)
        if entry.role is Role.ASSISTANT:
            out.extend(chat.assistant_close)
    if answer_next:
        if user_is_open:
            out.extend(chat.user_close)
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
