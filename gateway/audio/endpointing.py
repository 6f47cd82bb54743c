"""Endpointing: decides when the user has finished. A policy judges each VAD window of a pause.

A pause first becomes a *hush* (short: the final recognition pass and the speculative response
begin) and then an *endpoint* (the turn is over). There are four policies, measured in
docs/endpointing.md:

    fixed      a silence of one length
    adaptive   a length that follows this speaker's own pauses
    semantic   as adaptive, but longer if the language model finds the message incomplete
    eager      as semantic, but much sooner where the message reads as whole. Such an early end
               is revocable: if the speaker goes on within `revocable_ms`, the session takes the
               answer back and the same message continues

The first two use only sample counts, so live and faster-than-real-time runs decide alike. The
model's probability arrives in wall-clock time, so a file that is fed too fast may not get it in
time.

"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headstart.gateway.audio.clock import engine_samples_to_ms, ms_to_engine_samples
from headstart.gateway.audio.unfinished import (
    Expected,
    expected_by,
    is_open_list,
    is_question,
    is_unfinished,
    may_begin_list,
)

DEFAULT_HUSH_MS = 200
DEFAULT_SILENCE_MS = 500

TYPICAL_PAUSE_MS = 450.0  # assumed mean pause of a speaker, until there are real ones
STATISTICS_KEEP = 16  # pauses; older ones fade out
LONGEST_LEARNT_MS = 3000.0  # longer pauses count as this long
ADAPTIVE_LEAST_MS, ADAPTIVE_MOST_MS = 300, 1500

CAUTION_MOST = 4.0  # early ends taken back
CAUTION_FADES = 0.25

ASK_AGAIN_MS = 600  # the recogniser may need more silence to detect the end of a sentence


class EndpointVerdict(Enum):
    """The meaning of a pause so far, in increasing order."""

    WAIT = "wait"
    HUSH = "hush"
    RECHECK = "ask"  # still a hush, but the model is to judge again with the longer silence
    END = "end"


@dataclass(frozen=True)
class Pause:
    """A pause in an open utterance, in 16 kHz samples."""

    silence_samples: int  # since the last speech
    speech_samples: int  # of the utterance so far, without silence
    # The language model's, asked at the hush, that the message is over; None: not known (yet).
    end_probability: float | None = None
    checks: int = 0  # hushes and rechecks of this pause so far
    words: str = ""  # recognised so far, known with `end_probability`
    # The recogniser's probability of a word, geometric mean of the first ones; None: not known.
    word_probability: float | None = None
    # The language model's, that a mark ends the sentence behind the last word; None: not known.
    mark_probability: float | None = None


class EndpointPolicy(ABC):
    """Judges a growing pause. `END` may come without a `HUSH` before it.

    The methods that do nothing here are for policies that learn.
    """

    @property
    @abstractmethod
    def longest_silence_ms(self) -> int:
        """The longest silence before an endpoint: bounds the audio held back during a pause."""

    @abstractmethod
    def judge(self, pause: Pause) -> EndpointVerdict:
        """The meaning of a pause so far."""

    def continued_after(self, silence_samples: int) -> None:  # noqa: B027
        """The speaker continued after this silence, so it was not an endpoint."""

    @property
    def revocable_ms(self) -> int:
        """How long after the last `END` speech that goes on takes it back; 0: it is final."""
        return 0

    def revoked(self) -> None:  # noqa: B027
        """The last `END` was taken back: its message continues. `continued_after` tells the
        silence."""

    def answered(self, text: str) -> None:  # noqa: B027
        """The assistant's whole message that the next turn replies to."""


@dataclass(frozen=True)
class FixedSilence(EndpointPolicy):
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


