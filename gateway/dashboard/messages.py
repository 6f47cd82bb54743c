"""The feed's messages, and how they are encoded: one JSON object each, the same bytes for all.

Version 1. Durations end in `_ms`; null is what nobody could measure. `seq` counts up by one over a
server's run with each message that all watchers get; what one watcher alone gets (`hello`, `live`)
and chunks, which only some want, carry the newest one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from headstart.gateway.runtime import tasks
from headstart.gateway.telemetry import thresholds

VERSION = 1
THRESHOLDS = {name: [levels.warn, levels.bad] for name, levels in thresholds.THRESHOLDS.items()}
"""[warn, bad], as the page and the alert rules have them."""

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Message:
    """One message. `make` gives its fields and is called when the first reader needs them."""

    __slots__ = ("_line", "_make", "at_ms", "kind", "seq")

    def __init__(self, kind: str, seq: int, at_ms: float, make: Callable[[], Json]) -> None:
        self.kind = kind
        self.seq = seq
        self.at_ms = at_ms
        self._make: Callable[[], Json] | None = make
        self._line = b""

    @property
    def is_encoded(self) -> bool:
        return self._make is None

    def line(self, dropped: int = 0) -> bytes:
        """UTF-8 of the JSON, without a line's end. `dropped` is for snapshots."""
        make, self._make = self._make, None
        if make is not None:
            try:
                self._line = _encode(self._head() | make())
            except Exception as error:  # ours to mend; the session that it is of goes on
                tasks.report("dashboard message", error)
                self._line = _encode(self._head())
        return self._line

    def _head(self) -> Json:
        return {"type": self.kind, "seq": self.seq, "at_ms": self.at_ms}


class Snapshot(Message):
    """A second of the server's. Tells each watcher how much it has missed."""

    __slots__ = ()

    def line(self, dropped: int = 0) -> bytes:
        whole = super().line()
        if not dropped:
            return whole
        return whole.replace(b'"dropped":0', b'"dropped":%d' % dropped, 1)

    def _head(self) -> Json:
        return super()._head() | {"dropped": 0}


def wall_clock(at_s: float) -> str:
    """Seconds since 1970 as the feed writes instants: ISO 8601, UTC, ms."""
    at = datetime.fromtimestamp(at_s, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
