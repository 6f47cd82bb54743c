"""Embeddings that stand in a token stream like words: what a picture becomes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from headstart.engine.errors import SoftTableFull, UnknownSoftToken
from headstart.engine.kvcache.positions import Position

Vector = npt.NDArray[np.floating]


class SoftTokens:
    """Embeddings of one stream by token id, found again by content.

    Ids are the stream's own; what a token stands for is told by `digest`, the same for all streams.
    Holds at most `limit` vectors and raises `SoftTableFull` beyond; `keep_only` makes room.
    """

    def __init__(self, vocab_size: int, limit: int) -> None:
        self.vocab_size = vocab_size
        self.limit = limit
        self._next_id = vocab_size
        self._vectors: dict[int, Vector] = {}
        self._places: dict[int, Position] = {}
        self._id_of_digest: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._vectors)

    def intern(self, vectors: Vector, places: Sequence[Position] | None = None) -> list[int]:
        """Token ids of `vectors` [n, hidden] fp32 (fp64 stays so); the same content, from the same
        one of `places`, gets the same id."""
        assert vectors.ndim == 2
        dtype = np.float64 if vectors.dtype == np.float64 else np.float32
        rows = np.array(vectors, dtype=dtype, order="C")  # our own copy: callers may reuse
        if places is None:
            digests = [blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
        else:
            digests = [_digest(row, place) for row, place in zip(rows, places, strict=True)]
        wanted = len(self._vectors) + len(set(digests) - self._id_of_digest.keys())
        if wanted > self.limit:
            raise SoftTableFull(self.limit, wanted)
        ids = [self._intern_one(row, digest) for row, digest in zip(rows, digests, strict=True)]
        if places is not None:
            self._places.update(zip(ids, places, strict=True))
        return ids

    def _intern_one(self, row: Vector, digest: bytes) -> int:
        token = self._id_of_digest.get(digest)
        if token is None:
            token = self._next_id
            self._next_id += 1
            self._id_of_digest[digest] = token
            self._vectors[token] = row
            self._digests[token] = digest
        return token

    def __contains__(self, token: object) -> bool:
        return token in self._vectors

    def vector(self, token: int) -> Vector:
        """The embedding [hidden] of a soft token."""
        if token not in self._vectors:
            raise UnknownSoftToken(token)
        return self._vectors[token]

    def place(self, token: int) -> Position | None:
        """What a token was made from; None for words and for tokens interned without places."""
        return self._places.get(token)

    def digest(self, token: int) -> bytes:
        """Names the embedding of a soft token that is held, and its place."""
        return self._digests[token]

    def copy(self) -> SoftTokens:
        """The same embeddings under the same ids, for a stream that reads the same."""
        other = SoftTokens(self.vocab_size, self.limit)
        other._next_id = self._next_id
        other._vectors = dict(self._vectors)
        other._places = dict(self._places)
        other._id_of_digest = dict(self._id_of_digest)
        other._digests = dict(self._digests)
        return other

    def keep_only(self, tokens: Collection[int]) -> None:
        """Forget every embedding whose token is not among `tokens`. Ids are never used again."""
        wanted = set(tokens)
        self._vectors = {token: v for token, v in self._vectors.items() if token in wanted}
        self._places = {token: p for token, p in self._places.items() if token in wanted}
        self._id_of_digest = {d: t for d, t in self._id_of_digest.items() if t in wanted}
        self._digests = {t: d for t, d in self._digests.items() if t in wanted}


def _digest(row: Vector, place: Position) -> bytes:
    digest = blake2b(row.tobytes(), digest_size=16)
    digest.update(repr(place).encode())
    return digest.digest()
