"""Admission to the KV cache, and what happens when it is short. No clock, no torch.

    share of the pool in use     what happens                                      `Level`
    below `degrade_above`        nothing                                           calm
    from there on                the gateway sends fewer frames                    degraded
    `offload_above`              K/V of idle sessions go to host memory,           offloading
                                 the longest idle first
    no room for a newcomer       new sessions are refused, with a named error      refusing
                                 and a time after which to try again

When an offloaded session has work again, its K/V are copied back into the pool. If there is too
little room even after offloading all idle sessions, those at rest give up theirs, to host memory as
far as they fit there; if that is not enough, its own are dropped and recomputed. The minimum a new
session needs (its system prompt and one turn) is kept free for each session that is not idle,
unless another one's work would fail.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from headstart.engine.api import Level
from headstart.engine.config import EngineConfig
from headstart.engine.errors import CacheFull, NoRoom
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.offload import BlockMemory, HostMemory
from headstart.engine.kvcache.token_stream import Stream

NS_PER_S = 1_000_000_000
# A level is left only when the share has fallen this far below its mark (hysteresis).
SLACK_SHARE = 0.05
# Upper bound when no session is about to become idle: one may be closed.
RETRY_AFTER_MOST_S = 30.0
RETRY_AFTER_LEAST_S = 1.0
NONE_GRANTED: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """`idle_after_s`: K/V are not offloaded before; `turn_tokens`: tokens of one turn, for which a
    new session must have room behind its system prompt."""

    idle_after_s: float = 5.0
    turn_tokens: int = 256
    degrade_above: float = 0.8
    offload_above: float = 0.9


class CacheUser(Protocol):
    """A session with K/V (`headstart.engine.session.session.Session`)."""

    @property
    def name(self) -> str: ...

    @property
    def stream(self) -> Stream: ...

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be done for it now."""
        ...

    def give_up_kv(self) -> None:
        """Drop the K/V of a session at rest, until there is work for it again."""
        ...


