"""What the start of an engine took, by stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class StartClock:
    """Wall time of each stage in seconds. Stages in other threads overlap, so their sum may be more
    than the start took."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._stages_s: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside towards stage `name`."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            took_s = time.monotonic() - began_s
            with self._lock:
                self._stages_s[name] = self._stages_s.get(name, 0.0) + took_s

    @property
    def total_s(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began_s

    def stages_s(self) -> dict[str, float]:
        with self._lock:
            return {name: round(took_s, 3) for name, took_s in self._stages_s.items()}