class PauseStatistics:
    """What is known of one speaker's pauses, over a session.

    `mean_ms`: the geometric mean of pauses within turns, because pauses vary by factors. It starts
    with one pause of typical length. `caution`: from 0, no early end was taken back, to
    `CAUTION_MOST`; each one adds 1, and each end that held takes `CAUTION_FADES` off.

    """

    def __init__(self) -> None:
        self._known = 1
        self._log_mean = math.log(TYPICAL_PAUSE_MS)
        self.caution = 0.0

    @property
    def mean_ms(self) -> float:
        return math.exp(self._log_mean)

    def learn(self, silence_ms: float) -> None:
        """Add one pause (above 0 ms) after which the speaker continued."""
        self._known = min(self._known + 1, STATISTICS_KEEP)
        log_ms = math.log(min(silence_ms, LONGEST_LEARNT_MS))
        self._log_mean += (log_ms - self._log_mean) / self._known

    def end_was(self, *, held: bool) -> None:
        """Add the outcome of one end: it held, or it was early and was taken back."""
        change = -CAUTION_FADES if held else 1.0
        self.caution = min(max(self.caution + change, 0.0), CAUTION_MOST)


class AdaptiveSilence(EndpointPolicy):
    """The turn ends after `silence_ms` for a speaker with typical pauses, within bounds later for
    one with longer pauses and sooner for one with shorter pauses. `pace` is updated by this policy
    and outlives it."""

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
        """The silence that currently ends a turn."""
        wanted_ms = round(self._factor * self._pace.mean_ms)
        return min(max(wanted_ms, ADAPTIVE_LEAST_MS), ADAPTIVE_MOST_MS)

    def judge(self, pause: Pause) -> EndpointVerdict:
        return FixedSilence(self.silence_ms, self.hush_ms).judge(pause)

    def continued_after(self, silence_samples: int) -> None:
        """Pauses shorter than a hush occur within words and end no turn under any policy."""
        if silence_samples >= ms_to_engine_samples(max(self.hush_ms, 1)):
            self._pace.learn(engine_samples_to_ms(silence_samples))


@dataclass(frozen=True)
class SemanticThresholds:
    """How the model's probability is used: below `unfinished_below` a message counts as incomplete,
    and the silence after it is multiplied by `unfinished_factor`.

    After complete messages the probability is usually 0.4 to 1, after statements that ask for
    nothing a few hundredths, and after incomplete messages 1e-3 to 1e-8.

    """

    unfinished_below: float = 0.01
    unfinished_factor: float = 3.0


class SemanticSilence(EndpointPolicy):
    """The adaptive silence, but much longer, up to `most_ms`, after a message that is incomplete by
    the language model's probability.

    While there is no probability (yet), it is at least `DEFAULT_SILENCE_MS`. There is none while a
    response is active, or without `create_response`, because nothing is speculated then.

    """

    def __init__(
        self, adaptive: AdaptiveSilence, most_ms: int, thresholds: SemanticThresholds | None = None
    ) -> None:
        _check(most_ms=most_ms)
        self._adaptive = adaptive
        self._most_ms = most_ms
        self._thresholds = thresholds or SemanticThresholds()

    @property
    def longest_silence_ms(self) -> int:
        return max(self._most_ms, ADAPTIVE_MOST_MS)

    def silence_ms(self, end_probability: float | None) -> int:
        """The silence that ends a turn after a message with this end probability."""
        base_ms, thresholds = self._adaptive.silence_ms, self._thresholds
        if end_probability is None:
            return max(base_ms, DEFAULT_SILENCE_MS)
        if end_probability >= thresholds.unfinished_below:
            return base_ms
        return max(base_ms, min(round(thresholds.unfinished_factor * base_ms), self._most_ms))

    def judge(self, pause: Pause) -> EndpointVerdict:
        probability = pause.end_probability
        silence_ms = self.silence_ms(probability)
        verdict = FixedSilence(silence_ms, self._adaptive.hush_ms).judge(pause)
        breaks_off = probability is not None and probability < self._thresholds.unfinished_below
        return _asked_again(verdict, pause) if breaks_off else verdict

    def continued_after(self, silence_samples: int) -> None:
        self._adaptive.continued_after(silence_samples)


