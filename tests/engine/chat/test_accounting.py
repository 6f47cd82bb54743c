"""What the cache holds, by what it stands for."""

from __future__ import annotations

from headstart.engine.chat.accounting import KvAccounting, Modality, count_kinds
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from tests.engine.kvcache.test_token_stream import compute


def test_tokens_are_counted_by_their_notes() -> None:
    """Every modality has its number, zero included."""
    kinds = bytes((Modality.TEXT, Modality.IMAGE, Modality.IMAGE))
    assert count_kinds(kinds) == {
        Modality.TEXT: 1,
        Modality.AUDIO: 0,
        Modality.IMAGE: 2,
        Modality.GENERATED: 0,
    }


def test_shared_blocks_of_two_streams_are_counted() -> None:
    """A shared token counts for both, its block once; pending tokens do not count."""
    first = Stream("a", BlockPool(8, 4), 100, 64)
    first.append([1, 2, 3, 4, 5, 6], kinds=bytes([Modality.TEXT] * 4 + [Modality.IMAGE] * 2))
    compute(first)
    second = first.fork("b")
    second.append([7], kinds=bytes((Modality.GENERATED,)))
    accounting = KvAccounting.of([first, second])
    assert accounting.tokens == {
        Modality.TEXT: 8,
        Modality.AUDIO: 0,
        Modality.IMAGE: 4,
        Modality.GENERATED: 0,
    }
    assert (accounting.blocks, accounting.shared_blocks) == (2, 2)
    compute(second)
    assert KvAccounting.of([first, second]).tokens[Modality.GENERATED] == 1
    assert KvAccounting.of([first, second]).shared_blocks == 1
