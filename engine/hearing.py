"""What one session hears in one pass of the ears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine import api
from engine.faculties import Pcm
from engine.inbox import chunk_due_ns
from engine.ticket import Ticket, budget_stages
from engine.utterance import Utterance, to_float

# Less of a chunk's time than this left after hearing it: what may still change is not prefilled.
# Committed words and answers have the decoder to themselves until the engine has caught up.
HEADROOM_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Portion:
    """Chunks that follow on each other, and the utterance they belong to. At least one."""

    utterance: Utterance
    chunks: tuple[api.Audio, ...]

    @property
    def samples(self) -> int:
        return sum(chunk.samples for chunk in self.chunks)

    def pcm(self) -> Pcm:
        return np.concatenate([to_float(chunk) for chunk in self.chunks])

    def has_headroom(self, now_ns: int) -> bool:
        """Whether, the words being known at `now_ns`, there is time for more than the sure ones."""
        last = self.chunks[-1]
        due_ns = chunk_due_ns(last)
        return due_ns - now_ns >= HEADROOM_SHARE * (due_ns - last.received_ns)

    def tickets(
        self,
        stages_ms: Mapping[str, float],
        share: float,
        prefilled_before: int,
        rolled_back: int,
    ) -> list[Ticket]:
        """The books of each chunk. Work is divided by length; the tokens are the last one's."""
        tickets = [
            Ticket(chunk, budget_stages(stages_ms, share * chunk.samples / max(self.samples, 1)))
            for chunk in self.chunks
        ]
        tickets[-1].prefilled_before = prefilled_before
        tickets[-1].rolled_back = rolled_back
        return tickets
