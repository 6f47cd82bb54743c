"""The context window: which tokens of a conversation are evicted when it gets too long.

The *sink* (the system prompt) always stays. Behind it the window keeps the newest messages, and of
their pictures, which cost far more tokens than text, the newest ones up to a smaller bound. Pure
functions from a rendered conversation to the ranges of tokens to evict.

Whole units are evicted, pictures and turns, from the oldest on, and enough of them that eviction
is not needed again with every chunk. Only within a last turn that is longer than the window are
messages evicted, and within one message single tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from headstart.engine import api
from headstart.engine.api import Role
from headstart.engine.chat.accounting import Modality
from headstart.engine.chat.render import Entry, RenderedItem, RenderedPrompt, Segment, count
from headstart.engine.errors import ContextFull

Range = tuple[int, int]
KeptMask = npt.NDArray[np.bool_]

# Pictures' default share of a window.
VISION_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Bounds of the context in tokens.

    `tokens`: all behind the sink. `vision_tokens`: pictures among them. `prompt_limit`: all with
    the sink. `reach`: positions from the sink to the newest token, which the model was trained for.
    `retained`: the part of a bound that is kept when something is evicted. `held`: tokens whose K/V
    memory holds, where the sink counts twice: eviction keeps a copy of it.
    """

    tokens: int
    vision_tokens: int
    prompt_limit: int
    reach: int
    retained: float
    summarise: bool = False
    held: int = sys.maxsize

    @classmethod
    def of(
        cls, prompt_limit: int, reach: int, wanted: api.Window, held: int = sys.maxsize
    ) -> ContextWindow:
        """The window a client `wanted`, up to `prompt_limit`; a quarter is for pictures."""
        tokens = min(wanted.tokens or prompt_limit, prompt_limit)
        vision_tokens = min(wanted.vision_tokens or int(tokens * VISION_SHARE), tokens)
        return cls(
            tokens, vision_tokens, prompt_limit, reach, wanted.retained, wanted.summarise, held
        )

    def to_api(self) -> api.Window:
        """The bounds in force, for clients."""
        return api.Window(self.tokens, self.vision_tokens, self.retained, self.summarise)

    def within(self, prompt_limit: int, held: int) -> ContextWindow:
        """This window in no more room than that."""
        prompt_limit, held = min(self.prompt_limit, prompt_limit), min(self.held, held)
        return replace(self, prompt_limit=prompt_limit, held=held)

    def require_room(self, entry: Entry, sink: int, frame: int) -> None:
        """Raises `ContextFull` for an item that is too long, behind a sink of so many tokens and
        with `frame` around it, or if the sink leaves no room for any."""
        bound = self.behind(sink) - frame
        # A window that a client wants smaller than any message is not the instructions' doing.
        if bound < 1 and self.tokens > frame:
            limit = self.prompt_limit + ANSWER_RESERVE_TOKENS
            raise ContextFull(limit, sink, by_instructions=True)
        require_fits(entry, max(bound, 0))

    def behind(self, sink: int) -> int:
        """Tokens that may follow a sink of `sink` tokens."""
        return max(min(self.tokens, self.prompt_limit - sink, self.held - 2 * sink), 1)


def overflow(
    rendered: RenderedPrompt,
    entries: Sequence[Entry],
    window: ContextWindow,
    positions: npt.NDArray[np.int64],
) -> list[Range]:
    """The ranges of `rendered` to evict, ascending.

    `entries`: the entries it was rendered from. `positions` [len(rendered.ids) + 1]: positions of
    its tokens and of the next token.
    """
    keep = np.ones(len(rendered.ids), dtype=np.bool_)
    if rendered.items:
        _drop_pictures(keep, rendered, entries, window)
        _drop_oldest(keep, rendered, entries, window, positions)
    return ranges(~keep)


def _drop_pictures(
    keep: KeptMask, rendered: RenderedPrompt, entries: Sequence[Entry], window: ContextWindow
) -> None:
    """Drop the oldest pictures beyond the bound, never the newest one."""
    pictures = [
        (start, end)
        for entry, item in zip(entries, rendered.items, strict=True)
        for segment, (start, end) in zip(entry.segments, item.segments, strict=True)
        if segment.modality is Modality.IMAGE
    ]
    total = sum(end - start for start, end in pictures)
    if total <= window.vision_tokens:
        return
    for start, end in pictures[:-1]:
        keep[start:end] = False
        total -= end - start
        if total <= window.retained * window.vision_tokens:
            break
    _drop_emptied_items(keep, rendered)


