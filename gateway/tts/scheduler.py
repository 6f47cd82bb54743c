"""Schedules the worker's clauses. No I/O, no clock.

One response is spoken in order. Among responses, the one whose listener would run out of audio
first comes first: the listener has been playing since the first piece, and the audio made since
then is the lead. A response with a lead of `LEAD_MAX_S` waits, because audio made further ahead is
wasted when the user interrupts. Bound: `CLAUSES_MAX` in total; more are refused.

The first piece of a response that nobody has asked for yet may be made ahead (`prepare`), whenever
no listener has less than `EARLY_LEAD_S` left; a response asked for meanwhile waits for that piece.
It is kept until another one takes its place or the session leaves. Bound: one for each session,
`EARLY_MAX` in all; beyond it the oldest is forgotten.

"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from headstart.gateway.tts.messages import ClauseDone, Prepare, Speak, SynthesisedAudio, VoiceEvent
from headstart.gateway.tts.synthesiser import RATE_HZ, Samples, Synthesiser

LEAD_MAX_S = 20.0
CLAUSES_MAX = 4096
EARLY_LEAD_S = 0.3
EARLY_MAX = 256


@dataclass(slots=True)
class _Answer:
    clauses: deque[Speak] = field(default_factory=deque)
    pieces: Iterator[Samples] | None = None  # of the first clause, once begun
    dry_s: float | None = None  # when its listener runs out of audio; None: nothing made


@dataclass(slots=True)
class _Early:
    """The beginning of a response that may be asked for. `first`: its first piece, once made, empty
    if there was none; `rest`: what follows it."""

    text: str
    speed: float
    first: list[Samples] | None = None
    rest: Iterator[Samples] = field(default_factory=lambda: iter(()))


class TtsScheduler:
    """Call `ask`, `prepare` and `stop`, and `work` while `next_s` reports work."""

    def __init__(self, voice: Synthesiser) -> None:
        self._voice = voice
        self._answers: dict[tuple[str, int], _Answer] = {}
        self._early: dict[str, _Early] = {}  # by session
        self._waiting = 0

    def __len__(self) -> int:
        """The number of unfinished clauses."""
        return self._waiting

    def ask(self, speak: Speak) -> VoiceEvent | None:
        """Queue a clause, or return why not."""
        if self._waiting >= CLAUSES_MAX:
            problem = f"{CLAUSES_MAX} clauses are waiting already"
            return ClauseDone(speak.session, speak.generation, speak.clause, problem)
        key = (speak.session, speak.generation)
        if key not in self._answers:
            self._answers[key] = _Answer(pieces=self._take_early(speak))
        self._answers[key].clauses.append(speak)
        self._waiting += 1
        return None

    def prepare(self, beginning: Prepare) -> None:
        """Make the first piece of that text when there is time, instead of an earlier one."""
        early = self._early.pop(beginning.session, None)
        if early is None or (early.text, early.speed) != (beginning.text, beginning.speed):
            early = _Early(beginning.text, beginning.speed)
        while len(self._early) >= EARLY_MAX:
            del self._early[next(iter(self._early))]
        self._early[beginning.session] = early

    def _take_early(self, speak: Speak) -> Iterator[Samples] | None:
        """What was made ahead of the clause that begins a response; None: nothing that fits."""
        early = self._early.get(speak.session)
        if early is None or (early.text, early.speed) != (speak.text, speak.speed):
            return None  # it may be for the next one: this may be out of band
        del self._early[speak.session]
        return None if early.first is None else chain(early.first, early.rest)

    def stop(self, session: str, generation: int | None) -> None:
        """Drop one response, or all of a session's."""
        for key in list(self._answers):
            if key[0] == session and generation in (None, key[1]):
                self._waiting -= len(self._answers.pop(key).clauses)
        if generation is None:
            self._early.pop(session, None)

    def next_s(self, now_s: float) -> float | None:
        """Seconds until there is work; 0: now, None: nothing is queued."""
        self._forget(now_s)
        if self._next_early() is not None:
            return 0.0
        keys = self._with_work()
        if not keys:
            return None
        return max(0.0, min(self._dry_s(key, now_s) for key in keys) - LEAD_MAX_S - now_s)

    def work(self, now_s: float) -> VoiceEvent | None:
        """Make one piece, for the listener that runs out of audio first; None: it was made ahead.
        Blocks meanwhile."""
        key = min(self._with_work(), key=lambda key: self._dry_s(key, now_s), default=None)
        early = self._next_early()
        if key is None or (early is not None and self._dry_s(key, now_s) > now_s + EARLY_LEAD_S):
            assert early is not None, "called without work"
            self._make_early(early)
            return None
        answer = self._answers[key]
        speak = answer.clauses[0]
        if answer.pieces is None:
            answer.pieces = self._voice.speak(speak.text, speak.speed)
        problem = ""
        try:
            piece = next(answer.pieces, None)
        except Exception as error:  # a clause that cannot be spoken must not end the worker
            piece, problem = None, f"{type(error).__name__}: {error}"
        if piece is None:
            answer.clauses.popleft()
            answer.pieces = None
            self._waiting -= 1
            return ClauseDone(*key, speak.clause, problem)
        answer.dry_s = max(self._dry_s(key, now_s), now_s) + len(piece) / RATE_HZ
        return SynthesisedAudio(*key, speak.clause, piece.tobytes())

    def _next_early(self) -> str | None:
        """The session whose beginning is to be made ahead next."""
        return next((name for name, early in self._early.items() if early.first is None), None)

    def _make_early(self, session: str) -> None:
        early = self._early[session]
        early.rest = self._voice.speak(early.text, early.speed)
        try:
            early.first = [*islice(early.rest, 1)]
        except Exception:  # the response itself will say why
            del self._early[session]

    def _forget(self, now_s: float) -> None:
        """Forget responses that are spoken and played: their next clause is as urgent as a first
        one."""
        for key in list(self._answers):
            if not self._answers[key].clauses and self._dry_s(key, now_s) <= now_s:
                del self._answers[key]

    def _with_work(self) -> list[tuple[str, int]]:
        return [key for key, answer in self._answers.items() if answer.clauses]

    def _dry_s(self, key: tuple[str, int], now_s: float) -> float:
        """A response without audio runs out now."""
        dry_s = self._answers[key].dry_s
        return now_s if dry_s is None else dry_s
