"""Which pictures are encoded next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.scheduling.batch_size import BatchSize
from headstart.engine.scheduling.encode_queue import NS_PER_MS, EncodeQueue


def queue(budget: int = 1_000, together: int = 4, limit: int = 256) -> EncodeQueue[str]:
    return EncodeQueue(budget, BatchSize(together), limit)


def push(
    waiting: EncodeQueue[str],
    name: str,
    tokens: int = 100,
    level: str = "low",
    due_ms: int = 0,
    now_ms: int = 0,
) -> bool:
    """A picture called after its owner, such as "a1"."""
    return waiting.push(
        name,
        name[0],
        tokens=tokens,
        level=level,
        due_ns=due_ms * NS_PER_MS,
        now_ns=now_ms * NS_PER_MS,
    )


def test_the_most_urgent_one_leads_and_its_level_follows() -> None:
    """A batch is of one level of detail; what is between its pictures waits."""
    waiting = queue()
    push(waiting, "a1", level="high", due_ms=5)
    push(waiting, "b1", level="low", due_ms=3)
    push(waiting, "c1", level="high", due_ms=2)
    push(waiting, "d1", level="high", due_ms=9)
    assert waiting.take(0) == ["c1", "a1", "d1"]
    assert waiting.take(0) == ["b1"]
    assert waiting.take(0) == []


def test_a_batch_is_within_the_budget_or_one_picture() -> None:
    """So an encoder's memory is bounded; a smaller picture may still find room."""
    waiting = queue(budget=250)
    push(waiting, "a1", tokens=200, due_ms=1)
    push(waiting, "b1", tokens=100, due_ms=2)
    push(waiting, "c1", tokens=50, due_ms=3)
    push(waiting, "d1", tokens=4_000, due_ms=4)
    assert waiting.take(0) == ["a1", "c1"]
    assert waiting.take(0) == ["b1"]
    assert waiting.take(0) == ["d1"]


def test_owners_take_turns() -> None:
    """Whoever sends many at once does not go before one that sends one."""
    waiting = queue(together=1)
    for number in range(3):
        push(waiting, f"a{number}")
    push(waiting, "b0")
    assert [waiting.take(0)[0] for _ in range(4)] == ["a0", "b0", "a1", "a2"]


def test_a_flood_does_not_go_before_one_picture_that_comes_later() -> None:
    """A thousand pictures of one owner delay a later one of another by what is being encoded and
    one batch more; the flood goes on between the others' pictures."""
    waiting = queue(together=1, limit=1_000)
    for number in range(1_000):
        push(waiting, f"a{number}")
    assert waiting.take(0) == ["a0"]
    push(waiting, "b0", due_ms=10, now_ms=10)
    push(waiting, "b1", due_ms=10, now_ms=10)
    assert waiting.take(300 * NS_PER_MS) == ["a1"]
    push(waiting, "c0", due_ms=310, now_ms=310)
    taken = [waiting.take(at_ms * NS_PER_MS)[0] for at_ms in (600, 900, 1_200, 1_500, 1_800)]
    assert taken == ["b0", "a2", "c0", "b1", "a3"]


def test_a_late_deadline_waits_no_longer_than_the_bound() -> None:
    """A picture that is due in an hour goes before those that came two seconds after it."""
    waiting = queue(together=1)
    push(waiting, "a1", due_ms=3_600_000)
    push(waiting, "b1", due_ms=1_900, now_ms=1_900)
    push(waiting, "c1", due_ms=2_100, now_ms=2_100)
    assert [waiting.take(0)[0] for _ in range(3)] == ["b1", "a1", "c1"]


def test_what_is_full_refuses() -> None:
    """Pictures of one owner, not those of others; and takes them again when some have gone."""
    waiting = queue(limit=2)
    assert push(waiting, "a1")
    assert push(waiting, "a2")
    assert not push(waiting, "a3")
    assert push(waiting, "b1")
    assert waiting.forget("a") == ["a1", "a2"]
    assert push(waiting, "a3")
    assert waiting.clear() == ["b1", "a3"]
    assert len(waiting) == 0


pictures = st.tuples(
    st.sampled_from("abc"), st.integers(1, 400), st.sampled_from(["low", "high"]), st.integers(0, 9)
)


@given(st.lists(pictures, max_size=30), st.integers(1, 5), st.integers(1, 500))
def test_every_picture_is_taken_once(
    given_pictures: list[tuple[str, int, str, int]], together: int, budget: int
) -> None:
    """In batches of one level, within the bounds."""
    waiting = queue(budget, together)
    known = {}
    for number, (owner, tokens, level, due_ms) in enumerate(given_pictures):
        known[f"{owner}{number}"] = (tokens, level)
        assert push(waiting, f"{owner}{number}", tokens, level, due_ms)
    taken: list[str] = []
    while batch := waiting.take(0):
        assert len({known[name][1] for name in batch}) == 1
        assert len(batch) <= together
        assert len(batch) == 1 or sum(known[name][0] for name in batch) <= budget
        taken += batch
    assert sorted(taken) == sorted(known)


def test_one_picture_can_be_taken_back() -> None:
    """Others of its owner stay; one that does not wait is none of it."""
    queue: EncodeQueue[object] = EncodeQueue(100, BatchSize(4))
    first, second = object(), object()
    for picture in (first, second):
        queue.push(picture, "a", tokens=1, level=0, due_ns=0, now_ns=0)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert queue.take(0) == [second]
    assert not queue.remove(second)
