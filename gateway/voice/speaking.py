"""One answer that is spoken: what has been given to the voice, what came back, what was heard.

No I/O, no clock. `samples` are of the sound handed on to the client, at 24 kHz.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.media.timebase import WIRE_RATE_HZ
from gateway.voice.clauses import ClauseCutter


@dataclass(slots=True)
class _Clause:
    text: str
    samples: int = 0
    said: bool = False


@dataclass(slots=True)
class Speaking:
    """Clauses of one answer, in order."""

    first_clause_ns: int | None = None  # when it was given to the voice
    first_sound_ns: int | None = None  # when the first of it was on its way to the client
    problem: str = ""  # why some of it was not spoken
    _clauses: list[_Clause] = field(default_factory=list)
    _cutter: ClauseCutter = field(default_factory=ClauseCutter)
    _text_over: bool = False
    _heard_samples: int | None = None  # where it was cut off; None: nowhere
    _lost: bool = False

    @property
    def samples(self) -> int:
        return sum(clause.samples for clause in self._clauses)

    @property
    def duration_ms(self) -> int:
        """Rounded up, as clients do that count what they have played."""
        return -(-self.samples * 1000 // WIRE_RATE_HZ)

    @property
    def is_cut(self) -> bool:
        return self._heard_samples is not None

    @property
    def heard_ms(self) -> int:
        """How much of it counts as heard, rounded up as `duration_ms` is."""
        heard = self.samples if self._heard_samples is None else self._heard_samples
        return -(-heard * 1000 // WIRE_RATE_HZ)

    @property
    def over(self) -> bool:
        """All text has come and has been said."""
        return self._text_over and all(clause.said for clause in self._clauses)

    def words(self, text: str, now_ns: int) -> list[tuple[int, str]]:
        """Text of the answer; (number, text) of each clause that can be spoken now."""
        return self._give(self._cutter.push(text), now_ns)

    def end(self, now_ns: int) -> list[tuple[int, str]]:
        """No more text; the last clauses."""
        self._text_over = True
        return self._give(self._cutter.flush(), now_ns)

    def give_up(self, problem: str) -> None:
        """The voice is lost: what it has not said will not be said."""
        self.problem = self.problem or problem
        self._lost = True
        for clause in self._clauses:
            clause.said = True

    def sound(self, clause: int, samples: int) -> None:
        self._clauses[clause].samples += samples

    def said(self, clause: int, problem: str) -> None:
        self._clauses[clause].said = True
        self.problem = self.problem or problem

    def cut(self, heard_samples: int) -> str:
        """Nothing behind `heard_samples` was heard; the text up to there. A second cut can only
        shorten it further. Within a clause, words are taken to be spoken at an even pace."""
        before = self.samples if self._heard_samples is None else self._heard_samples
        self._heard_samples = min(before, heard_samples)
        return self.heard()

    def heard(self) -> str:
        """The text up to where it was cut, whole words."""
        if self._heard_samples is None:
            return "".join(clause.text for clause in self._clauses)
        left = self._heard_samples
        text = ""
        for clause in self._clauses:
            if left <= 0 or (not clause.samples and not clause.said):
                break
            if left < clause.samples:
                return text + _begin(clause.text, left / clause.samples)
            text += clause.text
            left -= clause.samples
        return text.rstrip()

    def _give(self, texts: list[str], now_ns: int) -> list[tuple[int, str]]:
        first = len(self._clauses)
        self._clauses += [_Clause(text, said=self._lost) for text in texts]
        if self._lost:
            return []
        if texts and self.first_clause_ns is None:
            self.first_clause_ns = now_ns
        return list(enumerate(texts, first))


def _begin(text: str, share: float) -> str:
    """The whole words within the first `share` of a text."""
    end = int(len(text) * share)
    if end >= len(text):
        return text
    return text[: text.rfind(" ", 0, end + 1) + 1].rstrip() if end > 0 else ""
