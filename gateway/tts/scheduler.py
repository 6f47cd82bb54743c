"""Schedules the worker's clauses. No I/O, no clock.

One response is spoken in order. Among responses, the one whose listener would run out of audio
first comes first: the listener has been playing since the first piece, and the audio made since
then is the lead. A response with a lead of `LEAD_MAX_S` waits, because audio made further ahead is
wasted when the user interrupts. Bound: `CLAUSES_MAX` in total; more are refused.

"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from headstart.gateway.tts.messages import ClauseDone, Speak, SynthesisedAudio, VoiceEvent
from headstart.gateway.tts.synthesiser import RATE_HZ, Samples, Synthesiser

LEAD_MAX_S = 20.0
CLAUSES_MAX = 4096


@dataclass(slots=True)
class _Answer:
    clauses: deque[Speak] = field(default_factory=deque)
    pieces: Iterator[Samples] | None = None  # of the first clause, once begun
    dry_s: float | None = None  # when its listener runs out of audio; None: nothing made


class TtsScheduler:
    """Call `ask` and `stop`, and `work` while `next_s` reports work."""

    def __init__(self, voice: Synthesiser) -> None:
        self._voice = voice
        self._answers: dict[tuple[str, int], _Answer] = {}
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
        self._answers.setdefault(key, _Answer()).clauses.append(speak)
        self._waiting += 1
        return None

    def stop(self, session: str, generation: int | None) -> None:
        """Drop one response, or all of a session's."""
        for key in list(self._answers):
            if key[0] == session and generation in (None, key[1]):
                self._waiting -= len(self._answers.pop(key).clauses)

    def next_s(self, now_s: float) -> float | None:
        """Seconds until there is work; 0: now, None: nothing is queued."""
        self._forget(now_s)
        keys = self._with_work()
        if not keys:
            return None
        return max(0.0, min(self._dry_s(key, now_s) for key in keys) - LEAD_MAX_S - now_s)

    def work(self, now_s: float) -> VoiceEvent:
        """Make one piece, for the listener that runs out of audio first. Blocks meanwhile."""
        key = min(self._with_work(), key=lambda key: self._dry_s(key, now_s))
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
