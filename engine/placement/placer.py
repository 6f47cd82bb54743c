"""Who is where: places sessions on nodes, and says which must move when a node is lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headstart.engine.errors import BadSettings
from headstart.engine.placement.breaker import NS_PER_MS, BreakerRules, CircuitBreaker
from headstart.engine.placement.errors import DuplicateNode, UnknownNode
from headstart.engine.placement.nodes import (
    Load,
    Node,
    NodeState,
    NodeStatus,
    Placement,
    Refusal,
    RefusalReason,
)
from headstart.engine.placement.rendezvous import Ranking, rendezvous

RELEASES_KEPT = 32  # for the estimate of when a place will be free


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """Raises `BadSettings` for a value out of range.

    Attributes:
        bound: c of "consistent hashing with bounded loads" (Mirrokni, Thorup, Zadimoghaddam 2018):
            a node whose load with the newcomer would be above c times its share of the whole is
            passed over while another one has room. 1: as even as can be; large: as sticky as can
            be. `math.inf`: load does not matter.
        reserve_share: share of each capacity that is kept for sessions of nodes that were lost; new
            sessions are refused before it is used.
        kv_full_share: a node that reports so much of its K/V memory in use takes no session.
        load_valid_ms: a report older than this is not used.
        shortest_retry_ms, longest_retry_ms: bounds of a refusal's `retry_after_ms`.
    """

    bound: float = 1.25
    reserve_share: float = 0.0
    kv_full_share: float = 0.98
    load_valid_ms: int = 10_000
    shortest_retry_ms: int = 500
    longest_retry_ms: int = 30_000
    breaker: BreakerRules = field(default_factory=BreakerRules)

    def __post_init__(self) -> None:
        if not self.bound >= 1:
            raise BadSettings("bound", "at least 1", self.bound)
        if not 0 <= self.reserve_share < 1:
            raise BadSettings("reserve_share", "at least 0 and less than 1", self.reserve_share)
        if not 0 < self.kv_full_share <= 1:
            raise BadSettings("kv_full_share", "more than 0, at most 1", self.kv_full_share)
        if self.load_valid_ms < 1:
            raise BadSettings("load_valid_ms", "at least 1", self.load_valid_ms)
        if not 1 <= self.shortest_retry_ms <= self.longest_retry_ms:
            raise BadSettings("shortest_retry_ms", "1 to longest_retry_ms", self.shortest_retry_ms)


class _Held:
    """A node and what is known of it."""

    def __init__(self, node: Node, breaker: CircuitBreaker) -> None:
        self.node = node
        self.breaker = breaker
        self.down = False
        self.draining = False
        self.sessions: dict[str, None] = {}  # in the order in which they came
        self.in_flight = 0
        self.load = Load()
        self.load_at_ns: int | None = None

    @property
    def state(self) -> NodeState:
        if self.down:
            return NodeState.DOWN
        return NodeState.DRAINING if self.draining else NodeState.READY

    def load_at(self, now_ns: int, valid_ms: int) -> Load | None:
        """The newest report, if it is recent enough."""
        if self.load_at_ns is None or now_ns - self.load_at_ns > valid_ms * NS_PER_MS:
            return None
        return self.load

    def busy(self, load: Load | None) -> float:
        """Sessions, work in flight and requests in its queue, by weight. A session counts once
        while it is silent and again while there is work for it: a slow node has more of that."""
        waiting = load.waiting if load is not None else 0
        return (len(self.sessions) + self.in_flight + waiting) / self.node.weight


class Placer:
    """The sessions of several nodes. A session is on one node at most, from `place` to `release`.

    Kept are the sessions that are placed, and those that a lost node held, until they are placed
    again or released: as many as the caller has open. Raises `DuplicateNode`; `UnknownNode` where a
    call names a node that was not added or was removed.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        rules: PlacementRules | None = None,
        ranking: Ranking = rendezvous,
    ) -> None:
        self.rules = rules or PlacementRules()
        self.moved = 0  # sessions moved from a node that was lost or drained
        self.refused = 0  # calls of `place` that were answered by a refusal
        self._ranking = ranking
        self._nodes: dict[str, _Held] = {}
        self._node_of: dict[str, str] = {}
        self._lost: dict[str, str] = {}  # sessions without a node -> the node that held them
        self._released_ns: deque[int] = deque(maxlen=RELEASES_KEPT)
        for node in nodes:
            self.add(node)

    # --- nodes -----------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Add a node that is ready. Sessions that are placed stay where they are."""
        if node.name in self._nodes:
            raise DuplicateNode(node.name)
        self._nodes[node.name] = _Held(node, CircuitBreaker(self.rules.breaker))

    def remove(self, name: str) -> tuple[str, ...]:
        """Forget a node. Returns the sessions that it still held, which must move."""
        gone = self._evict(self._held(name))
        del self._nodes[name]
        return gone

    def drain(self, name: str) -> tuple[str, ...]:
        """Place no more sessions on a node. Returns those that are on it: they stay until the
        caller places them again, best between two turns."""
        held = self._held(name)
        held.draining = True
        return tuple(held.sessions)

    def fail(self, name: str, now_ns: int) -> tuple[str, ...]:
        """A node was lost: it is down, and its breaker is open. Returns the sessions that must
        move: they are on no node until they are placed again. Also for a probe that failed."""
        held = self._held(name)
        held.breaker.trip(now_ns)
        return self._down(held)

    def recover(self, name: str, now_ns: int) -> None:
        """A node that was down works: its probe succeeded, or it was started again. If it drained
        before, it drains still. Of a node that is not down it ends the drain. Sessions that moved
        stay where they are."""
        held = self._held(name)
        if not held.down:
            held.draining = False
        held.down = False
        held.breaker.close(now_ns)

    def probe(self, name: str, now_ns: int) -> bool:
        """Whether the caller may check the health of a node that is down. After each cool-down one
        call is answered by True; its caller then calls `recover` or `fail`."""
        held = self._held(name)
        return held.down and held.breaker.probe(now_ns)

    def report(self, name: str, load: Load, now_ns: int) -> None:
        """What a node says of its load. Replaces its earlier report."""
        held = self._held(name)
        held.load, held.load_at_ns = load, now_ns - load.age_ms * NS_PER_MS

    # --- work ------------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """Work was sent to a node. Each call is followed by one of `finish`."""
        self._held(name).in_flight += 1

    def finish(self, name: str, now_ns: int, *, ok: bool | None = True) -> tuple[str, ...]:
        """Work ended: well, by a fault of the node (`ok` False), or without saying anything about
        it (None: cancelled by us, or wrong by the client's fault). Returns the sessions that must
        move, if so many failures took the node down. A node that was removed is ignored."""
        held = self._nodes.get(name)
        if held is None:
            return ()
        held.in_flight = max(0, held.in_flight - 1)
        if held.down or ok is None:
            return ()  # a node that is down comes back by `recover` only
        if ok:
            held.breaker.succeeded(now_ns)
            return ()
        return self._down(held) if held.breaker.failed(now_ns) else ()

    # --- sessions --------------------------------------------------------------------------------

    def place(self, session: str, now_ns: int) -> Placement | Refusal:
        """The session's node. Called for a new session, and again before each turn: a session keeps
        its node while that is ready, and leaves one that drains as soon as another has room."""
        at = self._node_of.get(session)
        if at is not None and self._nodes[at].state is NodeState.READY:
            return Placement(session, at)
        from_node = at if at is not None else self._lost.get(session)
        chosen = self._choose(session, now_ns, is_new=from_node is None)
        if chosen is None and at is not None:
            return Placement(session, at)  # it drains, but answers
        if chosen is None:
            self.refused += 1
            return self._refusal(now_ns)
        if at is not None:
            del self._nodes[at].sessions[session]
        self._lost.pop(session, None)
        self._node_of[session] = chosen.node.name
        chosen.sessions[session] = None
        self.moved += from_node is not None
        return Placement(session, chosen.node.name, from_node)

    def release(self, session: str, now_ns: int) -> None:
        """A session has ended. Does nothing if it has no node."""
        self._lost.pop(session, None)
        name = self._node_of.pop(session, None)
        if name is not None:
            del self._nodes[name].sessions[session]
            self._released_ns.append(now_ns)

    def node_of(self, session: str) -> str | None:
        """The node that holds a session now."""
        return self._node_of.get(session)

    # --- what there is ---------------------------------------------------------------------------

    def status(self, now_ns: int) -> tuple[NodeStatus, ...]:
        """All nodes, in the order in which they were added."""
        return tuple(self._status(held, now_ns) for held in self._nodes.values())

    def _status(self, held: _Held, now_ns: int) -> NodeStatus:
        load = held.load_at(now_ns, self.rules.load_valid_ms)
        return NodeStatus(
            held.node.name,
            held.state,
            len(held.sessions),
            held.node.capacity,
            held.in_flight,
            None if load is None else load.waiting,
            None if load is None else load.kv_share,
            held.breaker.retry_in_ms(now_ns),
        )

    def __iter__(self) -> Iterator[str]:
        """The names of all nodes."""
        return iter(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    # --- choice ----------------------------------------------------------------------------------

    def _choose(self, session: str, now_ns: int, *, is_new: bool) -> _Held | None:
        """The first node of the session's order that has room and is not too busy; if all with room
        are too busy, the least busy of them; None if no node has room."""
        valid_ms = self.rules.load_valid_ms
        ready = [held for held in self._nodes.values() if held.state is NodeState.READY]
        loads = {held.node.name: held.load_at(now_ns, valid_ms) for held in ready}
        open_ = [held for held in ready if self._has_room(held, loads[held.node.name], is_new)]
        if not open_:
            return None
        busy = {held.node.name: held.busy(loads[held.node.name]) for held in ready}
        weight = sum(held.node.weight for held in ready)
        whole = sum(busy[held.node.name] * held.node.weight for held in ready) + 1
        by_name = {held.node.name: held for held in open_}
        ranked = list(self._ranking(session, [held.node for held in open_]))
        for node in ranked:
            most = self.rules.bound * whole * node.weight / weight
            if busy[node.name] * node.weight + 1 <= _whole_units(most):
                return by_name[node.name]
        return by_name[min(ranked, key=lambda node: busy[node.name]).name]

    def _has_room(self, held: _Held, load: Load | None, is_new: bool) -> bool:
        if load is not None and load.kv_share >= self.rules.kv_full_share:
            return False
        capacity = held.node.capacity
        if capacity is None:
            return True
        # One place is never kept back, or a node with one place would take nobody.
        kept = int(capacity * self.rules.reserve_share) if is_new else 0
        return len(held.sessions) < capacity - kept

    def _refusal(self, now_ns: int) -> Refusal:
        if not self._nodes:
            return Refusal(RefusalReason.NO_NODES, self.rules.longest_retry_ms)
        if any(held.state is NodeState.READY for held in self._nodes.values()):
            return Refusal(RefusalReason.FULL, self._bounded(self._release_interval_ms()))
        waits_ms = [h.breaker.retry_in_ms(now_ns) for h in self._nodes.values() if h.down]
        soonest_ms = min(waits_ms, default=self.rules.longest_retry_ms)
        return Refusal(RefusalReason.DOWN, self._bounded(soonest_ms))

    def _release_interval_ms(self) -> float:
        """Mean time between the newest releases: when the next one is due."""
        if len(self._released_ns) < 2:
            return self.rules.longest_retry_ms
        spread_ns = self._released_ns[-1] - self._released_ns[0]
        return spread_ns / (len(self._released_ns) - 1) / NS_PER_MS

    def _bounded(self, wait_ms: float) -> int:
        rules = self.rules
        return round(min(max(wait_ms, rules.shortest_retry_ms), rules.longest_retry_ms))

    # --- nodes lost ------------------------------------------------------------------------------

    def _down(self, held: _Held) -> tuple[str, ...]:
        held.down = True
        held.load_at_ns = None
        return self._evict(held)

    def _evict(self, held: _Held) -> tuple[str, ...]:
        gone = tuple(held.sessions)
        held.sessions.clear()
        for session in gone:
            del self._node_of[session]
            self._lost[session] = held.node.name
        return gone

    def _held(self, name: str) -> _Held:
        try:
            return self._nodes[name]
        except KeyError:
            raise UnknownNode(name, self._nodes) from None


def _whole_units(most: float) -> float:
    """Rounded up: a bound of 1.25 over 4 nodes with 5 sessions allows 2 on each."""
    return math.ceil(most) if math.isfinite(most) else most
