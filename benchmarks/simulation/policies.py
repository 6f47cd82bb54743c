"""What is compared: where sessions go, when their words are sent, and whether any is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from headstart.engine.placement import Node, PlacementRules, Placer, Ranking, rendezvous

PLACEMENTS = ("rendezvous", "least_sessions", "round_robin")


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to run the nodes.

    Attributes:
        placement: "rendezvous" with bounded load, as `headstart.engine.placement` does it;
            "least_sessions": the node with the fewest, for as long as the session lasts;
            "round_robin": each turn to the next node, as a load balancer without memory.
        ahead: words are prefilled while they are spoken, and an answer is prepared in the
            silence. Otherwise everything happens at the endpoint.
        admission: nodes take as many sessions as `NodeKind.capacity` says, and refuse others.
    """

    placement: str = "rendezvous"
    ahead: bool = True
    admission: bool = True

    @property
    def pins(self) -> bool:
        """Whether a session stays where it is."""
        return self.placement != "round_robin"

    @property
    def name(self) -> str:
        when = "ahead" if self.ahead else "at the end"
        admits = "" if self.admission else ", no admission"
        return f"{self.placement}, {when}{admits}"


DEFAULT = Policy()


def placer_of(policy: Policy, nodes: Sequence[Node]) -> Placer:
    """The engine's placer with the policy's order of nodes."""
    bounded = PlacementRules()
    unbounded = PlacementRules(bound=math.inf)
    if policy.placement == "rendezvous":
        return Placer(nodes, bounded, rendezvous)
    if policy.placement == "round_robin":
        return Placer(nodes, unbounded, _round_robin())
    assert policy.placement == "least_sessions", f"no placement {policy.placement!r}"
    found: list[Placer] = []
    placer = Placer(nodes, unbounded, _least_sessions(found))
    found.append(placer)
    return placer


def _round_robin() -> Ranking:
    turns = count()

    def ranked(session: str, nodes: Sequence[Node]) -> list[Node]:
        at = next(turns) % len(nodes)
        return [*nodes[at:], *nodes[:at]]

    return ranked


def _least_sessions(found: Sequence[Placer]) -> Callable[[str, Sequence[Node]], list[Node]]:
    def ranked(session: str, nodes: Sequence[Node]) -> list[Node]:
        held = {status.name: status.sessions for status in found[0].status(0)}
        return sorted(nodes, key=lambda node: held[node.name])

    return ranked
