"""Soft tokens: embeddings (of pictures and sound) with token ids of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from headstart.engine.errors import SoftTableFull, UnknownSoftToken
from headstart.engine.kvcache.positions import MediaKind, MediaPosition

Vector = npt.NDArray[np.floating]


class SoftTokens:
    """The embeddings of one stream by token id, deduplicated by content.

    Ids are local to the stream; `digest` identifies a token's content across streams. Holds at most
    `limit` vectors; `intern` raises `SoftTableFull` beyond that, and `keep_only` frees entries.
    """

    def __init__(self, vocab_size: int, limit: int) -> None:
        self.vocab_size = vocab_size
        self.limit = limit
        self._next_id = vocab_size
        self._vectors: dict[int, Vector] = {}
        self._media: dict[int, MediaPosition] = {}
        self._id_of_digest: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._vectors)

    def intern(self, vectors: Vector, media: Sequence[MediaPosition] | None = None) -> list[int]:
        """Token ids of `vectors` [n, hidden] fp32 or fp64. Equal vectors with equal `media` get
        the same id. Raises `SoftTableFull`."""
        assert vectors.ndim == 2
        dtype = np.float64 if vectors.dtype == np.float64 else np.float32
        rows = np.array(vectors, dtype=dtype, order="C")  # a copy: callers may reuse theirs
        if media is None:
            digests = [blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
        else:
            digests = [_digest(row, one) for row, one in zip(rows, media, strict=True)]
        wanted = len(self._vectors) + len(set(digests) - self._id_of_digest.keys())
        if wanted > self.limit:
            raise SoftTableFull(self.limit, wanted)
        ids = [self._intern_one(row, digest) for row, digest in zip(rows, digests, strict=True)]
        if media is not None:
            self._media.update(zip(ids, media, strict=True))
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
        """The embedding [hidden] of a soft token. Raises `UnknownSoftToken`."""
        if token not in self._vectors:
            raise UnknownSoftToken(token)
        return self._vectors[token]

    def media_position(self, token: int) -> MediaPosition | None:
        """A soft token's position in its medium; None for tokens interned without one."""
        return self._media.get(token)

    def is_picture(self, token: int) -> bool:
        """Whether a token stands for a part of a picture or of a video's frame. Words that describe
        a picture have no position in it, and do not."""
        place = self._media.get(token)
        return place is not None and place.kind is not MediaKind.AUDIO

    def digest(self, token: int) -> bytes:
        """Hash of a held soft token's embedding and media position."""
        return self._digests[token]

    def copy(self) -> SoftTokens:
        """The same embeddings under the same ids, for a fork of the stream."""
        other = SoftTokens(self.vocab_size, self.limit)
        other._next_id = self._next_id
        other._vectors = dict(self._vectors)
        other._media = dict(self._media)
        other._id_of_digest = dict(self._id_of_digest)
        other._digests = dict(self._digests)
        return other

    def keep_only(self, tokens: Collection[int]) -> None:
        """Remove every embedding whose token is not in `tokens`. Ids are never reused."""
        wanted = set(tokens)
        self._vectors = {token: v for token, v in self._vectors.items() if token in wanted}
        self._media = {token: p for token, p in self._media.items() if token in wanted}
        self._id_of_digest = {d: t for d, t in self._id_of_digest.items() if t in wanted}
        self._digests = {t: d for t, d in self._digests.items() if t in wanted}


def _digest(row: Vector, media: MediaPosition) -> bytes:
    digest = blake2b(row.tobytes(), digest_size=16)
    digest.update(repr(media).encode())
    return digest.digest()
