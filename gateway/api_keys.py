"""The keys that open this server, and what is kept of them.

A key is kept as its SHA-256 and compared in constant time with every other, so neither memory nor
the time taken tells of its letters. Its holder is named by the first digits of that hash, in logs
and limits.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

KEY_CHARS_MIN = 16
NAME_DIGITS = 8


class ApiKeys:
    """`holder_of` a key; empty: the server is open to everybody who reaches it."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __len__(self) -> int:
        return len(self._digests)

    def holder_of(self, key: str) -> str | None:
        """The name of who holds it; None: it is none of ours."""
        given, holder = _digest(key), None
        for digest in self._digests:  # all of them, whichever it is
            if hmac.compare_digest(given, digest):
                holder = f"key-{digest.hex()[:NAME_DIGITS]}"
        return holder


def parse_keys(text: str) -> list[str]:
    """Keys between spaces, commas or ends of line; `#` begins a comment. Raises ValueError for one
    that is too short to be a secret."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    keys = [key for line in lines for key in line.replace(",", " ").split()]
    for number, key in enumerate(keys, 1):
        if len(key) < KEY_CHARS_MIN:
            raise ValueError(
                f"key {number} has {len(key)} characters: at least {KEY_CHARS_MIN} are needed "
                f"(`openssl rand -hex 24` makes a good one)"
            )
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()
