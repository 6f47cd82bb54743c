"""One spoken response: the clauses sent to the TTS, the audio received, and what was heard.

No I/O, no clock. `samples` count the audio passed on to the client, at 24 kHz.

"""

from __future__ import annotations

from dataclasses import dataclass, field

from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.tts.clauses import ClauseCutter
from headstart.gateway.tts.clean import Said, SpokenText

SAMPLES_PER_LETTER = CLIENT_RATE_HZ // 15
"""Of English read aloud, spaces included: 13 to 17 letters a second."""


@dataclass(slots=True)
class _Clause:
    """`text` as it is spoken; `ends`: each character's position in the written text."""

    text: str
    ends: list[int]
    samples: int = 0
    said: bool = False

    @property
    def whole_samples(self) -> int:
        """Its length; as long as more of it may come, no less than is typical of its text."""
        if self.said:
            return self.samples
        return max(self.samples, len(self.text) * SAMPLES_PER_LETTER)


@dataclass(slots=True)
class SpokenResponse:
    """Clauses of one response, in order. The first is begun with its first phrase, if it is not
    whole when that is there. `prepared`: the first clause that the voice has been told of."""

    prepared: str = ""
    first_clause_ns: int | None = None  # when it was sent to the worker
    first_sound_ns: int | None = None  # when its first audio was sent to the client
    problem: str = ""  # why some of it was not spoken
    _clauses: list[_Clause] = field(default_factory=list)
    _written: str = ""
    _spoken: SpokenText = field(default_factory=SpokenText)
    _ends: list[int] = field(default_factory=list)  # of the spoken text that is in no clause yet
    _cutter: ClauseCutter = field(init=False)
    _text_over: bool = False
    _heard_samples: int | None = None  # where it was truncated; None: nowhere
    _lost: bool = False

    def __post_init__(self) -> None:
        self._cutter = ClauseCutter(self.prepared)

    @property
    def samples(self) -> int:
        return sum(clause.samples for clause in self._clauses)

    @property
    def duration_ms(self) -> int:
        """Rounded up, like clients that count what they have played."""
        return -(-self.samples * 1000 // CLIENT_RATE_HZ)

    @property
    def is_cut(self) -> bool:
        return self._heard_samples is not None

    @property
    def heard_ms(self) -> int:
        """How much of it counts as heard, in ms, rounded up as `duration_ms` is."""
        heard = self.samples if self._heard_samples is None else self._heard_samples
        return -(-heard * 1000 // CLIENT_RATE_HZ)

    @property
    def over(self) -> bool:
        """All text has arrived and been spoken."""
        return self._text_over and all(clause.said for clause in self._clauses)

    def words(self, text: str, now_ns: int, *, hurry: bool = True) -> list[tuple[int, str]]:
        """Add text of the response; returns the (number, text) of each complete clause. Without
        `hurry`, more text or the end follows at once: the first clause is worth waiting for."""
        self._written += text
        clauses = self._cutter.push(self._letters(self._spoken.push(text)))
        if hurry and not clauses:
            clauses = self._cutter.hurry()
        return self._give(clauses, now_ns)

    def end(self, now_ns: int) -> list[tuple[int, str]]:
        """No more text follows; returns the last clauses."""
        self._text_over = True
        rest = self._cutter.push(self._letters(self._spoken.flush()))
        return self._give([*rest, *self._cutter.flush()], now_ns)

    def give_up(self, problem: str) -> None:
        """The voice is lost: the remaining text will not be spoken."""
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
        """Nothing after `heard_samples` was heard; returns the text up to there. A second cut can
        only shorten it further. Words within a clause are assumed to be spoken at an even pace. Of
        a clause whose sound has come in part, the rest is estimated by the length of its text."""
        before = self.samples if self._heard_samples is None else self._heard_samples
        self._heard_samples = min(before, heard_samples)
        return self.heard_text()

    def heard_text(self) -> str:
        """The written text up to where it was cut; whole words of what was spoken."""
        if self._heard_samples is None:
            return self._written
        left = self._heard_samples
        if self.over and 0 < self.samples <= left:  # including unspoken text at the end
            return self._written.rstrip()
        at = 0
        for clause in self._clauses:
            if left <= 0 or (not clause.samples and not clause.said):
                break
            if left < clause.whole_samples:
                letters = _begin(clause.text, left / clause.whole_samples)
                at = clause.ends[letters - 1] if letters else at
                break
            at = clause.ends[-1]
            left -= clause.samples
        return self._written[:at].rstrip()

    def _letters(self, said: list[Said]) -> str:
        self._ends += [end for _, end in said]
        return "".join(letter for letter, _ in said)

    def _give(self, texts: list[str], now_ns: int) -> list[tuple[int, str]]:
        """The clauses for the worker: those with anything to speak."""
        given = []
        for text in texts:
            ends, self._ends = self._ends[: len(text)], self._ends[len(text) :]
            silent = not any(letter.isalnum() for letter in text)
            if not silent and not self._lost:
                given.append((len(self._clauses), text))
            self._clauses.append(_Clause(text, ends, said=silent or self._lost))
        if given and self.first_clause_ns is None:
            self.first_clause_ns = now_ns
        return given


def _begin(text: str, share: float) -> int:
    """The number of letters of the whole words within the first `share` of a text."""
    end = int(len(text) * share)
    if end >= len(text):
        return len(text)
    return len(text[: text.rfind(" ", 0, end + 1) + 1].rstrip()) if end > 0 else 0
