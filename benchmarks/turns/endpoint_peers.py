"""Endpoint policies of peers, by their documented rules, for `headstart bench endpoint`.

Pipecat 1.14: its voice detector reports a stop after 200 ms of silence. The default stop strategy
then asks smart-turn, once for each pause: above 0.5 the turn is over, else after 3 s more. The
other strategy waits 600 ms behind the detector's stop.

LiveKit Agents 1.5: the turn is over 500 ms after the last speech, or after 3 s where its turn
detector finds that unlikely (docs.livekit.io/reference/agents/turn-handling-options); earlier
versions waited 6 s. Its detector's licence binds it to LiveKit, so smart-turn stands in for it.

None of them takes an end back as one message: what a person goes on with is a message of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from headstart.benchmarks.turns.turn_outcomes import HeardPause
from headstart.gateway.audio.clock import engine_samples_to_ms
from headstart.gateway.audio.endpointing import (
    DEFAULT_HUSH_MS,
    EndpointPolicy,
    EndpointVerdict,
    FixedSilence,
    Pause,
)

PIPECAT_STOP_MS = 200
PIPECAT_TIMEOUT_MS = 600
PIPECAT_INCOMPLETE_MS = 3200  # counted behind the detector's stop
LIVEKIT_MIN_MS, LIVEKIT_MAX_MS = 500, 3000
COMPLETE_FROM = 0.5


@dataclass(frozen=True)
class ByTurnDetector(EndpointPolicy):
    """Ends at `complete_ms` where the detector's probability exceeds `complete_from`, else at
    `incomplete_ms`."""

    complete_ms: int
    incomplete_ms: int
    complete_from: float = COMPLETE_FROM
    hush_ms: int = DEFAULT_HUSH_MS

    @property
    def longest_silence_ms(self) -> int:
        return self.incomplete_ms

    def judge(self, pause: Pause) -> EndpointVerdict:
        assert isinstance(pause, HeardPause)
        silence_ms = engine_samples_to_ms(pause.silence_samples)
        found = pause.smart_turn
        complete = found is not None and found > self.complete_from
        if silence_ms >= (self.complete_ms if complete else self.incomplete_ms):
            return EndpointVerdict.END
        return EndpointVerdict.WAIT if silence_ms < self.hush_ms else EndpointVerdict.HUSH


def pipecat(complete_from: float = COMPLETE_FROM) -> EndpointPolicy:
    """Pipecat's default stop strategy."""
    return ByTurnDetector(PIPECAT_STOP_MS, PIPECAT_INCOMPLETE_MS, complete_from)


def pipecat_timeout(timeout_ms: int = PIPECAT_TIMEOUT_MS) -> EndpointPolicy:
    """Pipecat's speech timeout."""
    return FixedSilence(PIPECAT_STOP_MS + timeout_ms, PIPECAT_STOP_MS)


def livekit(min_ms: int = LIVEKIT_MIN_MS, max_ms: int = LIVEKIT_MAX_MS) -> EndpointPolicy:
    """LiveKit's delays with a turn detector."""
    return ByTurnDetector(min_ms, max_ms)
