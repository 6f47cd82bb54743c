"""Share domains: whose sessions may share the engine's cached computations.

From cache hits (`cached_tokens`, or an earlier first token) a session can infer that another one
has used the same prompt or image. Between sessions of one key this reveals nothing; between keys it
would. So each key has its own domain.

"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from headstart.engine import api

DOMAIN_BYTES = 16
SECRET_BYTES = 32


class ShareDomains:
    """`between_keys`: one domain for all. Keys and domains cannot be derived from each other: a
    secret of this process is hashed in."""

    def __init__(self, *, between_keys: bool) -> None:
        self._between_keys = between_keys
        self._secret = secrets.token_bytes(SECRET_BYTES)

    def of(self, key_id: str) -> bytes:
        """The domain of a key (`headstart.gateway.auth.access.Admitted`); empty, which is
        everybody's, if no keys are required."""
        if self._between_keys or not key_id:
            return b""
        return blake2b(key_id.encode(), digest_size=DOMAIN_BYTES, key=self._secret).digest()

    def within_domain(
        self, key_id: str, send: Callable[[api.Command], bool]
    ) -> Callable[[api.Command], bool]:
        """Wrap `send` for a session of that key, so that opening it names its domain."""
        domain = self.of(key_id)
        if not domain:
            return send

        def send_within(command: api.Command) -> bool:
            if isinstance(command, api.Open):
                command = msgspec.structs.replace(command, share_domain=domain)
            return send(command)

        return send_within
