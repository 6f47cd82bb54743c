"""Blocks that streams share: whatever they do, nobody reads what was not computed for them.

A machine of streams on one pool that forks, appends, cuts, adopts and closes them. Instead of K and
V each slot holds the tokens it was computed from, as real K and V depend on them, so that a block
adopted, copied or written wrongly is seen at once. Streams also go to host memory, and come back
when somebody wants something of them. The books are checked after every step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headstart.engine.chat.accounting import KvAccounting, Modality
from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.block_pool import BlockPool, Copy
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.kvcache.token_stream import Stream
from tests.engine.harness import EITHER, alike, finish, load_tiny
from tests.engine.tiny_gguf import TinyConfig

SIZE = 4
BLOCKS = 20
STREAMS = 4
HOST_TOKENS = 40
which = st.integers(0, STREAMS - 1)
words = st.lists(st.integers(0, 1), min_size=1, max_size=11)


class Sharing(RuleBasedStateMachine):
    """Four streams with often equal tokens, on a pool that is too small for all."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, SIZE, max_cached=6)
        self.streams = [self.new() for _ in range(STREAMS)]
        self.slots: list[tuple[int, ...]] = [()] * (BLOCKS * SIZE)
        self.host = HostMemory(self, self.pool, HOST_TOKENS * self.bytes_per_token)

    # The pool's memory, as `headstart.engine.kvcache.offload` wants it.
    bytes_per_token = narrow_bytes_per_token = 7

    def save_block(self, block: int, num_tokens: int) -> Any:
        return self.slots[block * SIZE : block * SIZE + num_tokens]

    def load_block(self, block: int, saved: Any) -> None:
        self.slots[block * SIZE : block * SIZE + len(saved)] = saved

    def there(self, at: int) -> Stream:
        """A stream in the pool; its K/V are dropped if there is no room to restore them."""
        stream = self.streams[at]
        if stream.offload_slot.offloaded:
            try:
                stream.restore()
            except CacheFull:
                assert self.pool.free_blocks < stream.offload_slot.num_blocks
                stream.drop_kv()
        return stream

    @rule(at=which)
    def offload(self, at: int) -> None:
        stream, kv_len = self.there(at), self.streams[at].kv_len
        assert stream.offload(self.host) or kv_len * self.bytes_per_token > 0
        assert not (stream.offload_slot.offloaded and stream.table.blocks)

    def new(self) -> Stream:
        return Stream("s", self.pool, 100, 60)

    @rule(at=which, ids=words, start=st.integers(0, 20), kind=st.sampled_from(Modality))
    def read(self, at: int, ids: list[int], start: int, kind: Modality) -> None:
        stream = self.there(at)
        stream.reconcile(ids, min(start, len(stream)), bytes((kind,)) * len(ids))

    @rule(at=which, count=st.integers(1, 9))
    def compute(self, at: int, count: int) -> None:
        stream = self.there(at)
        count = min(count, stream.pending)
        if not count:
            return
        before = list(stream.table.blocks)
        try:
            copy = stream.reserve(count)
        except CacheFull:
            assert stream.table.blocks == before
            return
        self._copy(copy)
        for place in range(stream.kv_len, stream.kv_len + count):
            self.slots[self._slot(stream, place)] = tuple(stream.tokens[: place + 1])
        stream.advance(count)

    def _copy(self, copy: Copy | None) -> None:
        if copy is not None:
            held = self.slots[copy.source * SIZE : (copy.source + 1) * SIZE]
            self.slots[copy.target * SIZE : (copy.target + 1) * SIZE] = held

    @rule(at=which)
    def adopt(self, at: int) -> None:
        stream = self.there(at)
        before = stream.kv_len
        assert stream.adopt() == stream.kv_len - before
        assert stream.kv_len < max(len(stream), 1) or stream.kv_len == before

    @rule(at=which, length=st.integers(0, 20))
    def recompute(self, at: int, length: int) -> None:
        self.there(at).recompute(min(length, len(self.streams[at])))

    @rule(at=which, to=which)
    def fork(self, at: int, to: int) -> None:
        if at != to:
            self.streams[to].close()
            self.streams[to] = self.there(at).fork("f")

    @rule(at=which)
    def close(self, at: int) -> None:
        self.streams[at].close()
        self.streams[at] = self.new()

    def _slot(self, stream: Stream, place: int) -> int:
        return stream.table.blocks[place // SIZE] * SIZE + place % SIZE

    @invariant()
    def everybody_reads_their_own(self) -> None:
        for stream in self.streams:
            for place in range(0 if stream.offload_slot.offloaded else stream.kv_len):
                held = self.slots[self._slot(stream, place)]
                assert held == tuple(stream.tokens[: place + 1])

    @invariant()
    def the_books_are_exact(self) -> None:
        self.pool.check_accounting([stream.table for stream in self.streams])
        self.host.check_accounting(
            [part for stream in self.streams for part in stream.offload_slot.offloaded]
        )
        there = [stream for stream in self.streams if not stream.offload_slot.offloaded]
        books = KvAccounting.of(there)
        assert sum(books.tokens.values()) == sum(stream.kv_len for stream in there)
        assert books.blocks == self.pool.used_blocks
        for stream in self.streams:
            computed = stream.prefilled_tokens + stream.adopted_tokens
            assert computed >= stream.kv_len
            blocks = stream.offload_slot.num_blocks or len(stream.table.blocks)
            assert blocks == self.pool.blocks_for(stream.kv_len)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("backend", EITHER)
def test_shared_k_and_v_give_the_same_bits(tmp_path: Path, backend: str) -> None:
    """A second stream with the same system prompt and picture computes only its own words. Its
    logits equal those of a stream that computed everything, and so do a fork's, before and after
    either of the two continues."""
    model = load_tiny(tmp_path, TinyConfig(), backend, kv_pool_bytes=1 << 20)
    picture = np.random.default_rng(0).normal(size=(5, model.spec.hidden)).astype(np.float32)

    def reading(name: str, tail: list[int]) -> Stream:
        stream = model.new_stream(name)
        stream.append([*range(1, 12), *stream.soft.intern(picture), *tail])
        return stream

    alone, first = reading("alone", [40, 41]), reading("first", [50, 51, 52])
    wanted = finish(model, alone)
    alone.close()
    model.pool.release(model.pool.allocate(model.pool.free_blocks))  # forget what it left behind
    finish(model, first)
    second = reading("second", [40, 41])
    assert second.adopt() == 16
    assert alike(model, finish(model, second), wanted)
    assert second.prefilled_tokens == 2
    fork = second.fork("fork")
    for stream in (fork, second):
        stream.append([60, 61])
    after = finish(model, fork)
    assert alike(model, finish(model, second), after)
    fork.reconcile([70], start=17)
    second.append([62])
    finish(model, fork)
    whole = reading("whole", [40, 41, 60, 61, 62])
    assert alike(model, finish(model, second), finish(model, whole))
