"""Content keys of blocks."""

from __future__ import annotations

import numpy as np

from headstart.engine.kvcache.prefix_hash import ContentKeys
from headstart.engine.kvcache.soft_tokens import SoftTokens


def test_a_key_depends_on_all_tokens_up_to_its_blocks_end() -> None:
    """Equal beginnings have equal keys; a difference anywhere before changes every key behind."""
    soft = SoftTokens(100, 8)
    some, same, other = (ContentKeys(2, soft) for _ in range(3))
    assert some.key(1, [1, 2, 3, 4, 5]) == same.key(1, [1, 2, 3, 4, 9])
    assert some.key(1, [1, 2, 3, 4, 5]) != other.key(1, [1, 7, 3, 4])
    assert some.key(0, [1, 2, 3, 4]) != some.key(1, [1, 2, 3, 4])


def test_a_cut_stream_gets_new_keys() -> None:
    """Keys of blocks behind a cut are recomputed; those before it stay."""
    keys = ContentKeys(2, SoftTokens(100, 8))
    old = [keys.key(i, [1, 2, 3, 4]) for i in range(2)]
    keys.truncate(3)
    assert keys.key(0, [1, 2, 3, 9]) == old[0]
    assert keys.key(1, [1, 2, 3, 9]) != old[1]


def test_pictures_are_keyed_by_their_embeddings() -> None:
    """Soft tokens of two streams have the same key if their embeddings are equal, whatever their
    ids; soft and vocabulary tokens differ."""
    first, second = SoftTokens(100, 8), SoftTokens(100, 8)
    a, b = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)
    first.intern(a)
    (mine,), (theirs,) = first.intern(b), second.intern(b)
    (else_,) = second.intern(a)
    assert mine != theirs
    key = ContentKeys(1, first).key(0, [mine])
    assert key == ContentKeys(1, second).key(0, [theirs])
    assert key != ContentKeys(1, second).key(0, [else_])


def test_equal_content_has_another_key_in_another_domain() -> None:
    """In every block, including the first; without a domain the keys do not change."""
    soft, tokens = SoftTokens(100, 8), [1, 2, 3, 4]
    domains = (b"", b"one", b"two", b"one")
    keys = [[ContentKeys(2, soft, domain).key(i, tokens) for i in range(2)] for domain in domains]
    assert keys[1] == keys[3]
    assert len({key for pair in keys[:3] for key in pair}) == 6
    assert keys[0] == [ContentKeys(2, soft).key(i, tokens) for i in range(2)]
