"""When a video's frames are shown, where its file is damaged or its timestamps are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from av.video.frame import VideoFrame

from headstart.talk.media.container import Tally
from headstart.talk.media.losses import Losses

PICTURES = "pictures"
BACKWARDS_S = 1.0
"""Timestamps that go back further have restarted; smaller steps back are disorder."""
RESTART_S = 1 / 25
"""From the last frame before timestamps restart to the first one behind."""


@dataclass
class FrameTimes:
    """Places the frames of one stream one behind the other; notes what is lost between them.

    Attributes:
        tally: of the stream's decoder.
        losses: gets the stretches of which nothing could be decoded.
        offset_s: what makes a timestamp a time.
        begins_s: where a loss before the first frame begins.
        lasts_s: from a frame to one behind it that has no timestamp.
        least_s: no frame is earlier.
        last_s: time of the newest frame; None: there was none.
    """

    tally: Tally
    losses: Losses
    offset_s: float
    begins_s: float = 0.0
    lasts_s: float = RESTART_S
    least_s: float = -math.inf
    last_s: float | None = None
    _corrupt: int = 0
    _is_bad: bool = False  # something behind the newest frame was lost

    def is_damaged(self, frame: VideoFrame) -> bool:
        """Whether this frame, the decoder's newest, is not to be shown."""
        if frame.is_corrupt or self.tally.corrupt > self._corrupt:
            self._corrupt, self._is_bad = self.tally.corrupt, True
        return frame.is_corrupt

    def break_off(self) -> None:
        """What lies behind the newest frame could not be read."""
        self._is_bad = True

    def has_passed(self, stamp_s: float) -> bool:
        """Whether a frame with this timestamp, or a later one, has been placed."""
        return self.last_s is not None and stamp_s + self.offset_s <= self.last_s

    def place(self, stamp_s: float | None) -> float:
        """The time in s of a frame with this timestamp; None: it has none."""
        before_s = self.last_s
        if stamp_s is not None:
            at_s = stamp_s + self.offset_s
        else:
            at_s = 0.0 if before_s is None else before_s + self.lasts_s
        if before_s is not None and at_s < before_s - BACKWARDS_S:
            self.offset_s += before_s + RESTART_S - at_s  # another link, or a new beginning
            at_s = before_s + RESTART_S
        at_s = max(at_s, self.least_s)
        if self._is_bad:
            self.losses.add(PICTURES, before_s or self.begins_s, at_s)
            self._is_bad = False
        self.last_s = at_s
        return at_s

    def end(self, end_s: float) -> None:
        """There are no more frames before `end_s`."""
        if self.last_s is None or self._is_bad or self.tally.corrupt > self._corrupt:
            self.losses.add(PICTURES, self.last_s or self.begins_s, end_s)
