"""Whose work is next."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.runtime.fair_queue import FairQueue


@dataclass
class Ran:
    """One piece of work, in virtual time."""

    owner: int
    small: bool
    added: int
    began: int = -1
    ended: int = -1


@dataclass
class Workers:
    """One takes anything, one small pieces only; a small piece takes 1, another up to 1,000."""

    queue: FairQueue[int, Ran] = field(default_factory=FairQueue)
    ended: list[Ran] = field(default_factory=list)

    def run(self, arrivals: list[tuple[int, int, int]]) -> list[Ran]:
        """Arrivals: (at, owner, duration). All are carried out."""
        pieces = [Ran(owner, lasts == 1, at) for at, owner, lasts in arrivals]
        events = [(at, 0, i) for i, (at, _, _) in enumerate(arrivals)]
        heapq.heapify(events)
        idle = {0: False, 1: True}  # by worker: only small ones?
        busy: dict[int, tuple[int, int]] = {}
        while events:
            now, kind, number = heapq.heappop(events)
            if kind == 0:
                self.queue.add(pieces[number].owner, pieces[number], small=pieces[number].small)
            else:
                worker, index = busy.pop(number)
                idle[worker] = worker == 1
                pieces[index].ended = now
                self.queue.done(pieces[index].owner)
            if events and events[0][0] == now:
                continue
            for worker, only_small in sorted(idle.items()):
                taken = self.queue.take(only_small=only_small)
                if taken is None:
                    continue
                index = next(i for i, piece in enumerate(pieces) if piece is taken[1])
                pieces[index].began = now
                del idle[worker]
                busy[index] = (worker, index)
                heapq.heappush(events, (now + arrivals[index][2], 1, index))
        return pieces


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 4), st.sampled_from([1, 1, 1, 40, 1000])),
    max_size=60,
)


@given(ARRIVALS)
def test_everything_is_done_in_each_owners_order_one_at_a_time(
    arrivals: list[tuple[int, int, int]],
) -> None:
    """Nothing is lost, nothing of one owner overtakes, and no two of its pieces run at once."""
    workers = Workers()
    arrivals.sort()
    pieces = workers.run(arrivals)
    assert len(workers.queue) == 0
    for owner in range(5):
        own = [piece for piece in pieces if piece.owner == owner]
        assert all(piece.ended >= 0 for piece in own)
        for one, other in itertools.pairwise(own):
            assert one.ended <= other.began


@given(ARRIVALS, st.integers(0, 300))
def test_a_newcomer_waits_for_one_piece_of_each_other(
    arrivals: list[tuple[int, int, int]], at: int
) -> None:
    """However much the others have waiting, at most two dear pieces of each take time before it:
    the one under way when it comes, and one more in turn."""
    pieces = Workers().run(sorted([*arrivals, (at, 9, 1000)]))
    (newcomer,) = [piece for piece in pieces if piece.owner == 9]
    for owner in range(5):
        between = [
            piece
            for piece in pieces
            if piece.owner == owner and not piece.small
            if piece.ended > newcomer.added and piece.began < newcomer.began
        ]
        assert len(between) <= 2


@given(ARRIVALS, st.integers(0, 300))
def test_a_small_piece_never_waits_for_a_dear_one(
    arrivals: list[tuple[int, int, int]], at: int
) -> None:
    """It waits for small ones at most: each owner's one, and what is under way."""
    pieces = Workers().run(sorted([*arrivals, (at, 9, 1)]))
    (newcomer,) = [piece for piece in pieces if piece.owner == 9]
    assert newcomer.began - newcomer.added <= 6


def test_what_is_discarded_is_not_taken() -> None:
    """The rest of its owner's work is, and a piece under way is not touched."""
    queue: FairQueue[str, str] = FairQueue()
    for work in ("one", "two", "three"):
        queue.add("a", work, small=False)
    assert queue.take() == ("a", "one")
    queue.discard("a", "one")
    queue.discard("a", "two")
    queue.discard("b", "two")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == ("a", "three")
    queue.done("a")
    assert queue.take() is None
    assert len(queue) == 0
