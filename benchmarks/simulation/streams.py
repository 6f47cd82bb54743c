"""A session's prompt on a node: the engine's own `Stream`, or an account of a server's cache.

The scheduler reads `pending` of both. On our own engine tokens are real, with blocks of the real
pool, so that its admission works on it. On a server there are thousands, and only two numbers
matter: what is cached, and what is to be computed.
"""

from __future__ import annotations

from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream

VOCABULARY = 1 << 40
LIMIT = 1 << 20


class ServerStream:
    """What a server has cached of one session, and what a request asks it to compute."""

    __slots__ = ("kv_len", "pending", "version")

    def __init__(self, cached: int = 0) -> None:
        self.kv_len = cached
        self.pending = 0
        self.version = 0

    def ask(self, length: int, version: int, shared: int) -> None:
        """A request for the first `length` tokens of the conversation. Of another `version` than
        before only the `shared` beginning is the same."""
        if version != self.version:
            self.version = version
            self.kv_len = min(self.kv_len, shared)
        self.pending = max(length - self.kv_len, 0)

    def take(self, count: int) -> None:
        """The next pending tokens were computed."""
        self.kv_len += count
        self.pending -= count

    def cut(self, length: int) -> None:
        """Nothing behind `length` is asked for any more."""
        self.kv_len = min(self.kv_len, length)
        self.pending = 0


class LocalStream(Stream):
    """The engine's stream with tokens made up: those of the system prompt are everybody's."""

    def __init__(self, name: str, number: int, pool: BlockPool) -> None:
        super().__init__(name, pool, VOCABULARY, LIMIT)
        self._base = (number + 1) << 24
        self.version = 0

    def ask(self, length: int, version: int, shared: int) -> None:
        """As of `ServerStream`, but with the K/V behind an evicted part kept."""
        if version != self.version:
            self.version = version
            self.evict([(shared, len(self) - len(self) // 2)], shared)
            # Tokens keep their ids, so those that come get new ones.
            self._base += 1 << 20
        have = len(self)
        if length < have:
            self.truncate(length)
        elif length > have:
            new = [at if at < shared else self._base + at for at in range(have, length)]
            self.append(new)
            self.adopt()

    def take(self, count: int) -> None:
        """The next pending tokens were computed. Raises `CacheFull`."""
        self.reserve(count)
        self.advance(count)

    def cut(self, length: int) -> None:
        """Nothing behind `length` is asked for any more."""
        if length < len(self):
            self.truncate(length)


SimStream = ServerStream | LocalStream
