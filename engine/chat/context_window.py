"""What a session keeps of its past when there is no room for all of it, and what an answer follows
then.

The *sink*, that is the system prompt, stays; behind it a window of the newest messages; and within
that a shorter one of the newest pictures, which cost far more tokens than the words about them.
Pure functions: from a conversation as it is rendered to the ranges of tokens that have to go. Whole
units go: pictures and turns, from the oldest on, and enough of them that it does not come up with
every chunk. Only in a last turn that is longer than the window is it messages and, in one of them,
single tokens.

"""

from __future__ import annotations

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

# Pictures' share of a window, unless somebody says otherwise.
VISION_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Bounds in tokens: of all that follows the sink, and of pictures among it; `room`, of sink and
    all; `reach` in positions, from the sink to the newest token: further back a model was not
    trained to look. `retained`: the part of a bound that is left when something had to go."""

    tokens: int
    vision_tokens: int
    room: int
    reach: int
    retained: float
    summarise: bool = False

    @classmethod
    def of(cls, room: int, reach: int, wanted: api.Window) -> ContextWindow:
        """As large as wanted, where there is `room`; pictures have a quarter, if nobody says."""
        tokens = min(wanted.tokens or room, room)
        vision_tokens = min(wanted.vision_tokens or int(tokens * VISION_SHARE), tokens)
        return cls(tokens, vision_tokens, room, reach, wanted.retained, wanted.summarise)

    def to_api(self) -> api.Window:
        """What is in force, for those who ask."""
        return api.Window(self.tokens, self.vision_tokens, self.retained, self.summarise)

    def behind(self, sink: int) -> int:
        """Tokens that may follow a sink of so many."""
        return max(min(self.tokens, self.room - sink), 1)


def overflow(
    rendered: RenderedPrompt,
    entries: Sequence[Entry],
    window: ContextWindow,
    positions: npt.NDArray[np.int64],
) -> list[Range]:
    """The ranges of `rendered` that have to go, ascending; `positions` [len(laid.ids) + 1] are
    those of its tokens and of the one to come. `entries` are those that it was laid out from."""
    keep = np.ones(len(rendered.ids), dtype=np.bool_)
    if rendered.places:
        _drop_pictures(keep, rendered, entries, window)
        _drop_oldest(keep, rendered, entries, window, positions)
    return _ranges(~keep)


def _drop_pictures(
    keep: KeptMask, rendered: RenderedPrompt, entries: Sequence[Entry], window: ContextWindow
) -> None:
    """All but the newest ones; the very newest in any case."""
    pictures = [
        (start, end)
        for entry, place in zip(entries, rendered.places, strict=True)
        for segment, (start, end) in zip(entry.segments, place.segments, strict=True)
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
    _drop_shells(keep, rendered)


def _drop_shells(keep: KeptMask, rendered: RenderedPrompt) -> None:
    """What stands around entries that were emptied: their separators, or the message's ends."""
    places = rendered.places
    first = 0
    while first < len(places):
        last = first
        while last + 1 < len(places) and places[last + 1].joined:
            last += 1
        alive = [i for i in range(first, last + 1) if _is_alive(keep, places[i])]
        if alive:
            keep[places[first].content : places[alive[0]].content] = False
            for i in set(range(alive[0], last + 1)) - set(alive):
                keep[places[i].lead : places[i].end] = False
        else:
            keep[places[first].lead : _next_lead(rendered, last)] = False
        first = last + 1


def _is_alive(keep: KeptMask, place: RenderedItem) -> bool:
    """Whether something is left of an entry, or nothing was there yet."""
    return place.content == place.end or bool(keep[place.content : place.end].any())


def _next_lead(rendered: RenderedPrompt, index: int) -> int:
    return (
        rendered.places[index + 1].lead if index + 1 < len(rendered.places) else len(rendered.ids)
    )


def _drop_oldest(
    keep: KeptMask,
    rendered: RenderedPrompt,
    entries: Sequence[Entry],
    window: ContextWindow,
    positions: npt.NDArray[np.int64],
) -> None:
    """Whole turns from the oldest on; of the last turn, if need be, its beginning."""
    places, sink = rendered.places, rendered.places[0].lead
    bound, reach = window.behind(sink), window.reach - sink

    def fits(begin: int, part: float) -> bool:
        span = int(positions[-1] - positions[begin])
        return bool(keep[begin:].sum() <= part * bound and span <= part * reach)

    if fits(sink, 1.0):
        return
    turns = [
        i
        for i, (entry, place) in enumerate(zip(entries, places, strict=True))
        if i and not place.joined and entry.role is not Role.ASSISTANT
    ]
    for turn in turns:
        keep[sink : places[turn].lead] = False
        if fits(places[turn].lead, window.retained):
            return
    last = turns[-1] if turns else 0
    if not fits(places[last].lead, 1.0):
        _drop_beginning(keep, rendered, entries, last, window)


