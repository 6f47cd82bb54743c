"""The size of a batch that takes about a given time. No clock, no torch."""

from __future__ import annotations

NS_PER_MS = 1_000_000
BAND = 0.2  # share of the target within which a size is left as it is
LARGEST_STEP = 2.0  # factor by which one observation may change the size


class BatchSize:
    """Follows what batches take: larger ones while they end earlier than the target less 20 %,
    smaller ones when they end later than the target and 20 %.

    Only a full batch says that there is time for a larger one. `target_ms` 0: always `most`.
    """

    def __init__(self, most: int, target_ms: float = 0.0, least: int = 1) -> None:
        assert 0 < least <= most
        self.most, self.least = most, least
        self.target_ns = target_ms * NS_PER_MS
        self.size = most if not target_ms else least

    def observe(self, size: int, took_ns: int) -> None:
        """A batch of `size` took so long."""
        if not self.target_ns or size < 1:
            return
        ratio = self.target_ns / max(took_ns, 1)
        if took_ns > self.target_ns * (1 + BAND):
            wanted = int(size * max(ratio, 1 / LARGEST_STEP))
            self.size = max(self.least, min(self.size, wanted, size - 1))
        elif took_ns < self.target_ns * (1 - BAND) and size >= self.size:
            wanted = int(size * min(ratio, LARGEST_STEP))
            self.size = min(self.most, max(self.size + 1, wanted))
