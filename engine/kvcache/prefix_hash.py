"""Content keys of K/V blocks: equal keys mean equal K/V, in any stream.

The key of block i is a hash over all tokens from the first to the last of that block, because the
K/V of a token depend on every token before it. Soft tokens are hashed by their embedding, since
their ids differ between streams. A *share domain* is hashed into every key of its streams: equal
content has equal keys within one domain only, and without knowing the domain nobody can compute its
keys.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from headstart.engine.kvcache.soft_tokens import SoftTokens

KEY_BYTES = 16  # collision probability 2^-64 in a cache of 2^32 blocks
_SOFT = -1


class ContentKeys:
    """Content keys of one stream's full blocks, computed on demand.

    `domain`: the share domain, any bytes; empty for all streams without one.
    """

    def __init__(self, block_size: int, soft: SoftTokens, domain: bytes = b"") -> None:
        self._block_size = block_size
        self._soft = soft
        self._root = blake2b(domain, digest_size=KEY_BYTES).digest() if domain else b""
        self._keys: list[bytes] = []

    def truncate(self, num_tokens: int) -> None:
        """The stream was cut to `num_tokens`."""
        del self._keys[num_tokens // self._block_size :]

    def key(self, index: int, tokens: Sequence[int]) -> bytes:
        """The key of block `index` of a stream with these `tokens`, which fill that block."""
        size = self._block_size
        while len(self._keys) <= index:
            start = len(self._keys) * size
            before = self._keys[-1] if self._keys else self._root
            self._keys.append(self._chain(before, tokens[start : start + size]))
        return self._keys[index]

    def _chain(self, before: bytes, block: Sequence[int]) -> bytes:
        assert len(block) == self._block_size
        vocab_size = self._soft.vocab_size
        ids = array("q", (token if token < vocab_size else _SOFT for token in block))
        digest = blake2b(before, digest_size=KEY_BYTES)
        digest.update(ids.tobytes())
        for token in block:
            if token >= vocab_size:
                digest.update(self._soft.digest(token))
        return digest.digest()
