"""A session's tokens and how many of them have their K/V in the cache.

A caller never says "append these" or "roll back those"; it says what the stream should read from
some place on (`reconcile`), and the stream keeps the longest common prefix. So a hypothesis that
changes, a speculated answer that is thrown away and an edited conversation are all one operation.

    tokens   [0, kv_len)             in the cache
             [kv_len, len(tokens))   pending
    offloaded  all of the former are in host memory instead, and no block is held
    always   0 <= kv_len <= len(tokens) <= limit

Token ids from `vocab_size` on are *soft tokens*: they stand for an embedding (a visual token, say)
in the stream's own table, and equal embeddings have equal ids, so they compare like words. Where a
model's positions depend on what a token was made from, that `Place` is part of its identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.engine.errors import CacheFull, ContextFull, StreamClosed, UnknownSoftToken
from headstart.engine.kvcache.block_pool import BlockPool, BlockTable, Copy
from headstart.engine.kvcache.eviction import EvictionState, KvMove
from headstart.engine.kvcache.offload import HostMemory, OffloadSlot
from headstart.engine.kvcache.positions import Counting, PositionRule, Positions
from headstart.engine.kvcache.prefix_hash import ContentKeys
from headstart.engine.kvcache.soft_tokens import SoftTokens


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What `Stream.reconcile` did, in tokens."""

    kept: int  # of `wanted`, already there
    rolled_back: int  # removed from the stream's end
    rolled_back_kv: int  # those among them whose K/V had been computed
    appended: int  # new and pending


