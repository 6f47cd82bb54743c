"""Ephemeral client secrets: a key for a browser, good for a while, with a session's settings.

Kept by hash, so that no secret can be read out of memory dumps or logs; in memory only, so none
outlives the server. Bound: `SECRETS_MAX`; the one that expires first gives way. No clock: times are
those of `gateway.runtime.clocks.since_boot_s`, so that nobody's setting the date ends or prolongs a
secret, and a machine's sleep counts.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from headstart.gateway.protocol.limits import RANGES

PREFIX = "ek_"
SECRET_BYTES = 24
SECRETS_MAX = 10_000
LIFETIME_S, LIFETIME_S_DEFAULT = RANGES["expires_after.seconds"], 600


@dataclass(frozen=True, slots=True)
class Grant:
    """What a secret stands for. `session`: the `session` object it was asked for with, or None;
    `key_id`: whose key it was asked for with (`headstart.gateway.auth.access`)."""

    expires_at_s: float
    session: Any
    key_id: str = ""


class ClientSecrets:
    """`issue` and `find`."""

    def __init__(self) -> None:
        self._grants: dict[bytes, Grant] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def issue(self, session: Any, lifetime_s: int, now_s: float, key_id: str = "") -> str:
        """A new secret, good for so long."""
        if len(self._grants) >= SECRETS_MAX:
            self._grants = {k: g for k, g in self._grants.items() if now_s < g.expires_at_s}
        if len(self._grants) >= SECRETS_MAX:
            first = min(self._grants, key=lambda key: self._grants[key].expires_at_s)
            del self._grants[first]
        value = PREFIX + secrets.token_hex(SECRET_BYTES)
        self._grants[_digest(value)] = Grant(now_s + lifetime_s, session, key_id)
        return value

    def find(self, value: str, now_s: float) -> Grant | None:
        """What it stands for; None: unknown or expired. Compared by hash, so the time taken tells
        nothing of a secret's letters."""
        grant = self._grants.get(_digest(value))
        return grant if grant is not None and now_s < grant.expires_at_s else None


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode(errors="surrogatepass")).digest()
