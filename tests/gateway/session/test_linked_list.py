"""A chain against a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.session.linked_list import Chain, Link


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_a_chain_is_a_list(moves: list[tuple[bool, int]]) -> None:
    """Links put in behind one of them, or at the head, and taken out: the same order."""
    chain, wanted = Chain(), list[Link]()
    for put, number in moves:
        if put:
            at = number % (len(wanted) + 1)
            link = Link()
            chain.put(link, chain.head if at == 0 else wanted[at - 1])
            wanted.insert(at, link)
        elif wanted:
            chain.take(wanted.pop(number % len(wanted)))
        assert list(chain) == wanted
        assert list(chain.back_from(chain.head)) == wanted[::-1]
        assert chain.last is (wanted[-1] if wanted else chain.head)
    chain.clear()
    assert list(chain) == []
    assert all(link.before is link and link.after is link for link in wanted)
