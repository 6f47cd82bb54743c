"""What a pass of the speech recogniser took, by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from headstart.engine.asr.whisper.pieces import Pieces, Result, within


class StageClock:
    """Adds up wall time per stage; only measures, decides nothing.

    `positions`, `encoded`: of the longest window, how many it has and how many were encoded.
    """

    def __init__(self) -> None:
        self.spent_ms = {"mel": 0.0, "encode": 0.0, "decode": 0.0}
        self.positions = 0
        self.encoded = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time spent inside counts for that stage."""
        start_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spent_ms[name] += (time.perf_counter_ns() - start_ns) / 1e6

    def pieces(self, name: str, work: Pieces[Result]) -> Pieces[Result]:
        """`work`, whose time counts for that stage; what is done between its pieces does not."""
        return within(lambda: self.stage(name), work)
