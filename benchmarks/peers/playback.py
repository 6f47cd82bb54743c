"""What a person hears of an answer whose sound arrives in pieces and is played as it comes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

AUDIBLE_DBFS = -45.0
FRAME_S = 0.01
FULL_SCALE = 32768.0


@dataclass
class Playback:
    """Sound of one answer, s16 mono at `rate_hz`, played from its first piece on; where the next
    piece is late there is a gap. Times are seconds of the caller's clock."""

    rate_hz: int
    began_at_s: float | None = None
    first_audible_at_s: float | None = None
    ends_at_s: float | None = None
    stopped: bool = False

    def add(self, at_s: float, sound: npt.NDArray[np.int16]) -> None:
        """A piece has arrived; pieces after a stop are not played."""
        if self.stopped or not len(sound):
            return
        begins_s = at_s if self.ends_at_s is None else max(at_s, self.ends_at_s)
        if self.began_at_s is None:
            self.began_at_s = begins_s
        if self.first_audible_at_s is None:
            offset = first_audible_s(sound, self.rate_hz)
            if offset is not None:
                self.first_audible_at_s = begins_s + offset
        self.ends_at_s = begins_s + len(sound) / self.rate_hz

    def stop(self, at_s: float) -> None:
        """Nothing is heard after `at_s`."""
        self.stopped = True
        if self.ends_at_s is not None:
            self.ends_at_s = min(self.ends_at_s, at_s)
        if self.first_audible_at_s is not None and self.first_audible_at_s >= at_s:
            self.first_audible_at_s = None

    def heard_s(self, until_s: float) -> float:
        """Time between its first audible sample and its end, or `until_s` if that is sooner."""
        if self.first_audible_at_s is None or self.ends_at_s is None:
            return 0.0
        return max(0.0, min(self.ends_at_s, until_s) - self.first_audible_at_s)

    def played_ms(self, at_s: float) -> int:
        """How much of it has been played at `at_s`, as `conversation.item.truncate` wants it."""
        if self.began_at_s is None or self.ends_at_s is None:
            return 0
        return max(0, int((min(at_s, self.ends_at_s) - self.began_at_s) * 1000))


def first_audible_s(sound: npt.NDArray[np.int16], rate_hz: int) -> float | None:
    """Where the first 10 ms above -45 dBFS begin; None: nowhere. The last frame may be shorter."""
    step = round(rate_hz * FRAME_S)
    for start in range(0, len(sound), step):
        frame = sound[start : start + step].astype(np.float64) / FULL_SCALE
        if 10 * np.log10(max(float((frame**2).mean()), 1e-10)) > AUDIBLE_DBFS:
            return start / rate_hz
    return None