def _drop_emptied_items(keep: KeptMask, rendered: RenderedPrompt) -> None:
    """Drop what surrounds emptied entries: separators, or the message's opening and closing."""
    items = rendered.items
    first = 0
    while first < len(items):
        last = first
        while last + 1 < len(items) and items[last + 1].joined:
            last += 1
        alive = [i for i in range(first, last + 1) if _is_alive(keep, items[i])]
        if alive:
            keep[items[first].content : items[alive[0]].content] = False
            for i in set(range(alive[0], last + 1)) - set(alive):
                keep[items[i].lead : items[i].end] = False
        else:
            # A message that the system prompt has opened is closed all the same.
            closed = rendered.opened and first == 0
            end = items[last].end if closed else _next_lead(rendered, last)
            keep[items[first].lead : end] = False
        first = last + 1


def _is_alive(keep: KeptMask, item: RenderedItem) -> bool:
    """Whether any token of an entry is kept, or it had none."""
    return item.content == item.end or bool(keep[item.content : item.end].any())


def _next_lead(rendered: RenderedPrompt, index: int) -> int:
    return rendered.items[index + 1].lead if index + 1 < len(rendered.items) else len(rendered.ids)


def _drop_oldest(
    keep: KeptMask,
    rendered: RenderedPrompt,
    entries: Sequence[Entry],
    window: ContextWindow,
    positions: npt.NDArray[np.int64],
) -> None:
    """Drop whole turns from the oldest on; of the last turn, if necessary, its beginning."""
    items, sink = rendered.items, rendered.items[0].lead
    bound, reach = window.behind(sink), window.reach - sink

    def fits(begin: int, part: float) -> bool:
        span = int(positions[-1] - positions[begin])
        return bool(keep[begin:].sum() <= part * bound and span <= part * reach)

    if fits(sink, 1.0):
        return
    turns = [
        i
        for i, (entry, item) in enumerate(zip(entries, items, strict=True))
        if i and not item.joined and entry.role is not Role.ASSISTANT
    ]
    for turn in turns:
        # Where the system prompt opens the first message, this one's own opening goes too.
        keep[sink : items[turn].content if rendered.opened else items[turn].lead] = False
        if fits(items[turn].lead, window.retained):
            return
    last = turns[-1] if turns else 0
    if not fits(items[last].lead, 1.0):
        _drop_beginning(keep, rendered, entries, last, window)


def _drop_beginning(
    keep: KeptMask,
    rendered: RenderedPrompt,
    entries: Sequence[Entry],
    first: int,
    window: ContextWindow,
) -> None:
    """Drop the beginning of the last turn, which starts at entry `first`: its oldest messages, then
    the beginning of the next message. Of an answer that filled the window, the newest words stay.
    """
    items, bound = rendered.items, window.behind(rendered.items[0].lead)
    lead = items[first].lead
    most = int(window.retained * bound)
    if keep[lead:].sum() <= most:  # only the positions are too far apart
        most = int(window.retained * keep[lead:].sum())
    messages = [i for i in range(first, len(items)) if i == first or not items[i].joined]
    for begin, following in pairwise(messages):
        whole = keep[items[begin].lead : items[following].lead]
        spare = int(keep[lead:].sum()) - most
        if spare <= 0:
            return
        is_partly_kept = whole.sum() > spare
        if is_partly_kept:
            _drop_oldest_parts(keep, rendered, entries, range(begin, following), spare)
        if not is_partly_kept or keep[lead:].sum() > bound:
            whole[:] = False
    spare = int(keep[lead:].sum()) - most
    if spare > 0:
        newest = range(messages[-1], len(items))
        _drop_oldest_parts(keep, rendered, entries, newest, spare)


def _drop_oldest_parts(
    keep: KeptMask, rendered: RenderedPrompt, entries: Sequence[Entry], message: range, spare: int
) -> None:
    """Drop at least `spare` tokens of one message: its oldest entries, then the oldest tokens of
    its newest entry."""
    items, first = rendered.items, message.start
    begin = items[first].content
    last = max((i for i in message if entries[i].segments), default=first)
    for i in range(first + 1, last + 1):
        older = keep[begin : items[i].content]
        if older.sum() >= spare or i == last:
            spare -= int(older.sum())
            older[:] = False
            break
    if spare > 0:
        _drop_words(keep, items[last], entries[last], spare)


def _drop_words(keep: KeptMask, item: RenderedItem, entry: Entry, spare: int) -> None:
    """Drop the oldest `spare` tokens of an entry, but no part of a picture alone."""
    inside = item.content + np.flatnonzero(keep[item.content : item.end])
    if not len(inside):
        return
    until = int(inside[min(spare, len(inside) - 1)])
    for segment, (start, end) in zip(entry.segments, item.segments, strict=True):
        if segment.modality is Modality.IMAGE and start < until < end:
            until = end if end < item.end else start
    keep[item.content : until] = False


