"""When has the person finished? A small policy, asked once per VAD window of a pause.

A pause first becomes a *hush* (short: the final hearing pass and the speculative answer begin)
and then an *endpoint* (sure: the turn is over). Policies see sample counts only, so live and
faster-than-real-time runs decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gateway.media.timebase import hear_samples

DEFAULT_HUSH_MS = 200
DEFAULT_SILENCE_MS = 500

# semantic_vad's eagerness as plain silence lengths, until the model's own end-of-turn
# probability decides. "auto" is "medium" in the protocol.
EAGERNESS_SILENCE_MS = {"low": 1500, "medium": 800, "auto": 800, "high": 400}


class Verdict(Enum):
    """What a pause means so far; the order is that of its growth."""

    WAIT = "wait"
    HUSH = "hush"
    END = "end"


@dataclass(frozen=True)
class Pause:
    """A pause in an open utterance, in 16 kHz samples."""

    silence_samples: int  # since the last speech
    speech_samples: int  # of the utterance so far, silence not counted
    # The language model's, asked at the hush, that the message is over; None: not known (yet).
    end_probability: float | None = None


class EndpointPolicy(Protocol):
    """Judges a growing pause. `END` may come without a `HUSH` before it."""

    @property
    def longest_silence_ms(self) -> int:
        """No pause outlasts this: it bounds the audio held back while a pause is judged."""
        ...

    def judge(self, pause: Pause) -> Verdict: ...

    def went_on(self, silence_samples: int) -> None:
        """The speaker was silent for so long and went on: that was no end."""
        ...


@dataclass(frozen=True)
class FixedSilence:
    """The turn ends after `silence_ms` of silence; the hush comes at `hush_ms`, if earlier."""

    silence_ms: int = DEFAULT_SILENCE_MS
    hush_ms: int = DEFAULT_HUSH_MS

    def __post_init__(self) -> None:
        for name in ("silence_ms", "hush_ms"):
            value = getattr(self, name)
            if value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")

    @property
    def longest_silence_ms(self) -> int:
        return self.silence_ms

    def judge(self, pause: Pause) -> Verdict:
        if pause.silence_samples >= hear_samples(self.silence_ms):
            return Verdict.END
        if pause.silence_samples >= hear_samples(self.hush_ms):
            return Verdict.HUSH
        return Verdict.WAIT

    def went_on(self, silence_samples: int) -> None:
        """It never learns."""


def semantic(eagerness: str, hush_ms: int = DEFAULT_HUSH_MS) -> FixedSilence:
    """The policy behind `semantic_vad`. Raises ValueError for an eagerness the protocol lacks."""
    if eagerness not in EAGERNESS_SILENCE_MS:
        expected = ", ".join(EAGERNESS_SILENCE_MS)
        raise ValueError(f"eagerness must be one of {expected}, got {eagerness!r}")
    return FixedSilence(EAGERNESS_SILENCE_MS[eagerness], hush_ms)
