"""The gateway's books of one conversation: what the client sees, and what restores the engine."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from engine import api
from gateway.protocol import errors
from gateway.protocol.items import Json
from gateway.voice.speaking import Speaking

ROOT = "root"  # the protocol's word for "before all items"
# What one session's books may hold; beyond, the oldest items are forgotten, as the model forgets
# them. Pictures go first: they are kept for a restarted engine only.
ITEMS_MAX = 4_096
BYTES_MAX = 64 * 1024 * 1024
PICTURED = 16  # newest items that keep their pictures when it gets tight
RECENT = 32  # newest items whose content may still be coming
_ITEM_BYTES = 2_048  # its JSON besides texts and pictures, roughly

# Code and message of a transcript that nobody makes; the turn itself goes on.
NO_TRANSCRIBER = (
    "no_transcriber",
    "The model hears sound without words, and no transcriber runs beside it: set transcribe=on.",
)


@dataclass(slots=True)
class Kept:
    """One item: its JSON, the engine's view of it (None: nothing for the model to read), and how
    it was spoken, if it is an answer that was."""

    wire: Json
    engine: api.Item | None
    speech: Speaking | None = None
    counted_bytes: int = 0  # of the conversation's bound

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
    """Items in order. Ids are unique; what a client gets wrong raises `ProtocolError`."""

    def __init__(self) -> None:
        self._items: list[Kept] = []
        self._by_id: dict[str, Kept] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def tail_id(self) -> str | None:
        return self._items[-1].item_id if self._items else None

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._by_id

    def get(self, item_id: str, action: errors.ItemAction) -> Kept:
        """The item a client names. Raises the error of `action` when there is none."""
        if item_id not in self._by_id:
            raise errors.item_not_found(action, item_id)
        return self._by_id[item_id]

    def find(self, item_id: str) -> Kept | None:
        return self._by_id.get(item_id)

    def has_call(self, call_id: str) -> bool:
        """Whether a function was called by that id."""
        return any(
            item.wire["type"] == "function_call" and item.wire["call_id"] == call_id
            for item in self._items
        )

    def repeats_itself(self) -> bool:
        """Whether the same call was made twice since the user's last message: a small model asks
        again for what it has just been given, and would for ever."""
        made = set()
        for item in reversed(self._items):
            if item.wire.get("role") == "user":
                return False
            if item.wire["type"] == "function_call":
                call = (item.wire["name"], item.wire["arguments"])
                if call in made:
                    return True
                made.add(call)
        return False

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

    def insert(self, item: Kept, previous_item_id: str | None) -> None:
        """Put an item behind the one that `place` named."""
        at = 0
        if previous_item_id is not None:
            at = 1 + self._items.index(self._by_id[previous_item_id])
        self._items.insert(at, item)
        self._by_id[item.item_id] = item
        self._forget_oldest(item)

    def remove(self, item_id: str) -> Kept:
        """Forget an item. Raises `ProtocolError`."""
        item = self.get(item_id, "delete")
        self._drop(item)
        return item

    def clear(self) -> None:
        """Forget all items; with their pictures they would wait for the collector."""
        self._items.clear()
        self._by_id.clear()
        self._bytes = 0

    def _drop(self, item: Kept) -> None:
        self._items.remove(item)
        del self._by_id[item.item_id]
        self._bytes -= item.counted_bytes

    def _count(self, item: Kept) -> None:
        """Note an item's size as it is now."""
        self._bytes -= item.counted_bytes
        item.counted_bytes = item.text_bytes + item.picture_bytes
        self._bytes += item.counted_bytes

    def _forget_oldest(self, newest: Kept) -> None:
        """Keep within the bounds, whatever it costs but the newest item."""
        # Answers and transcripts come into their items after those were put here.
        for item in self._items[-RECENT:]:
            self._count(item)
        self._count(newest)
        if self._bytes > BYTES_MAX:
            for item in self._items[:-PICTURED]:
                if item is not newest:
                    item.drop_pictures()
                    self._count(item)
        while len(self._items) > 1 and (len(self._items) > ITEMS_MAX or self._bytes > BYTES_MAX):
            self._drop(self._items[0] if self._items[0] is not newest else self._items[1])

    def engine_place(self, item_id: str) -> str:
        """The id behind which the engine has to put that item: of the nearest one before it that
        the engine knows, or "root"."""
        before = self._items[: self._items.index(self._by_id[item_id])]
        known = [item.item_id for item in before if item.engine is not None]
        return known[-1] if known else ROOT

    def newest(self, count: int) -> list[Json]:
        """The last `count` items as the client sees them."""
        return [item.wire for item in self._items[-count:]]

    def for_engine(self) -> tuple[api.Item, ...]:
        """What a new engine has to know."""
        return tuple(item.engine for item in self._items if item.engine is not None)