class AdmissionController:
    """The policy over one pool. Users are passed with each call; kept are only the time since when
    each has had nothing to do, and the blocks promised to it."""

    def __init__(self, pool: BlockPool, host: HostMemory, rules: AdmissionRules) -> None:
        self.host = host
        self.level = Level.CALM
        self.refused_sessions = 0
        self.offloads = 0  # streams moved to host memory so far
        self.restores = 0  # streams restored so far
        self.dropped = 0  # streams whose K/V were dropped because they could not be restored
        self._pool = pool
        self._rules = rules
        self._since_ns: dict[str, int] = {}
        self._promised: dict[str, int] = {}  # blocks

    # --- admission -------------------------------------------------------------------------------

    def admit(self, newcomer: CacheUser, users: Sequence[CacheUser], now_ns: int) -> None:
        """Admit `newcomer`, whose stream holds its initial prompt. Raises `NoRoom`."""
        needed_tokens = len(newcomer.stream) + self._rules.turn_tokens
        # A session that would be alone is never refused.
        needed = min(self._pool.blocks_for(needed_tokens), self._pool.num_blocks)
        free = self._available(users, now_ns)
        if needed > free:
            self.refused_sessions += 1
            raise NoRoom(
                needed_tokens,
                max(free, 0) * self._pool.block_size,
                self.host.bytes_per_token,
                self._retry_after_s(users, now_ns),
            )
        self._promised[newcomer.name] = needed
        self.touch(newcomer.name, now_ns)

    def touch(self, name: str, now_ns: int) -> None:
        """Record that a command came for a session, or work was done for it."""
        self._since_ns[name] = now_ns

    def remove(self, name: str) -> None:
        self._since_ns.pop(name, None)
        self._promised.pop(name, None)

    # --- offloading ------------------------------------------------------------------------------

    def restore(self, user: CacheUser, users: Iterable[CacheUser], now_ns: int) -> None:
        """Restore an offloaded session's K/V into the pool before work for it, or drop them."""
        stream = user.stream
        if not stream.offload_slot.offloaded:
            return
        users, num_blocks = list(users), stream.offload_slot.num_blocks
        try:
            self.offload_until_free(num_blocks, users, now_ns)
            self._clear([t for t in users if t is not user], num_blocks)
            stream.restore()
            self.restores += 1
        except CacheFull:
            stream.drop_kv()
            self.dropped += 1

    def offload_until_free(self, num_blocks: int, users: Iterable[CacheUser], now_ns: int) -> None:
        """Offload idle sessions until `num_blocks` are free or no session is idle."""
        if self._pool.free_blocks < num_blocks:
            for user in self._idle(users, now_ns):
                if self._offload(user) and self._pool.free_blocks >= num_blocks:
                    return

    def _clear(self, users: Iterable[CacheUser], num_blocks: int) -> bool:
        """Have sessions at rest give up K/V until `num_blocks` are free, to host memory as far as
        there is room, those at rest for the longest time first. Whether so many are free; if not,
        nothing has changed."""
        here = (t for t in users if not t.stream.offload_slot.offloaded)
        resting = [t for t in here if t.at_rest and t.stream.kv_blocks]
        if self._pool.free_blocks + self._held_alone(resting) < num_blocks:
            return False
        for user in sorted(resting, key=lambda user: self._since_ns[user.name]):
            if self._pool.free_blocks >= num_blocks:
                break
            if not self._offload(user):
                user.give_up_kv()
                self.dropped += 1
        return self._pool.free_blocks >= num_blocks

    def refuse(
        self, wants: Sequence[tuple[CacheUser, Stream]], users: Sequence[CacheUser], now_ns: int
    ) -> dict[Stream, CacheFull]:
        """The streams in `wants` whose pending tokens do not all fit; there is room for the others.

        All are decided together, the smallest first: otherwise a prompt that does not fit would
        take the free blocks piece by piece, and with them the room of other sessions. Blocks
        promised to other users are not given away, except that an answer may continue as long as
        any block is free, and those promised to sessions at rest if there is no room otherwise.
        """
        pool, refused = self._pool, dict[Stream, CacheFull]()
        needs = [(stream.demand(stream.pending), t, stream) for t, stream in wants]
        # Blocks are added up by type before they are priced: what is free for pictures at no cost
        # is so once, and promised blocks, which are wide, may lie where no picture can.
        wide, narrow = (sum(need[0][of] for need in needs) for of in (0, 1))
        if pool.cost(wide + self._reserved(users, now_ns), narrow) <= pool.free_blocks:
            return refused
        wide = narrow = 0  # granted
        granted = Counter[str]()  # by user: of the blocks that were promised to it
        for demand, user, stream in sorted(needs, key=lambda need: pool.cost(*need[0])):
            others = [t for t in users if t is not user]
            keeps = stream.pending > 1
            reserved = self._reserved(others, now_ns, granted) if keeps else 0
            more = wide + demand[0] + reserved, narrow + demand[1]
            total = pool.cost(*more)
            if total > pool.cost(wide + reserved, narrow) and total > pool.free_blocks:
                if total <= pool.free_blocks + self._reclaimable(users, now_ns):
                    self.offload_until_free(total, users, now_ns)
                if pool.cost(*more) > pool.free_blocks:
                    busy = [t for t in others if not t.at_rest]
                    reserved = self._reserved(busy, now_ns, granted) if keeps else 0
                    more = wide + demand[0] + reserved, narrow + demand[1]
                    self._clear(others, pool.cost(*more))
                if pool.cost(*more) > pool.free_blocks:
                    left = max(pool.free_blocks - pool.cost(wide + reserved, narrow), 0)
                    refused[stream] = CacheFull(pool.cost(*demand), left)
                    continue
            wide, narrow = wide + demand[0], narrow + demand[1]
            granted[user.name] += pool.cost(*demand)
        return refused

    def offload_idle(self, users: Iterable[CacheUser], now_ns: int) -> bool:
        """Offload one idle session if the pool is nearly full; whether one was offloaded."""
        if self.share < self._rules.offload_above:
            return False
        return any(self._offload(user) for user in self._idle(users, now_ns))

    def _offload(self, user: CacheUser) -> bool:
        if not user.stream.kv_blocks or not user.stream.offload(self.host):
            return False
        self.offloads += 1
        return True

    def _idle(self, users: Iterable[CacheUser], now_ns: int) -> list[CacheUser]:
        """Sessions that may be offloaded, the longest idle first."""
        idle = [
            t for t in users if self._is_idle(t, now_ns) and not t.stream.offload_slot.offloaded
        ]
        return sorted(idle, key=lambda user: self._since_ns[user.name])

    def _is_idle(self, user: CacheUser, now_ns: int) -> bool:
        idle_ns = now_ns - self._since_ns[user.name]
        return user.at_rest and idle_ns >= self._rules.idle_after_s * NS_PER_S

    # --- state -----------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """Share of the pool's blocks in use; 0 of a pool that grows."""
        return 0.0 if self._pool.grows else self._pool.used_blocks / self._pool.num_blocks

    def update_level(self, users: Sequence[CacheUser], now_ns: int) -> Level:
        """Update and return the level, with hysteresis on the way down."""
        rules, before = self._rules, self.level
        marks = ((Level.DEGRADED, rules.degrade_above), (Level.OFFLOADING, rules.offload_above))
        level = Level.CALM
        for above, mark in marks:
            if self.share >= mark - (SLACK_SHARE if before >= above else 0.0):
                level = above
        if level is Level.OFFLOADING or before is Level.REFUSING:
            least = self._pool.blocks_for(rules.turn_tokens)
            if self._available(users, now_ns) < least:
                level = Level.REFUSING
        self.level = level
        return level

    def _available(self, users: Sequence[CacheUser], now_ns: int) -> int:
        """Blocks available to a new session."""
        if self._pool.grows:
            return sys.maxsize
        free = self._pool.free_blocks - self._reserved(users, now_ns)
        return free + self._reclaimable(users, now_ns)

    def _reserved(
        self, users: Iterable[CacheUser], now_ns: int, granted: Mapping[str, int] = NONE_GRANTED
    ) -> int:
        """Blocks promised to sessions that are not idle, neither held by them nor `granted` yet."""
        return sum(
            max(
                self._promised[t.name]
                - self._pool.size_of(t.stream.kv_blocks)
                - granted.get(t.name, 0),
                0,
            )
            for t in users
            if not self._is_idle(t, now_ns)
        )

    def _reclaimable(self, users: Iterable[CacheUser], now_ns: int) -> int:
        """Blocks that only idle sessions hold, as far as host memory has room for them."""
        return min(self._held_alone(self._idle(users, now_ns)), self.host.free_blocks)

    def _held_alone(self, users: Iterable[CacheUser]) -> int:
        """Blocks that only these sessions hold."""
        held = Counter(block for user in users for block in user.stream.kv_blocks)
        alone = [block for block, count in held.items() if self._pool.references(block) == count]
        return self._pool.size_of(alone)

    def _retry_after_s(self, users: Iterable[CacheUser], now_ns: int) -> float:
        """Seconds until the next session can be offloaded, within bounds."""
        after_ns = int(self._rules.idle_after_s * NS_PER_S)
        waits = [
            (self._since_ns[t.name] + after_ns - now_ns) / NS_PER_S
            for t in users
            if t.at_rest and t.stream.kv_blocks
        ]
        soonest = min((wait for wait in waits if wait > 0), default=RETRY_AFTER_MOST_S)
        return min(max(soonest, RETRY_AFTER_LEAST_S), RETRY_AFTER_MOST_S)


def admission_over(
    memory: BlockMemory, pool: BlockPool, config: EngineConfig
) -> AdmissionController:
    """The admission policy with the settings of `config`."""
    host = HostMemory(memory, pool, config.offload_bytes)
    return AdmissionController(pool, host, AdmissionRules(config.idle_after_s, config.turn_tokens))
