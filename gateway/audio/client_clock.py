"""Maps a client's timestamps to our clock."""

from __future__ import annotations

from headstart.gateway.audio.clock import NS_PER_MS


class ClientClock:
    """The two clocks have no common zero, so a packet's delay is only known relative to the fastest
    packet so far."""

    def __init__(self) -> None:
        self._offset_ns: int | None = None  # the smallest one so far

    def look(self, stamp_ms: float) -> int | None:
        """A client's stamp as an instant of ours, in ns, by what its packets have told so far;
        None: nothing. Learns nothing: a stamp that is wrong spoils no other."""
        if self._offset_ns is None:
            return None
        return round(stamp_ms * NS_PER_MS) + self._offset_ns

    def to_ours(self, stamp_ms: float | None, now_ns: int) -> int | None:
        """Convert a client's timestamp that arrived at `now_ns` to our clock, in ns; None: it had
        none."""
        if stamp_ms is None:
            return None
        stamp_ns = round(stamp_ms * NS_PER_MS)
        offset_ns = now_ns - stamp_ns
        if self._offset_ns is None or offset_ns < self._offset_ns:
            self._offset_ns = offset_ns
        return stamp_ns + self._offset_ns
