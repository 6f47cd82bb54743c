"""The gateway's books of one conversation: what the client sees, and what restores the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.items import Json
from headstart.gateway.session.linked_list import Chain, Link
from headstart.gateway.tts.spoken_response import SpokenResponse

ROOT = "root"  # the protocol's word for "before all items"
# What one session's books may hold; beyond, the oldest items are forgotten, as the model forgets
# them. Pictures go first: they are kept for a restarted engine only.
ITEMS_MAX = 4_096
BYTES_MAX = 64 * 1024 * 1024
PICTURED = 16  # newest items with pictures that keep their pictures when it gets tight
RECENT = 32  # newest items whose content may still be coming
LOOKED_BACK = 64  # newest items among which a call that is made again counts
_ITEM_BYTES = 2_048  # its JSON besides texts and pictures, roughly

# Code and message of a transcript that nobody makes; the turn itself goes on.
NO_TRANSCRIBER = (
    "no_transcriber",
    "The model hears sound without words, and no transcriber runs beside it: set transcribe=on.",
)


class Place(Link):
    """Where a running answer's items will stand: behind those that it has read, whatever is put in
    or taken out meanwhile. The engine keeps the same one."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class ConversationItem(Link):
    """One item: its JSON, the engine's view of it (None: nothing for the model to read), and how
    it was spoken, if it is an answer that was. `known`: the engine has an item of that name."""

    wire: Json
    engine: api.Item | None
    speech: SpokenResponse | None = None
    known: bool = False
    counted_bytes: int = 0  # of the conversation's bound

    def __post_init__(self) -> None:
        Link.__init__(self)

    @property
    def item_id(self) -> str:
        return str(self.wire["id"])

    @property
    def text_bytes(self) -> int:
        """Memory for all but its pictures, roughly."""
        content = self.wire.get("content") or ()
        texts = (value for part in content for value in part.values() if isinstance(value, str))
        return _ITEM_BYTES + 2 * sum(len(text) for text in texts)

    @property
    def picture_bytes(self) -> int:
        parts = self.engine.parts if self.engine is not None else ()
        return sum(len(part.rgb) for part in parts if isinstance(part, api.Image))

    def drop_pictures(self) -> None:
        """A restarted engine will not see them."""
        if self.engine is not None:
            texts = tuple(part for part in self.engine.parts if isinstance(part, api.Text))
            item = msgspec.structs.replace(self.engine, parts=texts)
            self.engine = item if texts else None


