"""The gateway's record of one conversation: what clients see, and what restores a lost engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.items import Json
from headstart.gateway.session.linked_list import Chain, Link
from headstart.gateway.tts.spoken_response import SpokenResponse

ROOT = "root"  # the protocol's word for the position before all items
# Bounds of one session. Beyond them the oldest items are dropped, as they are from the model's
# context. Images go first: they are kept only for a restarted engine.
ITEMS_MAX = 4_096
BYTES_MAX = 64 * 1024 * 1024
PICTURED = 16  # the newest items with images that keep them when memory is short
RECENT = 32  # the newest items, whose content may still be growing
LOOKED_BACK = 64  # the newest items searched for repeated function calls
WITHDRAWN_MAX = 16  # items taken back that are remembered
_ITEM_BYTES = 2_048  # estimated size of an item's JSON without texts and images

# Error code and message when no transcriber is running; the turn itself continues.
NO_TRANSCRIBER = (
    "no_transcriber",
    "The model takes audio without a transcript, and no transcriber is running: set transcribe=on.",
)


class Place(Link):
    """Where an active response's items will be inserted: after the items it has read, whatever is
    inserted or removed meanwhile. The engine keeps the same position."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class ConversationItem(Link):
    """One item: its JSON, its form in the engine (None: nothing for the model to read), and its
    speech if it is a spoken response. `known`: the engine has an item with this id."""

    wire: Json
    engine: api.Item | None
    speech: SpokenResponse | None = None
    known: bool = False
    counted_bytes: int = 0  # what it counts towards the conversation's bound

    def __post_init__(self) -> None:
        Link.__init__(self)

    @property
    def item_id(self) -> str:
        return str(self.wire["id"])

    @property
    def text_bytes(self) -> int:
        """Approximate memory of the item without its images, in bytes."""
        content = self.wire.get("content") or ()
        texts = (value for part in content for value in part.values() if isinstance(value, str))
        return _ITEM_BYTES + 2 * sum(len(text) for text in texts)

    @property
    def picture_bytes(self) -> int:
        parts = self.engine.parts if self.engine is not None else ()
        return sum(len(part.rgb) for part in parts if isinstance(part, api.Image))

    def drop_pictures(self) -> None:
        """Free the images. A restarted engine will not get them."""
        if self.engine is not None:
            texts = tuple(part for part in self.engine.parts if isinstance(part, api.Text))
            item = msgspec.structs.replace(self.engine, parts=texts)
            self.engine = item if texts else None


