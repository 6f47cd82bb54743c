"""Whose work is next: each owner in turn, one piece at a time.

    add(owner, work, small) ─▶ waits ─▶ take(only_small) ─▶ under way ─▶ done(owner)
                                 └─ discard(owner, work)

However much one owner has waiting, another's piece waits for no more than one piece of each owner
before it. An owner whose piece is under way is passed over. What takes work may take small pieces
only, so that these have a way past the dear ones. No locks, no clock.

Bound: the callers'; see `headstart.gateway.video.decode_pool`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Work = TypeVar("Work")


class FairQueue(Generic[Owner, Work]):
    """Work of many owners."""

    def __init__(self) -> None:
        # In the order of their turns.
        self._waiting: dict[Owner, deque[tuple[Work, bool]]] = {}
        self._under_way: set[Owner] = set()

    def __len__(self) -> int:
        """Pieces that wait."""
        return sum(len(pieces) for pieces in self._waiting.values())

    def add(self, owner: Owner, work: Work, *, small: bool) -> None:
        """Behind this owner's other pieces."""
        self._waiting.setdefault(owner, deque()).append((work, small))

    def take(self, *, only_small: bool = False) -> tuple[Owner, Work] | None:
        """The next piece, now under way; None: there is none to be had."""
        for owner, pieces in self._waiting.items():
            if owner in self._under_way or (only_small and not pieces[0][1]):
                continue
            work, _ = pieces.popleft()
            if not pieces:
                del self._waiting[owner]
            self._under_way.add(owner)
            return owner, work
        return None

    def done(self, owner: Owner) -> None:
        """With the piece that was under way."""
        self._under_way.remove(owner)
        pieces = self._waiting.pop(owner, None)
        if pieces is not None:
            self._waiting[owner] = pieces  # behind all that have waited meanwhile

    def discard(self, owner: Owner, work: Work) -> None:
        """A piece that nobody wants any more, if it still waits."""
        left = deque(piece for piece in self._waiting.get(owner, ()) if piece[0] is not work)
        if left:
            self._waiting[owner] = left
        else:
            self._waiting.pop(owner, None)
