"""The newest sound of one utterance as it came in, for hearing it again as a whole.

Kept as samples, not as frames: what a frame is to the last bit depends on how the sound was cut
into chunks, and the final words must not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headstart.engine.asr.mel import SAMPLE_RATE_HZ

Pcm = npt.NDArray[np.float32]

LONGEST_S = 28
"""As much is heard again. With silence behind it, it still fits into Whisper's 30 s."""

LONGEST_SAMPLES = LONGEST_S * SAMPLE_RATE_HZ


@dataclass(frozen=True)
class Mark:
    """A place between words: so many `words` of the utterance lie before `sample`."""

    sample: int = 0
    words: int = 0


@dataclass
class Recording:
    """`samples` came in; held are those from the first of `marks` on, at most `LONGEST_S` and what
    lies between two marks. `marks`: where hearing again may begin, in order."""

    samples: int = 0
    marks: list[Mark] = field(default_factory=lambda: [Mark()])
    _pieces: list[Pcm] = field(default_factory=list)

    def push(self, pcm: Pcm) -> None:
        """Take in [samples] that follow on what is here."""
        self._pieces.append(pcm.copy())
        self.samples += len(pcm)
        self._forget()

    def mark(self, sample: int, words: int) -> None:
        """Note where words were parted; later than all marks so far."""
        self.marks.append(Mark(sample, words))
        self._forget()

    def part(self, sample: int, words: int) -> None:
        """Begin anew at `sample`: what was said before it is heard for good, in so many `words`."""
        self.marks[:] = [Mark(sample, words)]
        self._forget()

    @property
    def start(self) -> Mark:
        """Where hearing again begins."""
        return self.marks[0]

    def holds(self, end: int) -> bool:
        """Whether all sound from `start` up to sample `end` is still here, and there is any."""
        return self.start.sample < end and self.samples - self.start.sample <= LONGEST_SAMPLES

    def whole(self, end: int | None = None) -> Pcm:
        """The sound behind `start`, up to sample `end` or all, of which the last `LONGEST_S`."""
        if not self.samples:
            return np.empty(0, np.float32)
        sound = np.concatenate(self._pieces)[-self._wanted :]
        return sound if end is None else sound[: max(len(sound) - (self.samples - end), 0)]

    @property
    def _wanted(self) -> int:
        return min(self.samples - self.start.sample, LONGEST_SAMPLES)

    def _forget(self) -> None:
        """Drop marks that are too far back, and the sound before the first that is left."""
        while len(self.marks) > 1 and self.samples - self.start.sample > LONGEST_SAMPLES:
            del self.marks[0]
        held = sum(map(len, self._pieces))
        while self._pieces and held - len(self._pieces[0]) >= self._wanted:
            held -= len(self._pieces.pop(0))
