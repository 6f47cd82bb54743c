"""Each session's own order of the nodes."""

from __future__ import annotations

from headstart.engine.placement import Node, rendezvous

NODES = [Node(f"node-{n}") for n in range(8)]
SESSIONS = [f"session-{n}" for n in range(4_000)]


def first(session: str, nodes: list[Node]) -> str:
    return rendezvous(session, nodes)[0].name


def test_the_order_of_the_nodes_given_does_not_matter() -> None:
    """Processes that know the nodes in another order agree."""
    for session in SESSIONS[:50]:
        assert rendezvous(session, NODES) == rendezvous(session, NODES[::-1])


def test_only_the_sessions_of_a_lost_node_change_theirs() -> None:
    """Without it, each of the others is where it was."""
    left = NODES[:3] + NODES[4:]
    for session in SESSIONS:
        before = first(session, NODES)
        assert before == "node-3" or first(session, left) == before


def test_a_new_node_takes_its_share_and_moves_nobody_else() -> None:
    """About a ninth of the sessions prefer the ninth node; the rest stay."""
    more = [*NODES, Node("new")]
    changed = [s for s in SESSIONS if first(s, more) != first(s, NODES)]
    assert {first(session, more) for session in changed} == {"new"}
    assert 0.08 < len(changed) / len(SESSIONS) < 0.14


def test_shares_follow_the_weights() -> None:
    """A node of weight 3 beside one of weight 1 is first for three quarters."""
    nodes = [Node("large", weight=3.0), Node("small", weight=1.0)]
    large = sum(first(session, nodes) == "large" for session in SESSIONS)
    assert 0.72 < large / len(SESSIONS) < 0.78


def test_names_are_kept_apart() -> None:
    """A session "ab" at a node "c" has another score than "a" at "bc"."""
    pairs = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", "")]
    nodes = {pair: Node(pair[1]) for pair in pairs}
    other = [Node(f"other-{n}") for n in range(30)]
    orders = {pair: [n.name for n in rendezvous(pair[0], [*other, nodes[pair]])] for pair in pairs}
    assert len({tuple(order) for order in orders.values()}) == len(pairs)