@dataclass(frozen=True)
class EagerSettings:
    """When the policy `eager` asks, and how long it waits.

    `hush_ms`: when the model is asked. The *doubt* that a message is over is what its end
    probability lacks to 1: after questions a few thousandths, after requests and items of a list a
    few hundredths, after statements a third. Up to `sure_doubt` it ends after `early_ms`; from
    `usual_doubt` on after the adaptive silence; in between, the wait grows with the doubt's
    logarithm. Each early end taken back multiplies the doubt by `caution_factor`, and a message
    that may begin a list by `short_factor`. A message that was answered too early ends no sooner
    than after the adaptive silence; behind an item of a list that is not the last, after
    `list_factor` times that.

    Where the message breaks off, the wait is `unfinished_factor` times the adaptive silence: an end
    probability below `unfinished_below`, or a mark that the recogniser put behind words where the
    model finds one less likely than `unmarked_below` ("Put milk.", "What is the capital of?").
    Words less likely than `least_likely` are nonsense: behind what they break off the wait is the
    adaptive silence.
    `revocable_ms`: how long an end can be taken back.

    """

    hush_ms: int = 120
    early_ms: int = 240
    sure_doubt: float = 0.1
    usual_doubt: float = 0.5
    caution_factor: float = 4.0
    unfinished_below: float = 0.01
    unfinished_factor: float = 3.0
    unmarked_below: float = 0.002
    least_likely: float = 0.3
    short_factor: float = 3.0
    list_factor: float = 1.5
    revocable_ms: int = 1500

    def __post_init__(self) -> None:
        if not 0 < self.sure_doubt < self.usual_doubt <= 1:
            raise ValueError(
                "expected 0 < sure_doubt < usual_doubt <= 1, "
                f"got {self.sure_doubt} and {self.usual_doubt}"
            )


UNHEARD = EagerSettings(
    sure_doubt=0.4, usual_doubt=0.9, caution_factor=2.0, short_factor=1.0, list_factor=1.0
)
"""For answers in text alone: one that is taken back was heard by nobody."""


class _LastEnd(Enum):
    EARLY = "early"
    USUAL = "usual"


class EagerSilence(EndpointPolicy):
    """Ends early where the message reads as whole, and where it does not, as `SemanticSilence`.

    Words that break off ("um", "and", a comma) count as an unfinished message, and so do fewer
    digits than a number has that the assistant asked for, and words behind which the model finds a
    full stop improbable. The model is asked at the hush, and again
    after `ASK_AGAIN_MS`.

    """

    def __init__(
        self,
        pace: PauseStatistics,
        silence_ms: int = DEFAULT_SILENCE_MS,
        most_ms: int = 4000,
        settings: EagerSettings | None = None,
    ) -> None:
        self.settings = settings or EagerSettings()
        _check(most_ms=most_ms, hush_ms=self.settings.hush_ms, early_ms=self.settings.early_ms)
        self._pace = pace
        self._adaptive = AdaptiveSilence(pace, silence_ms)
        self._most_ms = most_ms
        self._expected = Expected.ANYTHING
        self._last_end: _LastEnd | None = None
        self._is_over = False  # the message; false again if it goes on
        self._continued = False  # an end of this message was taken back

    @property
    def longest_silence_ms(self) -> int:
        return max(self._most_ms, ADAPTIVE_MOST_MS)

    @property
    def revocable_ms(self) -> int:
        return self.settings.revocable_ms

    def silence_ms(self, pause: Pause) -> int:
        """The silence that ends the turn, by what is known of the message in this pause."""
        base_ms, ours = self._adaptive.silence_ms, self.settings
        if pause.end_probability is None:
            return max(base_ms, DEFAULT_SILENCE_MS)
        if self._breaks_off(pause):
            factor = 1.0 if self._is_nonsense(pause) else ours.unfinished_factor
            return max(base_ms, min(round(factor * base_ms), self._most_ms))
        if self._continued and not is_question(pause.words):
            factor = ours.list_factor if is_open_list(pause.words) else 1.0
            return max(base_ms, min(round(factor * base_ms), self._most_ms))
        doubt = (1 - pause.end_probability) * ours.caution_factor**self._pace.caution
        if may_begin_list(pause.words):
            doubt *= ours.short_factor
        if doubt <= ours.sure_doubt:
            return min(ours.early_ms, base_ms)
        scale = math.log(ours.usual_doubt / ours.sure_doubt)
        share = min(math.log(doubt / ours.sure_doubt) / scale, 1.0)
        return round(base_ms + (1 - share) * min(ours.early_ms - base_ms, 0))

    def judge(self, pause: Pause) -> EndpointVerdict:
        if self._is_over:
            self._is_over = self._continued = False
        silence_ms = self.silence_ms(pause)
        verdict = FixedSilence(silence_ms, self.settings.hush_ms).judge(pause)
        if verdict is EndpointVerdict.END:
            self._ended(early=silence_ms < self._adaptive.silence_ms)
            return verdict
        breaks_off = self._breaks_off(pause) and not self._is_nonsense(pause)
        return _asked_again(verdict, pause) if breaks_off else verdict

    def continued_after(self, silence_samples: int) -> None:
        self._adaptive.continued_after(silence_samples)

    def revoked(self) -> None:
        if self._last_end is _LastEnd.EARLY:
            self._pace.end_was(held=False)
        self._last_end, self._is_over, self._continued = None, False, True

    def answered(self, text: str) -> None:
        self._expected = expected_by(text)

    def _breaks_off(self, pause: Pause) -> bool:
        ours, marked = self.settings, pause.mark_probability
        if pause.end_probability is None:
            return False
        if pause.end_probability < ours.unfinished_below:
            return True
        if marked is not None and marked < ours.unmarked_below:
            return True
        return is_unfinished(pause.words, self._expected)

    def _is_nonsense(self, pause: Pause) -> bool:
        likely = pause.word_probability
        return likely is not None and likely < self.settings.least_likely

    def _ended(self, *, early: bool) -> None:
        """The turn ends. The end before, if nobody took it back, has held."""
        if self._last_end is not None:
            self._pace.end_was(held=True)
        self._last_end = _LastEnd.EARLY if early else _LastEnd.USUAL
        self._is_over = True