def ranges(dropped: KeptMask) -> list[Range]:
    """The ranges of tokens that `dropped` marks, ascending."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], dropped, [False])).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def clip_ranges(cuts: Iterable[Range], start: int, end: int) -> list[Range]:
    """The parts of `cuts` inside [start, end), relative to `start`."""
    clipped = ((max(a, start) - start, min(b, end) - start) for a, b in cuts)
    return [(a, b) for a, b in clipped if a < b]


def remove_ranges(segments: Sequence[Segment], cuts: Sequence[Range]) -> tuple[Segment, ...]:
    """`segments` without the tokens in `cuts`, counted from the first segment's first token."""
    out: list[Segment] = []
    at = 0
    for segment in segments:
        ids = list(segment.ids)
        for start, end in reversed(clip_ranges(cuts, at, at + len(ids))):
            del ids[start:end]
        at += len(segment.ids)
        if ids:
            out.append(Segment(segment.modality, tuple(ids)))
    return tuple(out)


def remaining_entries(
    entries: Sequence[Entry], rendered: RenderedPrompt, cuts: Sequence[Range]
) -> list[tuple[Entry, Entry | None]]:
    """Each entry with what is left of it after `cuts`; None: nothing. An entry that began a message
    still does, even if all between it and the message before is evicted."""
    out: list[tuple[Entry, Entry | None]] = []
    for entry, item in zip(entries, rendered.items, strict=True):
        segments = remove_ranges(entry.segments, clip_ranges(cuts, item.content, item.end))
        is_gone = bool(entry.segments) and not segments
        continues = entry.continues and item.joined
        left = None if is_gone else replace(entry, segments=segments, continues=continues)
        out.append((entry, left))
    return out


class RemovedRanges:
    """Ranges removed from a sequence that keeps growing at its end. Each cut is given in indices of
    the sequence as left by the earlier cuts."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []  # in indices of the whole sequence, ascending, disjoint

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def ranges(self) -> Sequence[Range]:
        return self._ranges

    def cut(self, ranges: Iterable[Range]) -> None:
        """Remove further `ranges`."""
        whole = [(self._whole(start), self._whole(end - 1) + 1) for start, end in ranges]
        merged: list[Range] = []
        for start, end in sorted([*self._ranges, *whole]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self._ranges = merged

    def _whole(self, item: int) -> int:
        for start, end in self._ranges:
            if start > item:
                break
            item += end - start
        return item


# Tokens kept free for an answer behind its prompt; a shorter answer needs less.
ANSWER_RESERVE_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of an answer. `counts`: its tokens by modality (the rest is text)."""

    ids: tuple[int, ...]
    kinds: bytes  # a `Modality` for each of them
    counts: dict[Modality, int]

    @classmethod
    def of(cls, rendered: RenderedPrompt, entries: Sequence[Entry]) -> Prompt:
        return cls(tuple(rendered.ids), bytes(rendered.kinds), count(entries))


def answer_reserve(max_tokens: int) -> int:
    """Tokens kept free for an answer of at most `max_tokens`."""
    return min(max_tokens, ANSWER_RESERVE_TOKENS)


def require_fits(entry: Entry, bound: int) -> None:
    """Raises `ContextFull` for an item of more than `bound` tokens that must be read as a whole. An
    answer may be longer; its end is kept."""
    length = sum(len(segment.ids) for segment in entry.segments)
    if length > bound and (entry.role is not Role.ASSISTANT or entry.continues):
        raise ContextFull(bound, length)


def prompt_within(
    prompt_limit: int,
    reach: int,
    entries: Sequence[Entry],
    render: Callable[[Sequence[Entry]], RenderedPrompt],
) -> Prompt:
    """The prompt that `render` makes of new entries: all of them, or as many of the newest as fit
    into `prompt_limit` tokens. Raises `ContextFull` for an entry that is too long by itself."""
    rendered = render(entries)
    if len(rendered.ids) > prompt_limit and rendered.items:
        alone = rendered.items[0].lead + len(rendered.ids) - rendered.items[-1].end
        for entry, item in zip(entries, rendered.items, strict=True):
            require_fits(entry, prompt_limit - alone - (item.content - item.lead))
        window = ContextWindow(prompt_limit, prompt_limit, prompt_limit, reach, retained=1.0)
        cuts = overflow(rendered, entries, window, np.arange(len(rendered.ids) + 1))
        remaining = remaining_entries(entries, rendered, cuts)
        entries = [left for _, left in remaining if left is not None]
        rendered = render(entries)
    return Prompt.of(rendered, entries)
