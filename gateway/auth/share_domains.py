"""Whose sessions may share what the engine has computed.

By what is cached (`cached_tokens`, or a first token that comes sooner) a session learns that some
other one has used the same prompt or picture. Among the sessions of one key that is nobody's
secret; between keys it is. So the sessions of a key's holder have a domain of their own.
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
    """`between_keys`: one domain for all. A domain cannot be told from the key, nor the key from
    it: a secret of this process goes into it."""

    def __init__(self, *, between_keys: bool) -> None:
        self._between_keys = between_keys
        self._secret = secrets.token_bytes(SECRET_BYTES)

    def of(self, key_id: str) -> bytes:
        """The domain of a key's holder (`headstart.gateway.auth.access.Admitted`); empty, which is
        everybody's, where no keys are asked for."""
        if self._between_keys or not key_id:
            return b""
        return blake2b(key_id.encode(), digest_size=DOMAIN_BYTES, key=self._secret).digest()

    def telling(
        self, key_id: str, tell: Callable[[api.Command], bool]
    ) -> Callable[[api.Command], bool]:
        """`tell` for a session of that holder: whenever it is opened, it is within its domain."""
        domain = self.of(key_id)
        if not domain:
            return tell

        def tell_within(command: api.Command) -> bool:
            if isinstance(command, api.Open):
                command = msgspec.structs.replace(command, share_domain=domain)
            return tell(command)

        return tell_within
