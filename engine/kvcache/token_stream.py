"""A session's tokens and how many of them have their K/V in the cache.

A caller does not append or roll back tokens. It states which tokens the stream shall have from some
index on (`reconcile`), and the stream keeps the longest common prefix. A revised transcript, a
discarded speculation and an edited conversation are thus one operation.

    tokens   [0, kv_len)             in the cache
             [kv_len, len(tokens))   pending
    offloaded  K/V of the former are in host memory instead, and no block is held
    always   0 <= kv_len <= len(tokens) <= limit

Token ids from `vocab_size` on are *soft tokens*: each identifies an embedding (of a visual token,
for example) in the stream's own table. Equal embeddings have equal ids, so soft tokens compare like
vocabulary tokens. A soft token's `MediaPosition`, if it has one, is part of its identity.

In a pool of two types (`mixed_pool`) a block is narrow if all of its tokens are pictures' when it
is taken. K/V of pictures are rounded to the narrow type in any block, so their bits, and those of
what attends to them, do not depend on it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.engine.errors import CacheFull, ContextFull, StreamClosed, UnknownSoftToken
from headstart.engine.kvcache.block_pool import BlockPool, BlockTable, Copy, IsNarrow
from headstart.engine.kvcache.eviction import EvictionState, KvMove
from headstart.engine.kvcache.offload import HostMemory, OffloadSlot
from headstart.engine.kvcache.positions import Counting, PositionRule, Positions
from headstart.engine.kvcache.prefix_hash import ContentKeys
from headstart.engine.kvcache.soft_tokens import SoftTokens


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What `Stream.reconcile` did, as token counts."""

    kept: int  # tokens of `wanted` that were already there
    rolled_back: int  # removed from the stream's end
    rolled_back_kv: int  # of those, tokens whose K/V had been computed
    appended: int  # new and pending


