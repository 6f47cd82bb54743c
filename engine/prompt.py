"""What an answer follows, as tokens, and what of it has to go where there is no room for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.api import Role
from engine.errors import ContextFull
from engine.layout import Entry, Laid, Modality, count
from engine.window import Window, overflow, remaining

# Room an answer needs behind its prompt before old items have to go; a shorter one needs less.
ANSWER_RESERVE_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an answer follows; `counts` are its tokens by modality (the rest is text)."""

    ids: tuple[int, ...]
    kinds: bytes  # a `Modality` for each of them
    counts: dict[Modality, int]

    @classmethod
    def of(cls, laid: Laid, entries: Sequence[Entry]) -> Prompt:
        return cls(tuple(laid.ids), bytes(laid.kinds), count(entries))


def reserve(max_tokens: int) -> int:
    """Tokens kept free for an answer of at most `max_tokens`."""
    return min(max_tokens, ANSWER_RESERVE_TOKENS)


def require_short(entry: Entry, bound: int) -> None:
    """Raises `ContextFull` for an item of more than `bound` tokens, which somebody wants to be read
    as a whole; of an answer, the end will do."""
    length = sum(len(segment.ids) for segment in entry.segments)
    if length > bound and (entry.role is not Role.ASSISTANT or entry.continues):
        raise ContextFull(bound, length)


def prompt_within(
    room: int, reach: int, entries: Sequence[Entry], render: Callable[[Sequence[Entry]], Laid]
) -> Prompt:
    """The prompt that `render` makes of entries of which nothing was computed yet: all of them, or
    as many of the newest as `room` tokens hold. Raises `ContextFull` for one that is too long by
    itself, whatever else goes."""
    laid = render(entries)
    if len(laid.ids) > room and laid.places:
        alone = laid.places[0].lead + len(laid.ids) - laid.places[-1].end
        for entry, place in zip(entries, laid.places, strict=True):
            require_short(entry, room - alone - (place.content - place.lead))
        window = Window(room, room, room, reach, retained=1.0)
        cuts = overflow(laid, entries, window, np.arange(len(laid.ids) + 1))
        entries = [left for _, left in remaining(entries, laid, cuts) if left is not None]
        laid = render(entries)
    return Prompt.of(laid, entries)
