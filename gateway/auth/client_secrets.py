"""Ephemeral client secrets: short-lived keys for browsers, with session settings.

Stored as hashes, so that no secret can be read from memory dumps or logs; in memory only, so none
outlives the server. Bound: `SECRETS_MAX`; beyond it, the one that expires first is dropped. No
clock: times are those of `gateway.runtime.clocks.since_boot_s`, so that setting the date does not
change a secret's lifetime, and a machine's sleep counts.

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
    """What a secret grants. `session`: the `session` object in the request for it, or None;
    `key_id`: of the key it was requested with (`headstart.gateway.auth.access`)."""

    expires_at_s: float
    session: Any
    key_id: str = ""


class ClientSecrets:
    """Issues and finds secrets. `gateway`: its name, for a load balancer to find it again by: then
    secrets are `ek_NAME_…`."""

    def __init__(self, gateway: str = "") -> None:
        self._prefix = PREFIX + (f"{gateway}_" if gateway else "")
        self._grants: dict[bytes, Grant] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def issue(self, session: Any, lifetime_s: int, now_s: float, key_id: str = "") -> str:
        """A new secret, valid for `lifetime_s`."""
        if len(self._grants) >= SECRETS_MAX:
            self._grants = {k: g for k, g in self._grants.items() if now_s < g.expires_at_s}
        if len(self._grants) >= SECRETS_MAX:
            first = min(self._grants, key=lambda key: self._grants[key].expires_at_s)
            del self._grants[first]
        value = self._prefix + secrets.token_hex(SECRET_BYTES)
        self._grants[_digest(value)] = Grant(now_s + lifetime_s, session, key_id)
        return value

    def find(self, value: str, now_s: float) -> Grant | None:
        """The grant of a secret; None: unknown or expired. Compared by hash, so that the time taken
        reveals nothing about a secret."""
        grant = self._grants.get(_digest(value))
        return grant if grant is not None and now_s < grant.expires_at_s else None


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode(errors="surrogatepass")).digest()