class Stream:
    """One session's tokens, block table and counters. `limit` is its greatest length, `reach` how
    many positions its model can look back over; `rule` gives the positions of a model that counts
    them on three axes."""

    def __init__(
        self,
        name: str,
        pool: BlockPool,
        vocab_size: int,
        limit: int,
        rule: PositionRule | None = None,
        reach: int | None = None,
    ) -> None:
        assert limit > 0
        self.name = name
        self.limit = limit
        self.reach = limit if reach is None else reach
        self.vocab_size = vocab_size
        self.table = BlockTable(pool)
        self.soft = SoftTokens(vocab_size, limit)
        self.closed = False
        self.prefilled_tokens = 0  # K/V computed, ever
        self.rolled_back_kv_tokens = 0  # K/V computed and thrown away
        self.adopted_tokens = 0  # K/V taken over from who had computed the same
        self._tokens: list[int] = []
        self._kinds = bytearray()
        self._keys = ContentKeys(pool.block_size, self.soft)
        self._share_domain = b""
        self._kv_len = 0
        self._positions = Positions(Counting() if rule is None else rule)
        self.evicted_tokens = 0
        self._eviction = EvictionState(pool, self._positions)
        self._offload_slot = OffloadSlot()

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, tokens={len(self._tokens)}, kv_len={self._kv_len})"

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        """All tokens, pending ones too. A view: do not hold it across changes."""
        return self._tokens

    @property
    def kv_len(self) -> int:
        """Length of the prefix whose K/V are in the cache."""
        return self._kv_len

    @property
    def pending(self) -> int:
        """Tokens at the end that have no K/V yet."""
        return len(self._tokens) - self._kv_len

    @property
    def share_domain(self) -> bytes:
        """With whom it shares what is computed: other streams of the same domain."""
        return self._share_domain

    def share_within(self, domain: bytes) -> None:
        """Share from now on within `domain` only. Before there is anything to share."""
        assert not self._tokens, "the stream is known by its content already"
        self._share_domain = domain
        self._keys = ContentKeys(self.table.pool.block_size, self.soft, domain)

    def axes(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Positions int64 [3, stop - start] of the tokens from `start` on."""
        return self._positions.between(start, stop)

    @property
    def kv_kinds(self) -> bytearray:
        """A `Modality` for each token whose K/V are in the cache."""
        return self._kinds[: self._kv_len]

    @property
    def kv_blocks(self) -> list[int]:
        """All blocks that are held for them."""
        return self.table.blocks + self._eviction.sink.blocks

    @property
    def tables(self) -> tuple[BlockTable, ...]:
        """All tables that hold blocks, for the books."""
        return self.table, self._eviction.sink

    def reconcile(
        self, wanted: Sequence[int], start: int = 0, kinds: bytes | bytearray | None = None
    ) -> Reconciled:
        """Make the stream read `wanted` from `start` on, keeping what is already so.

        `kinds`: a `Modality` for each of them; without, they count as text.

        Raises `ContextFull`, `UnknownSoftToken` or `StreamClosed`, and then nothing has changed.
        """
        self._require_open()
        assert 0 <= start <= len(self._tokens), "start lies beyond the stream's end"
        if start + len(wanted) > self.limit:
            raise ContextFull(self.limit, start + len(wanted))
        kept = _common_prefix(self._tokens, start, wanted)
        new = wanted[kept:]
        for token in new:
            assert token >= 0
            if token >= self.vocab_size and token not in self.soft:
                raise UnknownSoftToken(token)
        length_before, thrown_before = len(self._tokens), self.rolled_back_kv_tokens
        self.truncate(start + kept)
        self._tokens.extend(new)
        self._kinds[start:] = bytes(len(wanted)) if kinds is None else kinds
        self._follow(start + kept)
        self._check()
        return Reconciled(
            kept=kept,
            rolled_back=length_before - start - kept,
            rolled_back_kv=self.rolled_back_kv_tokens - thrown_before,
            appended=len(new),
        )

    def common_prefix_len(self, wanted: Sequence[int]) -> int:
        """How many tokens from its beginning the stream already reads as `wanted`."""
        return _common_prefix(self._tokens, 0, wanted)

    def append(self, tokens: Sequence[int], kinds: bytes | None = None) -> Reconciled:
        """`reconcile` at the stream's end."""
        return self.reconcile(tokens, start=len(self._tokens), kinds=kinds)

    def truncate(self, length: int) -> None:
        """Cut the stream to `length` tokens; blocks behind it are free at once."""
        self._require_open()
        assert 0 <= length <= len(self._tokens), "a stream is cut, never stretched"
        if length == len(self._tokens):
            return
        del self._tokens[length:]
        del self._kinds[length:]
        self._keys.truncate(length)
        self._follow(length)
        if length < self._kv_len:
            self.rolled_back_kv_tokens += self._kv_len - length
            self._keep_kv(length)
        self._check()

    def recompute(self, length: int) -> None:
        """Have the K/V from `length` on computed again; the tokens stay, and it is no waste."""
        self._require_open()
        if length < self._kv_len:
            self._keep_kv(length)
            self._check()

    def _keep_kv(self, length: int) -> None:
        """Give back K/V from `length` on, or from where they have to be given back."""
        self._kv_len, is_whole = self._eviction.keep(length)
        self.table.truncate(self._kv_len)
        if is_whole:
            self._follow(self._kv_len)  # without the gaps

    def missing_blocks(self, num_tokens: int) -> int:
        """Free blocks that `make_room` takes."""
        return self.table.missing(self._kv_len, self._kv_len + num_tokens)

    def make_room(self, num_tokens: int) -> Copy | None:
        """Hold blocks for K/V of the next `num_tokens` pending tokens, to be written into them;
        the copy of a block that has to be made first, if any. Raises `CacheFull`, and then nothing
        has changed."""
        assert 0 < num_tokens <= self.pending
        return self.table.write(self._kv_len, self._kv_len + num_tokens)

    def advance(self, num_tokens: int) -> None:
        """The runner wrote K/V of the next `num_tokens` pending tokens."""
        assert 0 < num_tokens <= self.pending
        block_size = self.table.pool.block_size
        full_before = self._kv_len // block_size
        self._kv_len += num_tokens
        self.prefilled_tokens += num_tokens
        for index in range(full_before, self._kv_len // block_size):
            if self._eviction.is_pure((index + 1) * block_size):
                key = self._keys.key(index, self._tokens)
                self.table.pool.register(self.table.blocks[index], key)
        self._check()

    def adopt(self, until: int | None = None) -> int:
        """Take over K/V of pending tokens that are in the cache already, whoever computed them:
        whole blocks, and always short of the last token and of place `until`, whose logits are
        wanted. Tokens that need not be computed any more."""
        self._require_open()
        size, pool = self.table.pool.block_size, self.table.pool
        end = min(len(self._tokens) - 1, len(self._tokens) if until is None else until) // size
        first = self._kv_len // size
        found: list[int] = []
        for index in range(first, end if self._eviction.is_whole else 0):
            block = pool.adopt(self._keys.key(index, self._tokens))
            if block is None:
                break
            found.append(block)
        if not found:
            return 0
        self.table.replace(first, found)  # a block that is full for one that is not yet
        gained = (first + len(found)) * size - self._kv_len
        self._kv_len += gained
        self.adopted_tokens += gained
        self._check()
        return gained

    def fork(self, name: str) -> Stream:
        """A stream that reads the same and goes its own way from here on. Nothing is copied until
        one of the two writes into a block that both hold."""
        self._require_open()
        other = Stream(name, self.table.pool, self.vocab_size, self.limit, None, self.reach)
        other.soft = self.soft.copy()
        other.share_within(self._share_domain)
        other._tokens, other._kinds = list(self._tokens), bytearray(self._kinds)
        other._kv_len, other.adopted_tokens = self._kv_len, self._kv_len
        other._positions = deepcopy(self._positions)
        other.table = self.table.fork()
        other._eviction = self._eviction.fork(other._positions)
        return other

    def evict(self, cuts: Sequence[tuple[int, int]], sink: int) -> KvMove | None:
        """Take tokens out of the stream and keep the K/V of the others as they are, with what they
        once saw in them, at the positions they had. `cuts`: ascending ranges, none before `sink`.

        Returns what has to be moved in memory before anything else is; None: nothing. Where there
        are too few free blocks for that, K/V behind the first cut are computed anew instead.
        """
        self._require_open()
        if not cuts:
            return None
        first, kv_len = cuts[0][0], self._kv_len
        assert sink <= first, "the sink stays"
        stays = np.ones(kv_len, dtype=np.bool_)
        places = [self.soft.place(token) for token in self._tokens]
        for start, end in reversed(cuts):
            stays[start:end] = False
            if start < kv_len:
                self._positions.delete(start, min(end, kv_len), self._tokens, places)
            del self._tokens[start:end]
            del places[start:end]
            del self._kinds[start:end]
            self._eviction.delete(start, end)
            self.evicted_tokens += end - start
        self._keys.truncate(first)
        kept = np.flatnonzero(stays)
        self._follow(len(kept))
        if len(kept) < kv_len or len(kept) <= self._eviction.rigid_tokens:
            return self._arrange(kept, first, sink, rejoins=False)
        return None

    def rejoin(self, sink: int) -> KvMove | None:
        """Close the gaps that evictions left between positions, by turning the keys before them:
        once in a while, for every turn rounds. Returns what has to be done in memory, as `evict`.
        """
        self._require_open()
        if not self._positions.gaps():
            return None
        return self._arrange(np.arange(self._kv_len), 0, sink, rejoins=True)

    def _arrange(
        self, kept: npt.NDArray[np.int64], first: int, sink: int, *, rejoins: bool
    ) -> KvMove | None:
        """Have the tokens that were at indices `kept` lie behind one another."""
        if not self._eviction.can_stand_on(sink, len(kept)):
            self._keep_kv(0)
            return None
        turns_sink = (first == sink or rejoins) and 0 < sink < len(kept)
        try:
            move = self._eviction.arrange(
                self.table, kept, first, sink if turns_sink else 0, rejoins=rejoins
            )
        except CacheFull:
            self._keep_kv(first)
            self._follow(first)  # without the gaps, as what is computed anew stands
            return None
        self._kv_len = len(kept)
        self._check()
        return move

    # --- in host memory --------------------------------------------------------------------------

    @property
    def offload_slot(self) -> OffloadSlot:
        """Where its K/V are while they are not in the pool. As long as that is so it holds no
        blocks, and nothing but `restore`, `drop_kv` and `close` may be done with it."""
        return self._offload_slot

    def offload(self, host: HostMemory) -> bool:
        """Move all K/V to host memory, if there is room."""
        self._require_open()
        sink = self._eviction.sink
        return self._offload_slot.offload(
            host, ((self.table, self._kv_len), (sink, sink.capacity_tokens))
        )

    def restore(self) -> None:
        """Have the K/V back in the pool as they were. Raises `CacheFull`, and then they are where
        they were."""
        self._offload_slot.restore(self.tables)

    def drop_kv(self) -> None:
        """Give up all K/V, wherever they are: they are computed anew when they are wanted."""
        self._offload_slot.discard()
        self.recompute(0)

    def close(self) -> None:
        """Free everything. A second call does nothing."""
        if self.closed:
            return
        self._offload_slot.discard()
        self.truncate(0)
        self.soft.keep_only(())
        self.closed = True

    def _follow(self, changed_from: int) -> None:
        """Have the positions follow the tokens, which are new from `changed_from` on."""
        left = self._positions.cut(changed_from)
        new = self._tokens[left:]
        self._positions.extend(new, [self.soft.place(token) for token in new])

    def _require_open(self) -> None:
        if self.closed:
            raise StreamClosed(self.name)
        assert not self._offload_slot.offloaded, f"{self!r} is in host memory"

    def _check(self) -> None:
        assert 0 <= self._kv_len <= len(self._tokens) <= self.limit
        assert len(self._kinds) == len(self._tokens)


def _common_prefix(tokens: list[int], start: int, wanted: Sequence[int]) -> int:
    longest = min(len(tokens) - start, len(wanted))
    if tokens[start : start + longest] == list(wanted[:longest]):  # at C speed, the usual case
        return longest
    for i in range(longest):
        if tokens[start + i] != wanted[i]:
            return i
    return longest
