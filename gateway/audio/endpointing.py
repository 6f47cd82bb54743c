"""When has the person finished? A small policy, asked once per VAD window of a pause.

A pause first becomes a *hush* (short: the final hearing pass and the speculative answer begin)
and then an *endpoint* (sure: the turn is over). Three policies, measured in docs/endpointing.md:

    fixed      a silence of one length, whatever was said
    adaptive   a length that follows this speaker's own pauses
    semantic   that, and more of it where the language model says that the message is not over

The first two see sample counts only, so that live and faster-than-real-time runs decide alike; the
model's word comes in its own time, and a file that is fed faster than that outruns it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headstart.gateway.audio.clock import engine_samples_to_ms, ms_to_engine_samples

DEFAULT_HUSH_MS = 200
DEFAULT_SILENCE_MS = 500

TYPICAL_PAUSE_MS = 450.0  # what is taken for a speaker's mean pause before any is known
STATISTICS_KEEP = 16  # pauses: older ones fade
LONGEST_LEARNT_MS = 3000.0  # of a longer one, only that it was long
ADAPTIVE_LEAST_MS, ADAPTIVE_MOST_MS = 300, 1500

ASK_AGAIN_MS = 600  # the ears may need more silence to hear that a sentence is over


class EndpointVerdict(Enum):
    """What a pause means so far, growing."""

    WAIT = "wait"
    HUSH = "hush"
    RECHECK = "ask"  # a hush still; the model is to look again, with the silence since
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

    def judge(self, pause: Pause) -> EndpointVerdict: ...

    def went_on(self, silence_samples: int) -> None:
        """The speaker was silent for so long and went on: that was no end."""
        ...


@dataclass(frozen=True)
class FixedSilence:
    """The turn ends after `silence_ms` of silence; the hush comes at `hush_ms`, if earlier."""

    silence_ms: int = DEFAULT_SILENCE_MS
    hush_ms: int = DEFAULT_HUSH_MS

    def __post_init__(self) -> None:
        _check(silence_ms=self.silence_ms, hush_ms=self.hush_ms)

    @property
    def longest_silence_ms(self) -> int:
        return self.silence_ms

    def judge(self, pause: Pause) -> EndpointVerdict:
        if pause.silence_samples >= ms_to_engine_samples(self.silence_ms):
            return EndpointVerdict.END
        if pause.silence_samples >= ms_to_engine_samples(self.hush_ms):
            return EndpointVerdict.HUSH
        return EndpointVerdict.WAIT

    def went_on(self, silence_samples: int) -> None:
        """It never learns."""


class PauseStatistics:
    """How long one speaker is silent who then goes on, over a session: the geometric mean, for
    pauses are spread by factors. It begins with one pause of a typical length."""

    def __init__(self) -> None:
        self._known = 1
        self._log_mean = math.log(TYPICAL_PAUSE_MS)

    @property
    def mean_ms(self) -> float:
        return math.exp(self._log_mean)

    def learn(self, silence_ms: float) -> None:
        """One more pause (above 0 ms) of a speaker who went on."""
        self._known = min(self._known + 1, STATISTICS_KEEP)
        log_ms = math.log(min(silence_ms, LONGEST_LEARNT_MS))
        self._log_mean += (log_ms - self._log_mean) / self._known


class AdaptiveSilence:
    """The turn ends after `silence_ms` with a speaker whose pauses are typical, later with one who
    pauses for longer and sooner with a quick one, within bounds. `pace` is learnt from what it is
    told, and outlives it."""

    def __init__(
        self,
        pace: PauseStatistics,
        silence_ms: int = DEFAULT_SILENCE_MS,
        hush_ms: int = DEFAULT_HUSH_MS,
    ) -> None:
        _check(silence_ms=silence_ms, hush_ms=hush_ms)
        self._pace = pace
        self._factor = silence_ms / TYPICAL_PAUSE_MS
        self.hush_ms = hush_ms

    @property
    def longest_silence_ms(self) -> int:
        return ADAPTIVE_MOST_MS

    @property
    def silence_ms(self) -> int:
        """What ends a turn now."""
        wanted_ms = round(self._factor * self._pace.mean_ms)
        return min(max(wanted_ms, ADAPTIVE_LEAST_MS), ADAPTIVE_MOST_MS)

    def judge(self, pause: Pause) -> EndpointVerdict:
        return FixedSilence(self.silence_ms, self.hush_ms).judge(pause)

    def went_on(self, silence_samples: int) -> None:
        """Pauses shorter than a hush are part of words: they end no turn under any policy."""
        if silence_samples >= ms_to_engine_samples(max(self.hush_ms, 1)):
            self._pace.learn(engine_samples_to_ms(silence_samples))


@dataclass(frozen=True)
class SemanticThresholds:
    """What the model's probability is worth: below `unfinished_below` a message breaks off, and the
    silence behind it is longer by `unfinished_factor`.

    Behind whole messages it is 0.4 to 1 as a rule, behind statements that ask for nothing a few
    hundredths, and behind a message that breaks off 1e-3 to 1e-8.
    """

    unfinished_below: float = 0.01
    unfinished_factor: float = 3.0


class SemanticSilence:
    """The adaptive silence, but much more, up to `most_ms`, behind a message that breaks off by the
    language model's probability.

    Until the model has told, or where it does not (nothing is speculated on while an answer runs,
    or without `create_response`), `DEFAULT_SILENCE_MS` at least.
    """

    def __init__(
        self, adaptive: AdaptiveSilence, most_ms: int, weighing: SemanticThresholds | None = None
    ) -> None:
        _check(most_ms=most_ms)
        self._adaptive = adaptive
        self._most_ms = most_ms
        self._weighing = weighing or SemanticThresholds()

    @property
    def longest_silence_ms(self) -> int:
        return max(self._most_ms, ADAPTIVE_MOST_MS)

    def silence_ms(self, end_probability: float | None) -> int:
        """What ends a turn now, behind a message that is over with such a probability."""
        base_ms, weighing = self._adaptive.silence_ms, self._weighing
        if end_probability is None:
            return max(base_ms, DEFAULT_SILENCE_MS)
        if end_probability >= weighing.unfinished_below:
            return base_ms
        return max(base_ms, min(round(weighing.unfinished_factor * base_ms), self._most_ms))

    def judge(self, pause: Pause) -> EndpointVerdict:
        probability = pause.end_probability
        silence_ms = self.silence_ms(probability)
        verdict = FixedSilence(silence_ms, self._adaptive.hush_ms).judge(pause)
        once_more = pause.asked == 1 and pause.silence_samples >= ms_to_engine_samples(ASK_AGAIN_MS)
        breaks_off = probability is not None and probability < self._weighing.unfinished_below
        return (
            EndpointVerdict.RECHECK
            if verdict is EndpointVerdict.HUSH and breaks_off and once_more
            else verdict
        )

    def went_on(self, silence_samples: int) -> None:
        self._adaptive.went_on(silence_samples)


@dataclass(frozen=True)
class Eagerness:
    """`silence_ms` behind a message that is over, of a speaker whose pauses are typical;
    `most_ms`: the longest wait that the protocol names."""

    silence_ms: int
    most_ms: int


EAGERNESS = {
    "low": Eagerness(810, 8000),
    "medium": Eagerness(630, 4000),
    "auto": Eagerness(630, 4000),
    "high": Eagerness(450, 2000),
}


def semantic(
    eagerness: str, hush_ms: int = DEFAULT_HUSH_MS, pace: PauseStatistics | None = None
) -> SemanticSilence:
    """The policy behind `semantic_vad`. Raises ValueError for an eagerness the protocol lacks."""
    if eagerness not in EAGERNESS:
        expected = ", ".join(EAGERNESS)
        raise ValueError(f"eagerness must be one of {expected}, got {eagerness!r}")
    wanted = EAGERNESS[eagerness]
    return SemanticSilence(
        AdaptiveSilence(pace or PauseStatistics(), wanted.silence_ms, hush_ms), wanted.most_ms
    )


def _check(**lengths_ms: int) -> None:
    for name, value in lengths_ms.items():
        if value < 0:
            raise ValueError(f"{name} must be 0 or more, got {value}")
