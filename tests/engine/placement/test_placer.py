"""Sessions on nodes: who goes where, who moves, who is refused."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.errors import BadSettings
from headstart.engine.placement import (
    BreakerRules,
    DuplicateNode,
    Load,
    Node,
    NodeState,
    NodeStatus,
    Placement,
    PlacementRules,
    Placer,
    Refusal,
    RefusalReason,
    UnknownNode,
    rendezvous,
)

MS = 1_000_000
S = 1_000 * MS
EVEN = PlacementRules(bound=1.25)
STICKY = PlacementRules(bound=math.inf)


def placer(count: int, capacity: int | None = None, rules: PlacementRules = EVEN) -> Placer:
    return Placer([Node(f"n{n}", capacity) for n in range(count)], rules)


def node_of(placement: Placement | Refusal) -> str:
    assert isinstance(placement, Placement), placement
    return placement.node


def fill(at: Placer, count: int) -> dict[str, str]:
    """`count` new sessions, each with its node."""
    return {f"s{n}": node_of(at.place(f"s{n}", 0)) for n in range(count)}


def by_name(at: Placer, now_ns: int = 0) -> dict[str, NodeStatus]:
    return {status.name: status for status in at.status(now_ns)}


# --- where ---------------------------------------------------------------------------------------


def test_without_load_a_session_goes_to_the_first_of_its_order() -> None:
    """So that processes that share no state send it to the same node."""
    at = placer(5, rules=STICKY)
    nodes = [Node(f"n{n}") for n in range(5)]
    for session, node in fill(at, 200).items():
        assert node == rendezvous(session, nodes)[0].name


def test_no_node_gets_more_than_its_bound() -> None:
    """At each newcomer no node has more than 1.25 times the mean, rounded up."""
    at = placer(7)
    for number in range(500):
        at.place(f"s{number}", 0)
        counts = [status.sessions for status in at.status(0)]
        assert max(counts) <= math.ceil(1.25 * sum(counts) / 7)


def test_larger_nodes_get_more() -> None:
    """By weight, within the bound of each node."""
    at = Placer([Node("large", weight=3.0), Node("small", weight=1.0)], EVEN)
    counts = Counter(fill(at, 400).values())
    assert counts["large"] <= math.ceil(1.25 * 300)
    assert counts["small"] <= math.ceil(1.25 * 100)


def test_a_session_keeps_its_node() -> None:
    """However the load changes, and whichever nodes come."""
    at = placer(3)
    before = fill(at, 60)
    at.add(Node("new"))
    for name in ("n0", "n1"):
        at.report(name, Load(waiting=500, kv_share=1.0), 0)
    assert {session: node_of(at.place(session, 1)) for session in before} == before
    assert at.moved == 0


def test_a_busy_node_is_passed_over() -> None:
    """Work in flight counts, and so does the queue that a server reports while that is fresh."""
    for busy in ("in flight", "waiting"):
        at = placer(2)
        for _ in range(50):
            if busy == "in flight":
                at.begin("n0")
        if busy == "waiting":
            at.report("n0", Load(waiting=50), 0)
        assert set(fill(at, 20).values()) == {"n1"}
    at.report("n0", Load(waiting=0), 0)
    at.report("n1", Load(waiting=500), 0)
    stale_ns = 11 * S
    taken = {node_of(at.place(f"later{n}", stale_ns)) for n in range(40)}
    assert taken == {"n0", "n1"}


def test_an_old_report_does_not_count() -> None:
    """A report that was old when it came is as old as it says."""
    at = placer(1)
    at.report("n0", Load(kv_share=1.0, age_ms=9_000), 0)
    assert isinstance(at.place("a", 0), Refusal)
    assert isinstance(at.place("a", 2 * S), Placement)
    assert by_name(at, 2 * S)["n0"].kv_share is None


# --- refusals ------------------------------------------------------------------------------------


def test_a_session_is_refused_when_all_nodes_are_full() -> None:
    """And taken as soon as one has left; the wait is estimated from those who left before."""
    at = placer(2, capacity=3)
    fill(at, 6)
    assert at.place("late", 0) == Refusal(RefusalReason.FULL, 30_000)
    for number in range(3):
        at.release(f"s{number}", number * 2 * S)
        at.place(f"more{number}", 0)
    assert at.place("late", 10 * S) == Refusal(RefusalReason.FULL, 2_000)
    at.release("s5", 10 * S)
    assert isinstance(at.place("late", 10 * S), Placement)
    assert at.refused == 2


def test_full_memory_is_no_room() -> None:
    """A server whose running requests hold its K/V memory takes no session."""
    at = placer(2)
    at.report("n0", Load(kv_share=0.99), 0)
    assert set(fill(at, 10).values()) == {"n1"}
    at.report("n1", Load(kv_share=0.99), 0)
    refusal = at.place("late", 0)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.FULL


def test_without_a_node_that_is_ready_the_wait_is_its_cool_down() -> None:
    """A refusal names why, and when the first node will be tried again."""
    assert Placer().place("a", 0) == Refusal(RefusalReason.NO_NODES, 30_000)
    at = placer(2)
    at.fail("n0", 0)
    at.fail("n1", 300 * MS)
    assert at.place("a", 400 * MS) == Refusal(RefusalReason.DOWN, 600)


def test_room_is_kept_for_sessions_that_must_move() -> None:
    """With a reserve of half, new sessions are refused where moved ones still find room."""
    at = placer(2, capacity=4, rules=PlacementRules(reserve_share=0.5))
    before = fill(at, 4)
    assert isinstance(at.place("new", 0), Refusal)
    lost = at.fail("n0", 0)
    assert lost == tuple(session for session, node in before.items() if node == "n0")
    assert {node_of(at.place(session, 1)) for session in lost} == {"n1"}


# --- loss and drain ------------------------------------------------------------------------------


def test_only_the_sessions_of_a_lost_node_move() -> None:
    """Each to another node, once, and it is told where it was."""
    at = placer(4)
    before = fill(at, 100)
    lost = at.fail("n2", 0)
    assert set(lost) == {session for session, node in before.items() if node == "n2"}
    assert all(at.node_of(session) is None for session in lost)
    for session, node in before.items():
        placement = at.place(session, 1)
        assert isinstance(placement, Placement)
        if node == "n2":
            assert placement.node != "n2"
            assert placement.moved_from == "n2"
        else:
            assert placement == Placement(session, node)
    assert at.moved == len(lost)
    again = at.place(lost[0], 2)
    assert isinstance(again, Placement)
    assert again.moved_from is None


def test_a_drained_node_is_left_one_session_at_a_time() -> None:
    """Its sessions stay until they are placed again; without room elsewhere they stay longer."""
    at = placer(2, capacity=10)
    before = fill(at, 10)
    leaving = at.drain("n0")
    assert by_name(at)["n0"].state is NodeState.DRAINING
    assert all(at.node_of(session) == "n0" for session in leaving)
    moved = at.place(leaving[0], 0)
    assert moved == Placement(leaving[0], "n1", "n0")
    fill_up = [f"more{n}" for n in range(10 - sum(n == "n1" for n in before.values()) - 1)]
    assert {node_of(at.place(session, 0)) for session in fill_up} <= {"n1"}
    assert at.place(leaving[1], 0) == Placement(leaving[1], "n0")
    assert isinstance(at.place("new", 0), Refusal)


def test_a_node_that_drained_before_it_was_lost_still_drains() -> None:
    """`recover` ends a drain only of a node that is not down."""
    at = placer(1)
    at.drain("n0")
    at.fail("n0", 0)
    at.recover("n0", 0)
    assert by_name(at)["n0"].state is NodeState.DRAINING
    at.recover("n0", 0)
    assert by_name(at)["n0"].state is NodeState.READY


def test_a_node_that_recovers_gets_new_sessions_and_none_back() -> None:
    """Moving them back would cost a cold prefix a second time."""
    at = placer(2)
    fill(at, 20)
    lost = at.fail("n0", 0)
    for session in lost:
        at.place(session, 0)
    assert not at.probe("n0", 999 * MS)
    assert at.probe("n0", 1 * S)
    assert not at.probe("n0", 1 * S)
    at.recover("n0", 1 * S)
    assert {node_of(at.place(session, 1 * S)) for session in lost} == {"n1"}
    assert {node_of(at.place(f"new{n}", 1 * S)) for n in range(10)} == {"n0"}


def test_failures_of_work_take_a_node_down() -> None:
    """Three in a row do; those that were cancelled or were a client's fault do not count."""
    at = placer(2)
    fill(at, 20)
    for _ in range(10):
        at.begin("n0")
        assert at.finish("n0", 0, ok=None) == ()
    lost: tuple[str, ...] = ()
    for _ in range(3):
        at.begin("n0")
        lost = at.finish("n0", 0, ok=False)
    assert len(lost) > 0
    status = by_name(at)["n0"]
    assert (status.state, status.sessions, status.in_flight) == (NodeState.DOWN, 0, 0)
    assert status.retry_in_ms == 1_000
    at.begin("n1")
    assert at.finish("n1", 0, ok=True) == ()


