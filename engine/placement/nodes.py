"""Nodes as placement sees them: their size, state and load; and the two answers to a session."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headstart.engine.errors import BadSettings


class NodeState(StrEnum):
    """Whether a node takes sessions."""

    READY = "ready"
    DRAINING = "draining"  # keeps its sessions until they are placed again; takes no others
    DOWN = "down"  # holds no session


@dataclass(frozen=True, slots=True)
class Node:
    """A node's name and size. Raises `BadSettings` for a value out of range.

    Attributes:
        capacity: the most sessions it holds; None: no limit.
        weight: its share of the sessions, relative to the other nodes' weights.
    """

    name: str
    capacity: int | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.capacity is not None and self.capacity < 1:
            raise BadSettings(f"capacity of {self.name}", "at least 1, or None", self.capacity)
        if not 0 < self.weight < float("inf"):
            raise BadSettings(f"weight of {self.name}", "more than 0, and finite", self.weight)


@dataclass(frozen=True, slots=True)
class Load:
    """What a node reports of itself, such as an LLM server's `/metrics`.

    Attributes:
        waiting: requests in its queue that do not run yet.
        kv_share: share of its K/V memory that running requests hold, 0 to 1.
        age_ms: how old the report was when it came.
    """

    waiting: int = 0
    kv_share: float = 0.0
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node for `/status` and metrics. `waiting` and `kv_share` are None without a report that
    is recent enough; `retry_in_ms` is the rest of the cool-down of a node that is down."""

    name: str
    state: NodeState
    sessions: int
    capacity: int | None
    in_flight: int
    waiting: int | None
    kv_share: float | None
    retry_in_ms: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A session's node. `moved_from` is the node that held it before, if this call moved it: its
    K/V are there, and the new node computes them again."""

    session: str
    node: str
    moved_from: str | None = None


class RefusalReason(StrEnum):
    """Why no node takes a session."""

    FULL = "full"  # every node that is ready is at its capacity, or reports full K/V memory
    DOWN = "down"  # no node is ready: they are down or draining
    NO_NODES = "no_nodes"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A session has no node. Another attempt may succeed after `retry_after_ms`, an estimate."""

    reason: RefusalReason
    retry_after_ms: int
