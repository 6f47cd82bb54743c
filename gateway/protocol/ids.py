"""Identifiers on the wire: a prefix for the kind, and a suffix.

Every id has at most 32 characters, the limit that the API sets for clients' item ids.

"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable

SUFFIX_BYTES = 12  # 96 random bits: no two sessions of a server's life share an id


def _random_suffix() -> str:
    return secrets.token_hex(SUFFIX_BYTES)


class IdMaker:
    """Makes ids; calls `suffix` once for each.

    The default is random. `IdMaker.counting()` numbers them 0001, 0002, … across all kinds, so that
    a test's transcript of a session is always the same.

    """

    def __init__(self, suffix: Callable[[], str] = _random_suffix) -> None:
        self._suffix = suffix

    @classmethod
    def counting(cls) -> IdMaker:
        numbers = itertools.count(1)
        return cls(lambda: f"{next(numbers):04d}")

    def event(self) -> str:
        return f"event_{self._suffix()}"

    def item(self) -> str:
        return f"item_{self._suffix()}"

    def response(self) -> str:
        return f"resp_{self._suffix()}"

    def session(self) -> str:
        return f"sess_{self._suffix()}"

    def conversation(self) -> str:
        return f"conv_{self._suffix()}"

    def call(self) -> str:
        return f"call_{self._suffix()}"