class Conversation:
    """Items in order, with unique ids. Invalid client requests raise `ProtocolError`.

    Operations on one item take constant time, however many items there are.

    """

    def __init__(self) -> None:
        self._chain = Chain()
        self._by_id: dict[str, ConversationItem] = {}
        self._calls: dict[str, int] = {}  # by call id: items with that call, usually 1
        self._outputs: dict[str, int] = {}  # by call id: the number of items with its output
        self._pictured: dict[str, ConversationItem] = {}  # items with images, oldest first
        self._withdrawn: OrderedDict[str, SpokenResponse | None] = OrderedDict()
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
        """The item a client names. Raises the error for `action` if it does not exist."""
        if item_id not in self._by_id:
            raise errors.item_not_found(action, item_id)
        return self._by_id[item_id]

    def find(self, item_id: str) -> ConversationItem | None:
        return self._by_id.get(item_id)

    def has_call(self, call_id: str) -> bool:
        """Whether there is a function call with that id."""
        return call_id in self._calls

    def has_output(self, call_id: str) -> bool:
        """Whether there is an output for that call."""
        return call_id in self._outputs

    def repeats_itself(self) -> bool:
        """Whether the same call was made twice since the user's last message. A small model may
        repeat a call whose output it already has, without end."""
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
        """Validate a new item's id and position; return the id of the item it will follow (None: it
        becomes the first).

        `previous_item_id`: None means the end, "root" the start. An item that was taken back stood
        at the end.

        """
        if item_id == ROOT:  # as a place in the engine, it would be the start
            raise errors.invalid_value("item.id", f"any id but '{ROOT}'", item_id)
        if item_id in self._by_id:
            raise errors.duplicate_item(item_id)
        if previous_item_id is None or previous_item_id in self._withdrawn:
            return self.tail_id
        if previous_item_id == ROOT:
            return None
        if previous_item_id not in self._by_id:
            raise errors.previous_item_not_found(previous_item_id)
        return previous_item_id

    def previous_id(self, at: str | Place) -> str | None:
        """The id of the item before that item or place; None: there is none."""
        return self._name_before(at if isinstance(at, Place) else self._by_id[at])

    def reserve(self) -> Place:
        """Reserve the place of a new response, at the end. Call `free` when the response is
        over."""
        place = Place()
        self._chain.put(place, self._chain.last)
        return place

    def free(self, place: Place) -> None:
        self._chain.take(place)

    def engine_place(self, item_id: str) -> str | None:
        """Where the engine inserts that item, as `api.AddItem.after` defines it: after the nearest
        earlier item that the engine knows."""
        item = self._by_id[item_id]
        if item is self._chain.last:
            return None
        known = (link for link in self._chain.back_from(item) if isinstance(link, ConversationItem))
        return next((link.item_id for link in known if link.known), ROOT)

    # --- in and out ------------------------------------------------------------------------------

    def insert(
        self, item: ConversationItem, previous_item_id: str | None
    ) -> list[ConversationItem]:
        """Insert an item after the one that `place` returned. After the last item means the end,
        behind an active response. Returns the items that were dropped to stay within the bounds."""
        behind = self._chain.head
        if previous_item_id == self.tail_id:
            behind = self._chain.last
        elif previous_item_id is not None:
            behind = self._by_id[previous_item_id]
        return self._insert(item, behind)

    def insert_answer(self, item: ConversationItem, place: Place) -> list[ConversationItem]:
        """Insert a response's next item at its place. Returns as `insert` does."""
        return self._insert(item, place.before)

    def _insert(self, item: ConversationItem, behind: Link) -> list[ConversationItem]:
        self._chain.put(item, behind)
        self._by_id[item.item_id] = item
        _add(self._books_of(item), item, 1)
        if item.picture_bytes:
            self._pictured[item.item_id] = item
        return self._forget_oldest(item)

    def remove(self, item_id: str) -> ConversationItem:
        """Remove an item. Raises `ProtocolError`."""
        item = self.get(item_id, "delete")
        self._drop(item)
        return item

    def withdraw(self, item_id: str) -> None:
        """Remove an item that the client may still name for a moment, because the server took it
        back."""
        item = self._by_id[item_id]
        self._drop(item)
        self._withdrawn[item_id] = item.speech
        while len(self._withdrawn) > WITHDRAWN_MAX:
            self._withdrawn.popitem(last=False)

    def is_withdrawn(self, item_id: str) -> bool:
        return item_id in self._withdrawn

    def withdrawn_speech(self, item_id: str) -> SpokenResponse | None:
        """The speech of an item that was taken back, if it had any."""
        return self._withdrawn.get(item_id)

    def clear(self) -> None:
        """Remove all items. Breaks their reference cycle, so that images are freed at once."""
        self._chain.clear()
        for books in (self._by_id, self._calls, self._outputs, self._pictured, self._withdrawn):
            books.clear()
        self._bytes = 0

    def engine_lost(self) -> None:
        """The engine is lost, and with it the items it knew."""
        for item in self:
            item.known = False

    def _books_of(self, item: ConversationItem) -> dict[str, int]:
        """The counter for this item: function calls, or their outputs."""
        if item.wire.get("type") == "function_call":
            return self._calls
        return self._outputs if item.wire.get("type") == "function_call_output" else {}

    def _drop(self, item: ConversationItem) -> None:
        self._chain.take(item)
        del self._by_id[item.item_id]
        _add(self._books_of(item), item, -1)
        self._bytes -= item.counted_bytes
        if self._pictured.pop(item.item_id, None) is not None:
            item.drop_pictures()  # a transcript that is still to come keeps the item

    def _count(self, item: ConversationItem) -> None:
        """Update the counted size of an item."""
        self._bytes -= item.counted_bytes
        item.counted_bytes = item.text_bytes + item.picture_bytes
        self._bytes += item.counted_bytes

    def _forget_oldest(self, newest: ConversationItem) -> list[ConversationItem]:
        """Drop the oldest items until the bounds hold; the newest item always stays."""
        # Responses and transcripts grow after their items were inserted, so count these again.
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
        """The last `count` items, newest first."""
        links = self._chain.back_from(self._chain.head)
        return islice((link for link in links if isinstance(link, ConversationItem)), count)

    def _name_before(self, link: Link) -> str | None:
        before = self._chain.back_from(link)
        return next((item.item_id for item in before if isinstance(item, ConversationItem)), None)

    def newest_answer(self) -> str:
        """The text of the assistant's message at the end of the conversation; empty if the newest
        item is another one."""
        wire = next((item.wire for item in self._back(1)), None)
        if wire is None or wire.get("role") != "assistant":
            return ""
        parts = wire.get("content") or ()
        return " ".join(part.get("text") or part.get("transcript") or "" for part in parts)

    def behind(self, item_id: str, at_most: int = LOOKED_BACK) -> list[str] | None:
        """The ids of the items after that one; None if there is no such item among the newest
        `at_most`."""
        ids = [item.item_id for item in self._back(at_most)]
        return ids[: ids.index(item_id)] if item_id in ids else None

    def newest(self, count: int) -> list[Json]:
        """The last `count` items as the client sees them."""
        return [item.wire for item in self._back(count)][::-1]

    def for_engine(self) -> tuple[api.Item, ...]:
        """The items to restore in a new engine."""
        return tuple(item.engine for item in self if item.engine is not None)


def _add(books: dict[str, int], item: ConversationItem, count: int) -> None:
    """Add `count` to the counter of the item's call id."""
    if (call_id := item.wire.get("call_id")) is not None:
        books[call_id] = books.get(call_id, 0) + count
        if not books[call_id]:
            del books[call_id]