class Stream:
    """One session's tokens, block table and counters.

    `limit`: maximum length in tokens. `reach`: number of positions the model can attend back over.
    `rule`: position rule of a model with three-axis positions; None counts from zero. `ahead`: K/V
    are computed ahead of an answer in units of so many tokens. `movable`: whether K/V behind an
    evicted range can be kept; if not, they are computed again. `held`: tokens whose K/V
    memory holds, with the copy of the instructions' that an eviction keeps.
    """

    def __init__(
        self,
        name: str,
        pool: BlockPool,
        vocab_size: int,
        limit: int,
        rule: PositionRule | None = None,
        reach: int | None = None,
        *,
        ahead: int = 1,
        movable: bool = True,
        held: int = sys.maxsize,
    ) -> None:
        assert limit > 0
        assert ahead > 0
        self.name = name
        self.ahead = ahead
        self.movable = movable
        self.limit = limit
        self.held = held
        self.reach = limit if reach is None else reach
        self.vocab_size = vocab_size
        self.table = BlockTable(pool)
        self.soft = SoftTokens(vocab_size, limit)
        self.closed = False
        self.prefilled_tokens = 0  # K/V computed, ever
        self.rolled_back_kv_tokens = 0  # K/V computed and discarded
        self.adopted_tokens = 0  # K/V reused from other streams
        self.least_kv_len = 0
        """The least that `kv_len` was since somebody set this: from there on K/V may be new."""
        self._tokens: list[int] = []
        self._kinds = bytearray()
        self._keys = ContentKeys(pool.block_size, self.soft)
        self._share_domain = b""
        self._place = b""
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
        """All tokens, pending ones included. A view: do not hold it across changes."""
        return self._tokens

    @property
    def kv_len(self) -> int:
        """Length of the prefix whose K/V are in the cache."""
        return self._kv_len

    @property
    def pending(self) -> int:
        """Number of tokens at the end that have no K/V yet."""
        return len(self._tokens) - self._kv_len

    @property
    def pending_ahead(self) -> int:
        """Number of pending tokens that are computed ahead of an answer: whole units of `ahead`."""
        whole = len(self._tokens) - len(self._tokens) % self.ahead
        return max(whole - self._kv_len, 0)

    @property
    def share_domain(self) -> bytes:
        """K/V are shared with streams of the same domain only."""
        return self._share_domain

    @property
    def place(self) -> bytes:
        """Where the K/V are, if not in this process: they are shared within a place only."""
        return self._place

    def share_within(self, domain: bytes, place: bytes = b"") -> None:
        """Set the share domain, and the place. The stream must be empty."""
        assert not self._tokens, "content keys of the stream may be in use already"
        self._share_domain, self._place = domain, place
        self._renew_keys()

    def move_to(self, place: bytes, ahead: int) -> int:
        """Have the K/V computed at another place, in units of `ahead`. Returns the number of tokens
        whose K/V are lost by that."""
        self._require_open()
        lost = self._kv_len
        self.recompute(0)
        self._place, self.ahead = place, ahead
        self._renew_keys()
        return lost

    def _renew_keys(self) -> None:
        domain = self._share_domain + self._place
        self._keys = ContentKeys(self.table.pool.block_size, self.soft, domain)

    def axes(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Positions int64 [3, stop - start] of tokens [start, stop)."""
        return self._positions.between(start, stop)

    @property
    def kv_kinds(self) -> bytearray:
        """A `Modality` for each token whose K/V are in the cache."""
        return self._kinds[: self._kv_len]

    @property
    def kv_blocks(self) -> list[int]:
        """All blocks the stream holds, the sink copy included."""
        return self.table.blocks + self._eviction.sink.blocks

    @property
    def tables(self) -> tuple[BlockTable, ...]:
        """All block tables of the stream, for `BlockPool.check_accounting`."""
        return self.table, self._eviction.sink

    def reconcile(
        self, wanted: Sequence[int], start: int = 0, kinds: bytes | bytearray | None = None
    ) -> Reconciled:
        """Replace the tokens from `start` on by `wanted`, keeping the common prefix and its K/V.

        `kinds`: a `Modality` for each of `wanted`; None counts them as text.

        Raises `ContextFull`, `UnknownSoftToken` or `StreamClosed`; then nothing has changed.
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
        self._update_positions(start + kept)
        self._check()
        return Reconciled(
            kept=kept,
            rolled_back=length_before - start - kept,
            rolled_back_kv=self.rolled_back_kv_tokens - thrown_before,
            appended=len(new),
        )

    @property
    def room(self) -> int:
        """Maximum length in tokens for now: `limit`, or what memory holds beside the copy of the
        instructions' K/V that an eviction keeps."""
        copied = len(self._eviction.sink.blocks) * self.table.pool.block_size
        return min(self.limit, self.held - copied)

    def common_prefix_len(self, wanted: Sequence[int]) -> int:
        """Length of the common prefix of the stream's tokens and `wanted`."""
        return _common_prefix(self._tokens, 0, wanted)

    def append(self, tokens: Sequence[int], kinds: bytes | None = None) -> Reconciled:
        """`reconcile` at the stream's end."""
        return self.reconcile(tokens, start=len(self._tokens), kinds=kinds)

    def truncate(self, length: int) -> None:
        """Truncate the stream to `length` tokens and release the blocks behind them."""
        self._require_open()
        assert 0 <= length <= len(self._tokens), "truncate cannot lengthen a stream"
        if length == len(self._tokens):
            return
        del self._tokens[length:]
        del self._kinds[length:]
        self._keys.truncate(length)
        self._update_positions(length)
        if length < self._kv_len:
            self.rolled_back_kv_tokens += self._kv_len - length
            self._keep_kv(length)
        self._check()

    def recompute(self, length: int) -> None:
        """Drop the K/V from `length` on so that they are computed again. The tokens stay, and the
        K/V do not count as rolled back."""
        self._require_open()
        if length < self._kv_len:
            self._keep_kv(length)
            self._check()

    def _keep_kv(self, length: int) -> None:
        """Drop K/V from `length` on, or from an earlier index if evictions require it."""
        self._kv_len, nothing_evicted = self._eviction.truncate(length)
        self.least_kv_len = min(self.least_kv_len, self._kv_len)
        self.table.truncate(self._kv_len)
        if nothing_evicted:
            self._update_positions(self._kv_len)  # positions without the gaps

    def demand(self, num_tokens: int) -> tuple[int, int]:
        """Wide and narrow blocks that `reserve` would allocate."""
        return self.table.demand(self._kv_len, self._kv_len + num_tokens, self._narrow)

    def reserve(self, num_tokens: int) -> Copy | None:
        """Allocate writable blocks for K/V of the next `num_tokens` pending tokens.

        Returns the block copy that has to be made first, if any. Raises `CacheFull`; then nothing
        has changed.
        """
        assert 0 < num_tokens <= self.pending
        return self.table.reserve(self._kv_len, self._kv_len + num_tokens, self._narrow)

    @property
    def _narrow(self) -> IsNarrow | None:
        return self._is_of_pictures if self.table.pool.is_mixed else None

    def _is_of_pictures(self, index: int) -> bool:
        """Whether all tokens of the block at `index` are pictures', as far as they are known."""
        size = self.table.pool.block_size
        return all(map(self.soft.is_picture, self._tokens[index * size : (index + 1) * size]))

    @property
    def narrow_tokens(self) -> int:
        """The tokens whose K/V are in narrow blocks, in the pool or in host memory."""
        pool = self.table.pool
        if not pool.is_mixed:
            return 0
        if self._offload_slot.offloaded:
            narrow = [block.narrow for block in self._offload_slot.offloaded[0].blocks]
        else:
            narrow = list(map(pool.is_narrow, self.table.blocks))
        if not narrow:
            return 0
        beyond = len(narrow) * pool.block_size - self._kv_len if narrow[-1] else 0
        return sum(narrow) * pool.block_size - beyond

    def advance(self, num_tokens: int) -> None:
        """Record that K/V of the next `num_tokens` pending tokens were written."""
        assert 0 < num_tokens <= self.pending
        block_size = self.table.pool.block_size
        full_before = self._kv_len // block_size
        self._kv_len += num_tokens
        self.prefilled_tokens += num_tokens
        for index in range(full_before, self._kv_len // block_size):
            if self._eviction.is_shareable((index + 1) * block_size):
                key = self._keys.key(index, self._tokens)
                self.table.pool.register(self.table.blocks[index], key)
        self._check()

    def adopt(self, until: int | None = None) -> int:
        """Reuse cached K/V for pending tokens, computed by any stream of the share domain.

        Reuses whole blocks only, and stops before the last token and before index `until`, because
        their logits are wanted. Returns the number of tokens gained.
        """
        self._require_open()
        size, pool = self.table.pool.block_size, self.table.pool
        end = min(len(self._tokens) - 1, len(self._tokens) if until is None else until) // size
        first = self._kv_len // size
        found: list[int] = []
        for index in range(first, end if self._eviction.nothing_evicted else 0):
            block = pool.adopt(self._keys.key(index, self._tokens))
            if block is None:
                break
            found.append(block)
        if not found:
            return 0
        self.table.replace(first, found)  # full blocks replace the open last one
        gained = (first + len(found)) * size - self._kv_len
        self._kv_len += gained
        self.adopted_tokens += gained
        self._check()
        return gained

    def fork(self, name: str) -> Stream:
        """A copy of the stream that can diverge from it. Blocks are shared until one of the two
        writes to them (copy on write)."""
        self._require_open()
        other = Stream(
            name,
            self.table.pool,
            self.vocab_size,
            self.limit,
            None,
            self.reach,
            ahead=self.ahead,
            movable=self.movable,
            held=self.held,
        )
        other.soft = self.soft.copy()
        other.share_within(self._share_domain, self._place)
        other._tokens, other._kinds = list(self._tokens), bytearray(self._kinds)
        other._kv_len, other.adopted_tokens = self._kv_len, self._kv_len
        other._positions = deepcopy(self._positions)
        other.table = self.table.fork()
        other._eviction = self._eviction.fork(other._positions)
        return other

    def evict(self, cuts: Sequence[tuple[int, int]], sink: int) -> KvMove | None:
        """Remove tokens from the stream, keeping K/V and positions of all others.

        `cuts`: ascending half-open index ranges, none before `sink`.

        Returns the move to carry out in memory before any other access, or None. With too few free
        blocks for the move, K/V behind the first cut are recomputed instead.
        """
        self._require_open()
        if not cuts:
            return None
        first = cuts[0][0]
        assert sink <= first, "the sink stays"
        if not self.movable:
            self.recompute(first)  # before the tokens go, so that positions leave no gap
        kv_len = self._kv_len
        stays = np.ones(kv_len, dtype=np.bool_)
        media = [self.soft.media_position(token) for token in self._tokens]
        for start, end in reversed(cuts):
            stays[start:end] = False
            if start < kv_len:
                self._positions.delete(start, min(end, kv_len), self._tokens, media)
            del self._tokens[start:end]
            del media[start:end]
            del self._kinds[start:end]
            self._eviction.delete(start, end)
            self.evicted_tokens += end - start
        self._keys.truncate(first)
        kept = np.flatnonzero(stays)
        self._update_positions(len(kept))
        if len(kept) < kv_len or len(kept) <= self._eviction.rigid_tokens:
            return self._compact(kept, first, sink, close_gaps=False)
        return None

    def close_gaps(self, sink: int) -> KvMove | None:
        """Close the position gaps that evictions left, by rotating the keys before them. Each
        rotation rounds, so call it rarely. Returns a move, as `evict` does.
        """
        self._require_open()
        if not self._positions.gaps():
            return None
        return self._compact(np.arange(self._kv_len), 0, sink, close_gaps=True)

    def _compact(
        self, kept: npt.NDArray[np.int64], first: int, sink: int, *, close_gaps: bool
    ) -> KvMove | None:
        """Compact the K/V of the tokens that were at indices `kept`."""
        if not self._eviction.can_compact(sink, len(kept)):
            self._keep_kv(0)
            return None
        turns_sink = (first == sink or close_gaps) and 0 < sink < len(kept)
        try:
            move = self._eviction.compact(
                self.table,
                kept,
                first,
                sink if turns_sink else 0,
                self._narrow,
                close_gaps=close_gaps,
            )
        except CacheFull:
            self._keep_kv(first)
            self._update_positions(first)  # recomputed tokens get positions without the gaps
            return None
        self._kv_len = len(kept)
        self._check()
        return move

    # --- in host memory --------------------------------------------------------------------------

    @property
    def offload_slot(self) -> OffloadSlot:
        """The K/V in host memory, if the stream is offloaded. It then holds no blocks, and only
        `restore`, `drop_kv` and `close` may be called."""
        return self._offload_slot

    def offload(self, host: HostMemory) -> bool:
        """Move all K/V to host memory. False if they do not fit there."""
        self._require_open()
        sink = self._eviction.sink
        return self._offload_slot.offload(
            host, ((self.table, self._kv_len), (sink, sink.capacity_tokens))
        )

    def restore(self) -> None:
        """Copy the K/V back into the pool. Raises `CacheFull`; then they stay in host memory."""
        self._offload_slot.restore(self.tables)

    def drop_kv(self) -> None:
        """Drop all K/V, in the pool or in host memory; they are recomputed when needed."""
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

    def _update_positions(self, changed_from: int) -> None:
        """Recompute the positions of the tokens, which changed from `changed_from` on."""
        left = self._positions.cut(changed_from)
        new = self._tokens[left:]
        self._positions.extend(new, [self.soft.media_position(token) for token in new])

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