def test_old_work_of_a_node_that_is_down_neither_brings_it_back_nor_counts() -> None:
    """It comes back by `recover`; work of a removed node is ignored."""
    at = placer(2)
    at.begin("n0")
    at.begin("n0")
    at.fail("n0", 0)
    assert at.finish("n0", 5 * S, ok=True) == ()
    assert by_name(at)["n0"].state is NodeState.DOWN
    at.remove("n0")
    assert at.finish("n0", 5 * S, ok=False) == ()


def test_a_removed_node_gives_its_sessions_back() -> None:
    """They move like those of a lost one, and the name is free again."""
    at = placer(2)
    before = fill(at, 10)
    gone = at.remove("n0")
    assert set(gone) == {session for session, node in before.items() if node == "n0"}
    assert "n0" not in at
    assert list(at) == ["n1"]
    at.add(Node("n0"))


# --- wrong calls ---------------------------------------------------------------------------------


def test_wrong_names_are_named() -> None:
    """A node given twice, or one that nobody gave."""
    with pytest.raises(DuplicateNode, match="'n0'"):
        Placer([Node("n0"), Node("n0")])
    with pytest.raises(UnknownNode, match="expected one of n0, n1"):
        placer(2).drain("n7")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bound", 0.9),
        ("bound", math.nan),
        ("reserve_share", 1.0),
        ("kv_full_share", 0.0),
        ("load_valid_ms", 0),
        ("shortest_retry_ms", 40_000),
    ],
)
def test_rules_out_of_range_are_named(field: str, value: float) -> None:
    """The error says which setting, what was expected and what came."""
    with pytest.raises(BadSettings, match=field):
        PlacementRules(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [{"capacity": 0}, {"weight": 0.0}, {"weight": math.inf}])
