"""Which of several Whispers a machine has time for. No torch, no clock: the timing comes in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHARE = 0.5
"""Of a chunk's own length that hearing it may take, for all sessions together. The language model,
the final pass at a hush and the gateway share the processor's other half."""


@dataclass(frozen=True)
class Demand:
    """`sessions`: people who speak at once; `chunk_ms`: sound that is heard at once."""

    sessions: int
    chunk_ms: int

    @property
    def limit_ms(self) -> float:
        """What one session's chunk may take. On a CPU sessions are heard one after another."""
        return SHARE * self.chunk_ms / self.sessions


@dataclass(frozen=True)
class Choice:
    """`place` in what was offered, and a sentence that says why."""

    place: int
    reason: str


def choose(names: Sequence[str], time_ms: Callable[[int], float | None], demand: Demand) -> Choice:
    """The first of `names`, best first, that keeps `demand`; else the last.

    `time_ms`: what a chunk takes, of the name at that place, or None where it cannot be used. It
    loads weights, so it is asked of one after the other, and never of the last, which is taken
    unmeasured.
    """
    assert names
    wanted = f"{demand.sessions} at once, {demand.chunk_ms} ms chunks"
    refused = []
    for place, name in enumerate(names[:-1]):
        took_ms = time_ms(place)
        if took_ms is None:
            refused.append(f"{name} cannot be used")
        elif took_ms > demand.limit_ms:
            refused.append(f"{name} takes {took_ms:.0f} ms a chunk")
        else:
            kept = f"{name} takes {took_ms:.0f} ms a chunk of at most {demand.limit_ms:.0f} ms"
            return Choice(place, "; ".join([*refused, f"{kept} ({wanted})"]))
    if refused:
        most = f"at most {demand.limit_ms:.0f} ms fit ({wanted})"
        return Choice(len(names) - 1, "; ".join([*refused, most]))
    return Choice(len(names) - 1, "no other fetched Whisper suits")
