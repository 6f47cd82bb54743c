"""A queue that serves owners in turn, one piece of work at a time.

    add(owner, work, small) ─▶ waits ─▶ take(only_small) ─▶ in progress ─▶ done(owner)
                                 └─ discard(owner, work)

However much one owner has queued, another owner's piece waits for at most one piece of each owner
before it. An owner with a piece in progress is skipped. A worker may take only small pieces, so
that these can pass the expensive ones. No locks, no clock.

Bound: the callers'; see `headstart.gateway.video.decode_pool`.

"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Work = TypeVar("Work")


class FairQueue(Generic[Owner, Work]):
    """Work of several owners."""

    def __init__(self) -> None:
        # In the order of their turns.
        self._waiting: dict[Owner, deque[tuple[Work, bool]]] = {}
        self._under_way: set[Owner] = set()

    def __len__(self) -> int:
        """The number of queued pieces."""
        return sum(len(pieces) for pieces in self._waiting.values())

    def add(self, owner: Owner, work: Work, *, small: bool) -> None:
        """Queue a piece after this owner's other pieces."""
        self._waiting.setdefault(owner, deque()).append((work, small))

    def take(self, *, only_small: bool = False) -> tuple[Owner, Work] | None:
        """The next piece, now in progress; None: there is none."""
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
        """The owner's piece in progress is done."""
        self._under_way.remove(owner)
        pieces = self._waiting.pop(owner, None)
        if pieces is not None:
            self._waiting[owner] = pieces  # after all that have queued meanwhile

    def discard(self, owner: Owner, work: Work) -> None:
        """Remove a queued piece that is no longer wanted."""
        left = deque(piece for piece in self._waiting.get(owner, ()) if piece[0] is not work)
        if left:
            self._waiting[owner] = left
        else:
            self._waiting.pop(owner, None)
