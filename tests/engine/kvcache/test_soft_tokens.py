"""Embeddings by token id."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engine.errors import SoftTableFull
from headstart.engine.kvcache.soft_tokens import SoftTokens

VOCAB = 100


def test_the_soft_table_is_bounded_and_forgets_on_demand() -> None:
    """Beyond its limit it refuses; `keep_only` makes room; a forgotten id is not used again."""
    soft = SoftTokens(VOCAB, limit=2)
    old = soft.intern(np.eye(2, dtype=np.float32))
    with pytest.raises(SoftTableFull):
        soft.intern(np.full((1, 2), 7, dtype=np.float32))
    soft.keep_only(old[1:])
    new = soft.intern(np.eye(2, dtype=np.float32))
    assert new[1] == old[1]
    assert new[0] not in old


def test_an_embedding_has_one_name_in_every_table() -> None:
    """Ids depend on the order of arrival, digests on the content alone."""
    first, second = SoftTokens(VOCAB, 8), SoftTokens(VOCAB, 8)
    a, b = np.eye(2, dtype=np.float32)[:1], np.eye(2, dtype=np.float32)[1:]
    ids = first.intern(a) + first.intern(b)
    others = second.intern(b) + second.intern(a)
    assert ids == others
    assert [first.digest(i) for i in ids] == [second.digest(i) for i in reversed(others)]


def test_a_copy_goes_its_own_way() -> None:
    """It holds the same under the same ids; what one learns or forgets the other does not."""
    soft = SoftTokens(VOCAB, 8)
    (old,) = soft.intern(np.ones((1, 2), np.float32))
    other = soft.copy()
    assert other.vector(old).tolist() == [1, 1]
    (new,) = other.intern(np.zeros((1, 2), np.float32))
    soft.keep_only(())
    assert old in other
    assert new not in soft
