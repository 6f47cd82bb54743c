"""The items of one conversation in order, as segments of tokens, and the names of evicted ones.

An item without segments adds no tokens, but has a place: clients can refer to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from headstart.engine import api
from headstart.engine.chat.render import Entry, Modality, Segment
from headstart.engine.session.errors import UnknownItem
from headstart.engine.session.thinning import Replaced
from headstart.engine.session.writing import Place

# Names kept of evicted items, so that clients can still remove them or insert behind them.
MAX_EVICTED_NAMES = 4096
# Item id of the model's own summaries (`engine.session.summary`); longer than a client's id may be.
NOTES_ID = "what the model noted of the conversation"


class Items:
    """Entries by place. Unnamed entries hold a place, or what no client added."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._answer_end: Entry | None = None  # marks where a running answer's items end
        self._evicted: OrderedDict[str, None] = OrderedDict()  # item ids, oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def place_behind(self, after: str | None) -> int:
        """Where an item is inserted; `after` as in `api.AddItem`. Raises `UnknownItem`."""
        if after is None:
            return len(self._entries)
        if after == "root" or after in self._evicted:
            return 0
        return self._index(after) + 1

    def insert(self, place: int, entry: Entry) -> None:
        self._entries.insert(place, entry)

    def append(self, *entries: Entry) -> None:
        self._entries += entries

    def remove(self, item_id: str) -> None:
        """Remove an item, or the remembered name of an evicted one, and all summaries behind it,
        which may mention it. Raises `UnknownItem`."""
        place = 0
        if item_id in self._evicted:
            del self._evicted[item_id]
        else:
            place = self._index(item_id)
            del self._entries[place]
        self._remove_behind(place, {NOTES_ID})

    def _remove_behind(self, place: int, item_ids: set[str]) -> None:
        behind = self._entries[place:]
        self._entries[place:] = [entry for entry in behind if entry.item_id not in item_ids]

    def _index(self, item_id: str) -> int:
        for i, entry in enumerate(self._entries):
            if entry.item_id == item_id:
                return i
        raise UnknownItem(item_id)

    def _index_of(self, entry: Entry) -> int:
        """The place of this very entry: equal ones may lie elsewhere."""
        return next(i for i, held in enumerate(self._entries) if held is entry)

    # --- answers ---------------------------------------------------------------------------------

    def open_answer(self, item_id: str) -> None:
        """Reserve the place of a starting answer's items, at the end."""
        self._answer_end = Entry("", api.Role.ASSISTANT, ())
        self.append(Entry(item_id, api.Role.ASSISTANT, ()), self._answer_end)

    def add_to_answer(self, entry: Entry) -> None:
        """Insert an item of the running answer behind its others."""
        assert self._answer_end is not None
        self._entries.insert(self._index_of(self._answer_end), entry)

    def close_answer(self, item_id: str, said: Sequence[int]) -> None:
        """Fill the item of a finished answer with the tokens `said`, unless it was removed."""
        entries = []
        for entry in self._entries:
            if entry.item_id != item_id or entry.segments:
                entries += [entry] if entry is not self._answer_end else []
            elif said:
                segment = Segment(Modality.GENERATED, tuple(said))
                entries.append(replace(entry, segments=(segment,)))
        self._entries, self._answer_end = entries, None

    def unanswered(self) -> Sequence[Entry]:
        """The items at the end that are the user's; none while an answer runs."""
        if self._answer_end is not None:
            return ()
        return [*takewhile(_is_users, reversed(self._entries))][::-1]

    # --- changes of items ------------------------------------------------------------------------

    def take_out(self, item_id: str, answer_id: str) -> tuple[Entry, Entry] | None:
        """Replace an item by an empty one that holds its place, and remove the items of the answer
        `answer_id` and all summaries behind it. Returns both; None if it was evicted."""
        found = [i for i, entry in enumerate(self._entries) if entry.item_id == item_id]
        taken, place = None, len(self._entries)
        if found:
            place = found[0]
            holder = Entry("", api.Role.USER, ())
            taken, self._entries[place] = (self._entries[place], holder), holder
        self._evicted.pop(item_id, None)
        gone = {NOTES_ID}  # a summary may mention the rest
        if answer_id:
            calls = range(len(self._entries) - place)
            gone |= {answer_id, *(api.call_item_id(answer_id, number) for number in calls)}
        self._remove_behind(place, gone)
        return taken

    def put(self, entry: Entry | None, instead_of: Entry) -> None:
        """Replace an entry, or remove it."""
        at = self._index_of(instead_of)
        self._entries[at : at + 1] = [] if entry is None else [entry]

    def put_all(self, replaced: Replaced) -> None:
        """Replace each entry that is there still."""
        by = {id(entry): left for entry, left in replaced}
        self._entries = [by.get(id(entry), entry) for entry in self._entries]

    def add_behind(self, place: Place, segment: Segment) -> Entry | None:
        """Insert a segment behind the one whose ids are `place`, in an unanswered item. Returns the
        item as it was; None if there is no such segment."""
        for entry in self.unanswered():
            at = next((i for i, held in enumerate(entry.segments) if held.ids is place), None)
            if at is not None:
                segments = (*entry.segments[: at + 1], segment, *entry.segments[at + 1 :])
                self.put(replace(entry, segments=segments), entry)
                return entry
        return None

    def evict(self, entry: Entry, left: Entry | None) -> None:
        """Replace an entry by what is left of it. If that is nothing, keep its name."""
        self.put(None if left is None else replace(left, whole=None), entry)
        if left is None and entry.item_id:
            self._evicted[entry.item_id] = None
            if len(self._evicted) > MAX_EVICTED_NAMES:
                self._evicted.popitem(last=False)


def _is_users(entry: Entry) -> bool:
    return entry.role is api.Role.USER