@dataclass(frozen=True)
class Eagerness:
    """`silence_ms`: after a complete message, for a speaker with typical pauses; `most_ms`: the
    longest wait, as the protocol defines it."""

    silence_ms: int
    most_ms: int


EAGERNESS = {
    "low": Eagerness(810, 8000),
    "medium": Eagerness(630, 4000),
    "auto": Eagerness(630, 4000),
    "high": Eagerness(450, 2000),
}


EAGER = ("auto", "high")
"""The eagernesses whose early ends are revocable."""


def semantic(
    eagerness: str, hush_ms: int = DEFAULT_HUSH_MS, pace: PauseStatistics | None = None
) -> SemanticSilence:
    """The policy `semantic`. Raises ValueError for an unknown eagerness."""
    wanted = _eagerness(eagerness)
    return SemanticSilence(
        AdaptiveSilence(pace or PauseStatistics(), wanted.silence_ms, hush_ms), wanted.most_ms
    )


def eager(
    eagerness: str, pace: PauseStatistics | None = None, settings: EagerSettings | None = None
) -> EagerSilence:
    """The policy `eager`. Raises ValueError for an unknown eagerness."""
    wanted = _eagerness(eagerness)
    return EagerSilence(pace or PauseStatistics(), wanted.silence_ms, wanted.most_ms, settings)


def mean_probability(likely: Sequence[float]) -> float | None:
    """The geometric mean of words' probabilities; None: none are known."""
    if not likely:
        return None
    return math.exp(sum(math.log(max(one, 1e-6)) for one in likely) / len(likely))


def _asked_again(verdict: EndpointVerdict, pause: Pause) -> EndpointVerdict:
    """The verdict on a message that seems to break off: its hush is judged once more, when
    `ASK_AGAIN_MS` have passed."""
    long_enough = pause.silence_samples >= ms_to_engine_samples(ASK_AGAIN_MS)
    once_more = verdict is EndpointVerdict.HUSH and pause.checks == 1 and long_enough
    return EndpointVerdict.RECHECK if once_more else verdict


def _eagerness(name: str) -> Eagerness:
    if name not in EAGERNESS:
        expected = ", ".join(EAGERNESS)
        raise ValueError(f"eagerness must be one of {expected}, got {name!r}")
    return EAGERNESS[name]


def _check(**lengths_ms: int) -> None:
    for name, value in lengths_ms.items():
        if value < 0:
            raise ValueError(f"{name} must be 0 or more, got {value}")
