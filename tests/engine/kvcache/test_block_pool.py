"""Block ownership in the paged KV cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.block_pool import BlockPool, BlockTable


def grow(table: BlockTable, tokens: int) -> None:
    """Reserve blocks for `tokens` tokens in all, as a writer does."""
    table.reserve(table.capacity_tokens, tokens)


def test_a_table_holds_the_blocks_its_tokens_need() -> None:
    """Growing to n tokens holds ceil(n / block size) blocks; growing to less changes nothing."""
    table = BlockTable(BlockPool(num_blocks=10, block_size=16))
    for tokens, blocks in ((0, 0), (1, 1), (16, 1), (17, 2), (5, 2), (33, 3)):
        grow(table, tokens)
        assert len(table.blocks) == blocks
    assert table.capacity_tokens == 48


def test_truncating_frees_whole_blocks_only() -> None:
    """A block stays while one of its tokens does, and the blocks kept are the first ones."""
    pool = BlockPool(num_blocks=4, block_size=4)
    table = BlockTable(pool)
    grow(table, 16)
    before = list(table.blocks)
    table.truncate(5)
    assert table.blocks == before[:2]
    assert pool.free_blocks == 2
    table.free()
    assert pool.free_blocks == 4


def test_a_full_pool_refuses_and_takes_nothing() -> None:
    """`CacheFull` says how many blocks were needed and free, and no block was taken."""
    pool = BlockPool(num_blocks=3, block_size=4)
    first, second = BlockTable(pool), BlockTable(pool)
    grow(first, 8)
    with pytest.raises(CacheFull) as caught:
        grow(second, 8)
    assert (caught.value.needed, caught.value.free) == (2, 1)
    assert second.blocks == []
    pool.check_accounting([first, second])


def test_blocks_are_used_again_before_fresh_ones() -> None:
    """The blocks freed last are allocated first, in the same order, so touched memory is reused."""
    pool = BlockPool(num_blocks=100, block_size=4)
    table = BlockTable(pool)
    grow(table, 12)
    blocks = list(table.blocks)
    assert blocks == [0, 1, 2]
    table.free()
    grow(table, 12)
    assert table.blocks == blocks


def test_a_shared_block_is_free_when_its_last_holder_gives_it_back() -> None:
    """A shared block survives the first release and is freed by the last."""
    pool = BlockPool(num_blocks=2, block_size=4)
    first, second = BlockTable(pool), BlockTable(pool)
    grow(first, 4)
    pool.share(first.blocks)
    second.blocks = list(first.blocks)
    pool.check_accounting([first, second])
    first.free()
    assert pool.used_blocks == 1
    pool.check_accounting([first, second])
    second.free()
    assert pool.used_blocks == 0


def test_a_block_given_back_twice_is_our_own_mistake() -> None:
    """The second release fails an assertion."""
    pool = BlockPool(num_blocks=2, block_size=4)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="twice"):
        pool.release(blocks)
    with pytest.raises(AssertionError, match="free"):
        pool.share(blocks)


def test_check_accounting_finds_a_lost_and_a_doubly_listed_block() -> None:
    """Inconsistent accounting is detected."""
    pool = BlockPool(num_blocks=3, block_size=4)
    table, other = BlockTable(pool), BlockTable(pool)
    grow(table, 8)
    with pytest.raises(AssertionError, match="references"):
        pool.check_accounting([])
    other.blocks = table.blocks[:1]
    with pytest.raises(AssertionError, match="references"):
        pool.check_accounting([table, other])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=40))
def test_accounting_holds_after_any_growth_and_truncation(moves: list[tuple[int, int]]) -> None:
    """Three tables on a small pool, grown and cut at random: no block is lost or held twice."""
    pool = BlockPool(num_blocks=12, block_size=4)
    tables = [BlockTable(pool) for _ in range(3)]
    for which, tokens in moves:
        table = tables[which]
        held = len(table.blocks)
        if tokens % 3:
            table.truncate(min(tokens, table.capacity_tokens))
        elif pool.blocks_for(tokens) - held > pool.free_blocks:
            with pytest.raises(CacheFull):
                grow(table, tokens)
            assert len(table.blocks) == held
        else:
            grow(table, tokens)
            assert table.capacity_tokens >= tokens
        pool.check_accounting(tables)


def test_a_shared_block_is_written_to_as_a_copy() -> None:
    """The writer gets a copy in place of the open block and releases the original; the other table
    does not change."""
    pool = BlockPool(num_blocks=4, block_size=4)
    table = BlockTable(pool)
    grow(table, 6)
    other = table.fork()
    assert table.demand(6, 7) == (1, 0)
    copy = table.reserve(6, 7)
    assert copy is not None
    assert (copy.source, copy.target) == (other.blocks[1], table.blocks[1])
    assert table.blocks[0] == other.blocks[0]
    assert pool.used_blocks == 3
    pool.check_accounting([table, other])
    assert other.reserve(6, 7) is None  # it is nobody else's by now
    pool.check_accounting([table, other])


def test_a_block_that_is_written_to_is_not_known_any_more() -> None:
    """A block about to be overwritten cannot be adopted by its old content."""
    pool = BlockPool(num_blocks=2, block_size=4, max_cached=2)
    table = BlockTable(pool)
    grow(table, 4)
    pool.register(table.blocks[0], b"key")
    assert table.reserve(2, 3) is None
    assert pool.adopt(b"key") is None


def test_cached_blocks_are_found_by_content_and_go_oldest_first() -> None:
    """An unreferenced block is kept for its content until it is adopted, evicted by newer ones, or
    needed otherwise; the accounting holds in each case."""
    pool = BlockPool(num_blocks=4, block_size=4, max_cached=2)
    blocks = pool.allocate(3)
    for block, key in zip(blocks, (b"a", b"b", b"c"), strict=True):
        pool.register(block, key)
        pool.release([block])
    pool.check_accounting([])
    assert pool.cached_blocks == 2
    assert pool.adopt(b"a") is None  # the oldest made room
    table = BlockTable(pool)
    found = pool.adopt(b"b")
    assert found == blocks[1]
    table.blocks = [found]
    pool.check_accounting([table])
    assert pool.cached_blocks == 1
    table.blocks += pool.allocate(3)
    pool.check_accounting([table])
    assert pool.adopt(b"c") is None


def test_a_second_block_of_one_content_stays_unknown() -> None:
    """Only the first block of one content is registered; both can be released."""
    pool = BlockPool(num_blocks=2, block_size=4, max_cached=2)
    table = BlockTable(pool)
    grow(table, 8)
    for block in table.blocks:
        pool.register(block, b"key")
    assert [pool.key_of(block) for block in table.blocks] == [b"key", None]
    pool.check_accounting([table])
    table.free()
    pool.check_accounting([])
    assert pool.cached_blocks == 1


def test_a_pool_that_does_not_share_knows_no_contents() -> None:
    """Without sharing, equal prefixes get separate blocks, and none is cached."""
    pool = BlockPool(4, 4, max_cached=2, shares=False)
    (block,) = pool.allocate(1)
    pool.register(block, b"key")
    assert pool.adopt(b"key") is None
    pool.release([block])
    assert pool.cached_blocks == 0
    pool.check_accounting([])
