"""When has the person finished? A small policy, asked once per VAD window of a pause.

A pause first becomes a *hush* (short: the final hearing pass and the speculative answer begin)
and then an *endpoint* (sure: the turn is over). Policies see sample counts only, so live and
faster-than-real-time runs decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gateway.media.timebase import hear_ms, hear_samples

DEFAULT_HUSH_MS = 200
DEFAULT_SILENCE_MS = 500

# Of a moving mean: an eighth of each new pause, and a quarter for the deviation, as RFC 6298.
MEAN_SHARE = 0.125
DEVIATION_SHARE = 0.25
LONGEST_LEARNT_MS = 3000.0  # of a longer one, only that it was long
ADAPTIVE_LEAST_MS = 300
ADAPTIVE_MOST_MS = 1200
ADAPTIVE_DEVIATIONS = 2.0


class Verdict(Enum):
    """What a pause means so far, growing."""

    WAIT = "wait"
    HUSH = "hush"
    ASK = "ask"  # a hush still; the model is to look again, with the silence since
    END = "end"


@dataclass(frozen=True)
class Pause:
    """A pause in an open utterance, in 16 kHz samples."""

    silence_samples: int  # since the last speech
    speech_samples: int  # of the utterance so far, silence not counted
    # The language model's, asked at the hush, that the message is over; None: not known (yet).
    end_probability: float | None = None
    asked: int = 0  # hushes and second looks of this pause so far


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


class Pace:
    """How long one speaker is silent who then goes on: the mean of those pauses and their mean
    deviation, moving, as TCP learns its round trips (RFC 6298). Kept over a session."""

    def __init__(self) -> None:
        self.mean_ms: float | None = None
        self.deviation_ms = 0.0

    def learn(self, silence_ms: float) -> None:
        """One more pause of a speaker who went on."""
        silence_ms = min(silence_ms, LONGEST_LEARNT_MS)
        if self.mean_ms is None:
            self.mean_ms, self.deviation_ms = silence_ms, silence_ms / 2
            return
        off_ms = abs(silence_ms - self.mean_ms)
        self.deviation_ms += DEVIATION_SHARE * (off_ms - self.deviation_ms)
        self.mean_ms += MEAN_SHARE * (silence_ms - self.mean_ms)

    def longest_ms(self, deviations: float) -> float | None:
        """Few pauses are longer; None: nothing is known yet."""
        return None if self.mean_ms is None else self.mean_ms + deviations * self.deviation_ms


class AdaptiveSilence:
    """The turn ends after a silence that this speaker seldom keeps within a turn, between
    `least_ms` and `most_ms`; after `silence_ms` as long as none of their pauses is known."""

    def __init__(
        self,
        pace: Pace,
        silence_ms: int = DEFAULT_SILENCE_MS,
        hush_ms: int = DEFAULT_HUSH_MS,
        *,
        least_ms: int = ADAPTIVE_LEAST_MS,
        most_ms: int = ADAPTIVE_MOST_MS,
        deviations: float = ADAPTIVE_DEVIATIONS,
    ) -> None:
        if not hush_ms <= least_ms <= most_ms:
            raise ValueError(f"expected {hush_ms=} <= {least_ms=} <= {most_ms=}")
        self._pace = pace
        self._start_ms = min(max(silence_ms, least_ms), most_ms)
        self._hush_ms = hush_ms
        self._least_ms, self._most_ms = least_ms, most_ms
        self._deviations = deviations

    @property
    def longest_silence_ms(self) -> int:
        return self._most_ms

    @property
    def silence_ms(self) -> int:
        """What ends a turn now."""
        learnt_ms = self._pace.longest_ms(self._deviations)
        if learnt_ms is None:
            return self._start_ms
        return round(min(max(learnt_ms, self._least_ms), self._most_ms))

    def judge(self, pause: Pause) -> Verdict:
        return FixedSilence(self.silence_ms, self._hush_ms).judge(pause)

    def went_on(self, silence_samples: int) -> None:
        """Pauses shorter than a hush are part of words: they end no turn under any policy."""
        if silence_samples >= hear_samples(self._hush_ms):
            self._pace.learn(hear_ms(silence_samples))


@dataclass(frozen=True)
class Eagerness:
    """How long `semantic_vad` waits: behind a message that seems over, behind one that may be, and
    at most, behind one that is not (the protocol's 8, 4 and 2 s)."""

    over_ms: int
    unsure_ms: int
    most_ms: int


EAGERNESS = {
    "low": Eagerness(800, 1500, 8000),
    "medium": Eagerness(500, 800, 4000),
    "auto": Eagerness(500, 800, 4000),
    "high": Eagerness(300, 500, 2000),
}
UNFINISHED_BELOW = 0.03
OVER_FROM = 0.3
ASK_AGAIN_MS = 600


class SemanticSilence:
    """The turn ends early behind a message that is over and late behind one that is not, by the
    language model's probability; until that is known, as if it were unsure."""

    def __init__(self, wait: Eagerness, hush_ms: int = DEFAULT_HUSH_MS) -> None:
        self.wait = wait
        self._hush_ms = min(hush_ms, wait.over_ms)

    @property
    def longest_silence_ms(self) -> int:
        return self.wait.most_ms

    def silence_ms(self, end_probability: float | None) -> int:
        """What ends a turn behind a message that is over with such a probability."""
        if end_probability is None:
            return self.wait.unsure_ms
        if end_probability >= OVER_FROM:
            return self.wait.over_ms
        return self.wait.most_ms if end_probability < UNFINISHED_BELOW else self.wait.unsure_ms

    def judge(self, pause: Pause) -> Verdict:
        silence_ms = self.silence_ms(pause.end_probability)
        verdict = FixedSilence(silence_ms, self._hush_ms).judge(pause)
        # The ears may need more silence to hear that a sentence is over.
        once_more = pause.asked == 1 and pause.silence_samples >= hear_samples(ASK_AGAIN_MS)
        unfinished = silence_ms == self.wait.most_ms
        return Verdict.ASK if verdict is Verdict.HUSH and unfinished and once_more else verdict

    def went_on(self, silence_samples: int) -> None:
        """It never learns."""


def semantic(
    eagerness: str, hush_ms: int = DEFAULT_HUSH_MS, pace: Pace | None = None
) -> SemanticSilence:
    """The policy behind `semantic_vad`. Raises ValueError for an eagerness the protocol lacks."""
    if eagerness not in EAGERNESS:
        expected = ", ".join(EAGERNESS)
        raise ValueError(f"eagerness must be one of {expected}, got {eagerness!r}")
    return SemanticSilence(EAGERNESS[eagerness], hush_ms)
