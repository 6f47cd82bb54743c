"""Weighted rendezvous hashing: each session has its own order of the nodes.

Every pair of session and node has a score that depends on nothing else. So a session's order of
the others stays when a node comes or goes, and processes that share no state agree on it. Source:
Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998. The score is
-weight / ln(u), with u uniform in (0, 1) by hash: -ln(u) / weight is exponentially distributed with
the rate `weight`, and of several such numbers the one of rate w is the smallest with probability
w / sum of the rates. So a node is first for its share of the sessions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from headstart.engine.placement.nodes import Node

Ranking = Callable[[str, Sequence[Node]], Iterable[Node]]
"""The nodes in the order in which a session prefers them; all of them, each once."""

_STEPS = 1 << 53  # fp64 holds every integer below exactly


def score(session: str, node: Node) -> float:
    """Positive; the larger, the earlier in the session's order."""
    # The length keeps ("ab", "c") apart from ("a", "bc").
    key = f"{len(session)}:{session}{node.name}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 11
    return -node.weight / math.log((number + 0.5) / _STEPS)


def rendezvous(session: str, nodes: Sequence[Node]) -> list[Node]:
    """`nodes` by falling score. Their order in the argument does not matter."""
    return sorted(nodes, key=lambda node: (-score(session, node), node.name))