def test_nodes_out_of_range_are_named(size: dict[str, float]) -> None:
    """So are nodes without room or weight."""
    with pytest.raises(BadSettings, match="of n0"):
        Node("n0", **size)  # type: ignore[arg-type]


# --- any order of events -------------------------------------------------------------------------


class Book:
    """What a caller of the placer knows, checked after every event."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rules = PlacementRules(
            bound=self.chance.choice((1.0, 1.25, 2.0, math.inf)),
            reserve_share=self.chance.choice((0.0, 0.3)),
            breaker=BreakerRules(cool_down_ms=500, longest_cool_down_ms=4_000),
        )
        self.sizes = {
            f"n{n}": self.chance.choice((None, 1, 3, 8)) for n in range(self.chance.randint(1, 5))
        }
        nodes = [Node(name, size, self.chance.uniform(0.5, 3)) for name, size in self.sizes.items()]
        self.at = Placer(nodes, self.rules)
        self.where: dict[str, str | None] = {}  # None: its node was lost
        self.now_ns = 0
        self.names = 0

    def event(self) -> None:
        self.now_ns += self.chance.choice((0, 5, 300, 2_000)) * MS
        name = self.chance.choice(list(self.sizes))
        match self.chance.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                self.names += 1
                self.place(f"s{self.names}")
            case 5 | 6 if self.where:
                self.place(self.chance.choice(list(self.where)))
            case 7 if self.where:
                session = self.chance.choice(list(self.where))
                self.at.release(session, self.now_ns)
                del self.where[session]
            case 8:
                self.lost(name, self.at.fail(name, self.now_ns))
            case 9:
                self.at.drain(name)
            case 10:
                if self.states()[name] is not NodeState.DOWN or self.at.probe(name, self.now_ns):
                    self.at.recover(name, self.now_ns)
            case _:
                self.at.begin(name)
                ok = self.chance.choice((True, False, None))
                lost = self.at.finish(name, self.now_ns, ok=ok)
                if lost:
                    assert self.states()[name] is NodeState.DOWN
                    self.lost(name, lost)

    def lost(self, name: str, sessions: tuple[str, ...]) -> None:
        assert set(sessions) == {s for s, node in self.where.items() if node == name}
        self.where |= dict.fromkeys(sessions)

    def states(self) -> dict[str, NodeState]:
        return {status.name: status.state for status in self.at.status(self.now_ns)}

    def room(self, *, is_new: bool) -> bool:
        share = self.rules.reserve_share if is_new else 0.0
        return any(
            status.state is NodeState.READY
            and (
                status.capacity is None
                or status.sessions < status.capacity - int(status.capacity * share)
            )
            for status in self.at.status(self.now_ns)
        )

    def place(self, session: str) -> None:
        is_new = session not in self.where
        before, states, room = self.where.get(session), self.states(), self.room(is_new=is_new)
        answer = self.at.place(session, self.now_ns)
        if isinstance(answer, Refusal):
            assert not room, "refused, although a node has room"
            assert before is None, "a session that had a node was refused"
            assert 500 <= answer.retry_after_ms <= 30_000
            return
        if before is not None and answer.node != before:
            assert states[before] is NodeState.DRAINING, "moved without need"
            assert answer.moved_from == before
        if answer.node != before:
            assert states[answer.node] is NodeState.READY
        self.where[session] = answer.node

    def check(self) -> None:
        counts = Counter(node for node in self.where.values() if node is not None)
        for status in self.at.status(self.now_ns):
            assert status.sessions == counts[status.name]
            assert status.capacity is None or status.sessions <= status.capacity
            assert status.state is not NodeState.DOWN or status.sessions == 0
        assert all(self.at.node_of(session) == node for session, node in self.where.items())


@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_any_order_of_events_keeps_its_promises(chance: random.Random) -> None:
    """No session on two nodes, no node above its capacity, moves only off lost and draining nodes,
    refusals only without room."""
    book = Book(chance)
    for _ in range(chance.randint(1, 200)):
        book.event()
        book.check()