class Conversation:
    """Items in order. Ids are unique; what a client gets wrong raises `ProtocolError`.

    Nothing that is done for one item looks at all of them, however many there are.
    """

    def __init__(self) -> None:
        self._chain = Chain()
        self._by_id: dict[str, ConversationItem] = {}
        self._calls: dict[str, int] = {}  # by call id: the items that call, mostly one
        self._outputs: dict[str, int] = {}  # and those with its output
        self._pictured: dict[str, ConversationItem] = {}  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ConversationItem]:
        return (link for link in self._chain if isinstance(link, ConversationItem))

    @property
    def tail_id(self) -> str | None:
        return self._name_before(self._chain.head)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._by_id

    def get(self, item_id: str, action: errors.ItemAction) -> ConversationItem:
        """The item a client names. Raises the error of `action` when there is none."""
        if item_id not in self._by_id:
            raise errors.item_not_found(action, item_id)
        return self._by_id[item_id]

    def find(self, item_id: str) -> ConversationItem | None:
        return self._by_id.get(item_id)

    def has_call(self, call_id: str) -> bool:
        """Whether a function was called by that id."""
        return call_id in self._calls

    def has_output(self, call_id: str) -> bool:
        """Whether that call has got its output."""
        return call_id in self._outputs

    def repeats_itself(self) -> bool:
        """Whether the same call was made twice since the user's last message: a small model asks
        again for what it has just been given, and would for ever."""
        made = set()
        for item in self._back(LOOKED_BACK):
            if item.wire.get("role") == "user":
                return False
            if item.wire["type"] == "function_call":
                call = (item.wire["name"], item.wire["arguments"])
                if call in made:
                    return True
                made.add(call)
        return False

    # --- places ----------------------------------------------------------------------------------

    def place(self, item_id: str, previous_item_id: str | None) -> str | None:
        """Check a new item's id and place; the id of the item it will follow (None: it is first).

        `previous_item_id` None means the end and "root" the head.
        """
        if item_id in self._by_id:
            raise errors.duplicate_item(item_id)
        if previous_item_id is None:
            return self.tail_id
        if previous_item_id == ROOT:
            return None
        if previous_item_id not in self._by_id:
            raise errors.previous_item_not_found(previous_item_id)
        return previous_item_id

    def previous_id(self, at: str | Place) -> str | None:
        """The id of the item that now stands before that one or that place; None: none does."""
        return self._name_before(at if isinstance(at, Place) else self._by_id[at])

    def reserve(self) -> Place:
        """The place of an answer that begins now: at the end. `free` it when it is over."""
        place = Place()
        self._chain.put(place, self._chain.last)
        return place

    def free(self, place: Place) -> None:
        self._chain.take(place)

    def engine_place(self, item_id: str) -> str | None:
        """Where the engine has to put that item, in the words of `api.AddItem.after`: behind the
        nearest one before it that the engine knows."""
        item = self._by_id[item_id]
        if item is self._chain.last:
            return None
        known = (link for link in self._chain.back_from(item) if isinstance(link, ConversationItem))
        return next((link.item_id for link in known if link.known), ROOT)

    # --- in and out ------------------------------------------------------------------------------

    def insert(
        self, item: ConversationItem, previous_item_id: str | None
    ) -> list[ConversationItem]:
        """Put an item behind the one that `place` named; behind the last one is the end, and an
        answer that runs stands before it. Returns the items that had to be forgotten for it."""
        behind = self._chain.head
        if previous_item_id == self.tail_id:
            behind = self._chain.last
        elif previous_item_id is not None:
            behind = self._by_id[previous_item_id]
        return self._insert(item, behind)

    def insert_answer(self, item: ConversationItem, place: Place) -> list[ConversationItem]:
        """Put an answer's next item at its place. Returns as `insert` does."""
        return self._insert(item, place.before)

    def _insert(self, item: ConversationItem, behind: Link) -> list[ConversationItem]:
        self._chain.put(item, behind)
        self._by_id[item.item_id] = item
        _add(self._books_of(item), item, 1)
        if item.picture_bytes:
            self._pictured[item.item_id] = item
        return self._forget_oldest(item)

    def remove(self, item_id: str) -> ConversationItem:
        """Forget an item. Raises `ProtocolError`."""
        item = self.get(item_id, "delete")
        self._drop(item)
        return item

    def clear(self) -> None:
        """Forget all items; with their pictures they would wait for the collector."""
        self._chain.clear()
        for books in (self._by_id, self._calls, self._outputs, self._pictured):
            books.clear()
        self._bytes = 0

    def engine_lost(self) -> None:
        """The engine that knew some of them is gone."""
        for item in self:
            item.known = False

    def _books_of(self, item: ConversationItem) -> dict[str, int]:
        """Where the calls and the outputs of calls are counted."""
        if item.wire.get("type") == "function_call":
            return self._calls
        return self._outputs if item.wire.get("type") == "function_call_output" else {}

    def _drop(self, item: ConversationItem) -> None:
        self._chain.take(item)
        del self._by_id[item.item_id]
        self._pictured.pop(item.item_id, None)
        _add(self._books_of(item), item, -1)
        self._bytes -= item.counted_bytes

    def _count(self, item: ConversationItem) -> None:
        """Note an item's size as it is now."""
        self._bytes -= item.counted_bytes
        item.counted_bytes = item.text_bytes + item.picture_bytes
        self._bytes += item.counted_bytes

    def _forget_oldest(self, newest: ConversationItem) -> list[ConversationItem]:
        """Keep within the bounds, whatever it costs but the newest item."""
        # Answers and transcripts come into their items after those were put here.
        for item in self._back(RECENT):
            self._count(item)
        self._count(newest)
        while self._bytes > BYTES_MAX and len(self._pictured) > PICTURED:
            item = self._pictured.pop(next(iter(self._pictured)))
            item.drop_pictures()
            self._count(item)
        forgotten = []
        while len(self) > 1 and (len(self) > ITEMS_MAX or self._bytes > BYTES_MAX):
            oldest = next(item for item in self if item is not newest)
            self._drop(oldest)
            forgotten.append(oldest)
        return forgotten

    # --- as a whole ------------------------------------------------------------------------------

    def _back(self, count: int) -> Iterator[ConversationItem]:
        """The last `count` items, from the end."""
        links = self._chain.back_from(self._chain.head)
        return islice((link for link in links if isinstance(link, ConversationItem)), count)

    def _name_before(self, link: Link) -> str | None:
        before = self._chain.back_from(link)
        return next((item.item_id for item in before if isinstance(item, ConversationItem)), None)

    def newest(self, count: int) -> list[Json]:
        """The last `count` items as the client sees them."""
        return [item.wire for item in self._back(count)][::-1]

    def for_engine(self) -> tuple[api.Item, ...]:
        """What a new engine has to know."""
        return tuple(item.engine for item in self if item.engine is not None)


def _add(books: dict[str, int], item: ConversationItem, count: int) -> None:
    """Count an item under its call's id."""
    if (call_id := item.wire.get("call_id")) is not None:
        books[call_id] = books.get(call_id, 0) + count
        if not books[call_id]:
            del books[call_id]