def _drop_beginning(
    keep: KeptMask,
    rendered: RenderedPrompt,
    entries: Sequence[Entry],
    first: int,
    window: ContextWindow,
) -> None:
    """Of the turn that begins with entry `first`: its oldest messages, and of the next one what it
    began with; of an answer that filled the window, the newest words stay."""
    places, bound = rendered.places, window.behind(rendered.places[0].lead)
    lead = places[first].lead
    most = int(window.retained * bound)
    if keep[lead:].sum() <= most:  # it is only positions that are short
        most = int(window.retained * keep[lead:].sum())
    messages = [i for i in range(first, len(places)) if i == first or not places[i].joined]
    for begin, following in pairwise(messages):
        whole = keep[places[begin].lead : places[following].lead]
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
        newest = range(messages[-1], len(places))
        _drop_oldest_parts(keep, rendered, entries, newest, spare)


def _drop_oldest_parts(
    keep: KeptMask, rendered: RenderedPrompt, entries: Sequence[Entry], message: range, spare: int
) -> None:
    """Of one message at least `spare` tokens: its oldest entries, then the oldest of what the
    newest one says."""
    places, first = rendered.places, message.start
    begin = places[first].content
    last = max((i for i in message if entries[i].segments), default=first)
    for i in range(first + 1, last + 1):
        older = keep[begin : places[i].content]
        if older.sum() >= spare or i == last:
            spare -= int(older.sum())
            older[:] = False
            break
    if spare > 0:
        _drop_words(keep, places[last], entries[last], spare)


def _drop_words(keep: KeptMask, place: RenderedItem, entry: Entry, spare: int) -> None:
    """The oldest `spare` tokens of what an entry says, and no picture by halves."""
    inside = place.content + np.flatnonzero(keep[place.content : place.end])
    if not len(inside):
        return
    until = int(inside[min(spare, len(inside) - 1)])
    for segment, (start, end) in zip(entry.segments, place.segments, strict=True):
        if segment.modality is Modality.IMAGE and start < until < end:
            until = end if end < place.end else start
    keep[place.content : until] = False


def _ranges(gone: KeptMask) -> list[Range]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], gone, [False])).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def within(cuts: Iterable[Range], start: int, end: int) -> list[Range]:
    """What of `cuts` lies in [start, end), counted from `start`."""
    clipped = ((max(a, start) - start, min(b, end) - start) for a, b in cuts)
    return [(a, b) for a, b in clipped if a < b]


def without(segments: Sequence[Segment], cuts: Sequence[Range]) -> tuple[Segment, ...]:
    """Segments less the tokens in `cuts`, which count from the first segment's first token."""
    out: list[Segment] = []
    at = 0
    for segment in segments:
        ids = list(segment.ids)
        for start, end in reversed(within(cuts, at, at + len(ids))):
            del ids[start:end]
        at += len(segment.ids)
        if ids:
            out.append(Segment(segment.modality, tuple(ids)))
    return tuple(out)


def remaining(
    entries: Sequence[Entry], rendered: RenderedPrompt, cuts: Sequence[Range]
) -> list[tuple[Entry, Entry | None]]:
    """Each entry and what is left of it; None: nothing. One that began a message of its own does
    so still, when what stood between it and another is gone."""
    out: list[tuple[Entry, Entry | None]] = []
    for entry, place in zip(entries, rendered.places, strict=True):
        segments = without(entry.segments, within(cuts, place.content, place.end))
        is_gone = bool(entry.segments) and not segments
        continues = entry.continues and place.joined
        left = None if is_gone else replace(entry, segments=segments, continues=continues)
        out.append((entry, left))
    return out


class Holes:
    """Ranges taken out of something that goes on growing at its end, one after another: each is
    given in places of what was left by then."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []  # in the whole, ascending, apart

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def ranges(self) -> Sequence[Range]:
        return self._ranges

    def cut(self, ranges: Iterable[Range]) -> None:
        """Take more out."""
        whole = [(self._whole(start), self._whole(end - 1) + 1) for start, end in ranges]
        merged: list[Range] = []
        for start, end in sorted([*self._ranges, *whole]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self._ranges = merged

    def _whole(self, place: int) -> int:
        for start, end in self._ranges:
            if start > place:
                break
            place += end - start
        return place


# Room an answer needs behind its prompt before old items have to go; a shorter one needs less.
ANSWER_RESERVE_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an answer follows; `counts` are its tokens by modality (the rest is text)."""

    ids: tuple[int, ...]
    kinds: bytes  # a `Modality` for each of them
    counts: dict[Modality, int]

    @classmethod
    def of(cls, rendered: RenderedPrompt, entries: Sequence[Entry]) -> Prompt:
        return cls(tuple(rendered.ids), bytes(rendered.kinds), count(entries))


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
    room: int,
    reach: int,
    entries: Sequence[Entry],
    render: Callable[[Sequence[Entry]], RenderedPrompt],
) -> Prompt:
    """The prompt that `render` makes of entries of which nothing was computed yet: all of them, or
    as many of the newest as `room` tokens hold. Raises `ContextFull` for one that is too long by
    itself, whatever else goes."""
    rendered = render(entries)
    if len(rendered.ids) > room and rendered.places:
        alone = rendered.places[0].lead + len(rendered.ids) - rendered.places[-1].end
        for entry, place in zip(entries, rendered.places, strict=True):
            require_short(entry, room - alone - (place.content - place.lead))
        window = ContextWindow(room, room, room, reach, retained=1.0)
        cuts = overflow(rendered, entries, window, np.arange(len(rendered.ids) + 1))
        entries = [left for _, left in remaining(entries, rendered, cuts) if left is not None]
        rendered = render(entries)
    return Prompt.of(rendered, entries)
