"""Who gets room in the KV cache, and who gives way when it is short. No clock, no torch.

    share of the pool in use     what happens                                      `Level`
    below `degrade_above`        nothing                                           calm
    from there on                the gateway sends fewer frames                    degraded
    `offload_above`              K/V of idle sessions go to host memory,           offloading
                                 the longest idle first
    no room for a newcomer       new sessions are refused, by name and with a      refusing
                                 time after which to try again

A session that comes back has its K/V copied into the pool again; if even the idle ones' room is
not enough for that they are given up and computed anew, so that nobody waits for anybody. What a
newcomer needs at least, its system prompt and one turn, is kept free for all that are not idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headstart.engine.api import Level
from headstart.engine.config import EngineConfig
from headstart.engine.errors import CacheFull, NoRoom
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.offload import BlockMemory, HostMemory
from headstart.engine.kvcache.token_stream import Stream

NS_PER_S = 1_000_000_000
# A level is left only when the share has fallen this far below its mark: no flutter.
SLACK_SHARE = 0.05
# When nobody is about to become idle, somebody may leave.
RETRY_AFTER_MOST_S = 30.0
RETRY_AFTER_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """`idle_after_s`: nobody's K/V are moved before; `turn_tokens`: words, pictures and answer of a
    turn, which a new session has to have room for behind its system prompt."""

    idle_after_s: float = 5.0
    turn_tokens: int = 256
    degrade_above: float = 0.8
    offload_above: float = 0.9


class CacheUser(Protocol):
    """Who has K/V (`headstart.engine.session.session.Session`)."""

    @property
    def name(self) -> str: ...

    @property
    def stream(self) -> Stream: ...

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be done for it now."""
        ...


class AdmissionController:
    """The policy over one pool. Tenants are named anew with each call; it only remembers since when
    each has had nothing to do, and how much was promised to it."""

    def __init__(self, pool: BlockPool, host: HostMemory, rules: AdmissionRules) -> None:
        self.host = host
        self.level = Level.CALM
        self.refused_sessions = 0
        self.offloads = 0  # streams moved to host memory, ever
        self.returns = 0  # and back
        self.dropped = 0  # and those that found no room when they came back
        self._pool = pool
        self._rules = rules
        self._since_ns: dict[str, int] = {}
        self._promised: dict[str, int] = {}  # blocks

    # --- coming and going ------------------------------------------------------------------------

    def admit(self, newcomer: CacheUser, users: Sequence[CacheUser], now_ns: int) -> None:
        """Let `newcomer` in, whose stream reads what it begins with. Raises `NoRoom`."""
        needed_tokens = len(newcomer.stream) + self._rules.turn_tokens
        # Who would be alone is never refused.
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
        """Something came for that session, or was done for it."""
        self._since_ns[name] = now_ns

    def leave(self, name: str) -> None:
        self._since_ns.pop(name, None)
        self._promised.pop(name, None)

    # --- making room -----------------------------------------------------------------------------

    def restore(self, user: CacheUser, users: Iterable[CacheUser], now_ns: int) -> None:
        """Have a session's K/V in the pool again, or given up: it is about to be worked for."""
        stream = user.stream
        if not stream.offload_slot.offloaded:
            return
        try:
            self.make(stream.offload_slot.num_blocks, users, now_ns)
            stream.restore()
            self.returns += 1
        except CacheFull:
            stream.drop_kv()
            self.dropped += 1

    def make(self, num_blocks: int, users: Iterable[CacheUser], now_ns: int) -> None:
        """Offload idle sessions until so many blocks are free, or nobody is idle."""
        if self._pool.free_blocks < num_blocks:
            for user in self._idle(users, now_ns):
                if self._offload(user) and self._pool.free_blocks >= num_blocks:
                    return

    def refuse(
        self, wants: Sequence[tuple[CacheUser, Stream]], users: Sequence[CacheUser], now_ns: int
    ) -> dict[Stream, CacheFull]:
        """The streams whose pending tokens will not all find room; for the others there is some.

        Asked for as a whole, and the smallest first: a prompt that does not fit would otherwise
        take what is free piece by piece, and with it the room of everybody's next word. What was
        promised to others is theirs, except that an answer goes on as long as there is any.
        """
        refused: dict[Stream, CacheFull] = {}
        needs = [(stream.blocks_needed(stream.pending), t, stream) for t, stream in wants]
        everything = sum(need[0] for need in needs) + self._owed(users, now_ns)
        if everything <= self._pool.free_blocks:
            return refused
        granted = 0
        for needed, user, stream in sorted(needs, key=lambda need: need[0]):
            theirs = self._owed([t for t in users if t is not user], now_ns)
            if stream.pending == 1:
                theirs = 0
            total = granted + needed + theirs
            if needed and total > self._pool.free_blocks:
                if total <= self._pool.free_blocks + self._reclaimable(users, now_ns):
                    self.make(total, users, now_ns)
                if total > self._pool.free_blocks:
                    left = max(self._pool.free_blocks - granted - theirs, 0)
                    refused[stream] = CacheFull(needed, left)
                    continue
            granted += needed
        return refused

    def offload_idle(self, users: Iterable[CacheUser], now_ns: int) -> bool:
        """Offload one idle session if the pool is nearly full; whether one went."""
        if self.share < self._rules.offload_above:
            return False
        return any(self._offload(user) for user in self._idle(users, now_ns))

    def _offload(self, user: CacheUser) -> bool:
        if not user.stream.kv_blocks or not user.stream.offload(self.host):
            return False
        self.offloads += 1
        return True

    def _idle(self, users: Iterable[CacheUser], now_ns: int) -> list[CacheUser]:
        """Those that may be offloaded, the longest idle first."""
        idle = [
            t for t in users if self._is_idle(t, now_ns) and not t.stream.offload_slot.offloaded
        ]
        return sorted(idle, key=lambda user: self._since_ns[user.name])

    def _is_idle(self, user: CacheUser, now_ns: int) -> bool:
        idle_ns = now_ns - self._since_ns[user.name]
        return user.at_rest and idle_ns >= self._rules.idle_after_s * NS_PER_S

    # --- how things stand ------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """Of the pool's blocks that somebody holds."""
        return self._pool.used_blocks / self._pool.num_blocks

    def judge(self, users: Sequence[CacheUser], now_ns: int) -> Level:
        """The level now; sticks a little on its way down."""
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
        """Blocks that a newcomer can have."""
        free = self._pool.free_blocks - self._owed(users, now_ns)
        return free + self._reclaimable(users, now_ns)

    def _owed(self, users: Iterable[CacheUser], now_ns: int) -> int:
        """Blocks that were promised to those who are not idle, and that they do not hold yet."""
        return sum(
            max(self._promised[t.name] - len(t.stream.kv_blocks), 0)
            for t in users
            if not self._is_idle(t, now_ns)
        )

    def _reclaimable(self, users: Iterable[CacheUser], now_ns: int) -> int:
        """Blocks that only idle sessions hold, as far as host memory takes them."""
        idle = self._idle(users, now_ns)
        held = Counter(block for user in idle for block in user.stream.kv_blocks)
        theirs = sum(self._pool.references(block) == count for block, count in held.items())
        return min(theirs, self.host.free_blocks)

    def _retry_after_s(self, users: Iterable[CacheUser], now_ns: int) -> float:
        """When the next session will have been idle long enough."""
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
    """The policy that `config` asks for."""
    host = HostMemory(memory, pool, config.offload_bytes)
    return AdmissionController(pool, host, AdmissionRules(config.idle_after_s, config.turn_tokens))
