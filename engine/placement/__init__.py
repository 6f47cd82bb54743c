"""Placement: which of several nodes holds a session. A node is an LLM server or an engine process.

    placer = Placer(nodes)                   rendezvous hashing with bounded load
    placer.place(session, now_ns)            a `Placement`, or a `Refusal` with a time to wait
    placer.begin(node), placer.finish(…)     work in flight, and how it ended
    placer.fail(node, now_ns)                the sessions that must move

`rendezvous` ranks the nodes for a session, `placer` keeps who is where, and `breaker` says when a
node that failed may be tried again. Everything is used from one thread, and time comes in as
`time.monotonic_ns()` of the caller.

May import: `errors`.
Never: reads a clock, waits, or talks to a node. It loads no torch: the gateway imports it.
"""

from __future__ import annotations

from headstart.engine.placement.breaker import BreakerRules, BreakerState, CircuitBreaker
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
from headstart.engine.placement.placer import PlacementRules, Placer
from headstart.engine.placement.rendezvous import Ranking, rendezvous

__all__ = [
    "BreakerRules",
    "BreakerState",
    "CircuitBreaker",
    "DuplicateNode",
    "Load",
    "Node",
    "NodeState",
    "NodeStatus",
    "Placement",
    "PlacementRules",
    "Placer",
    "Ranking",
    "Refusal",
    "RefusalReason",
    "UnknownNode",
    "rendezvous",
]
