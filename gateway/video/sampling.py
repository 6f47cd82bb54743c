"""Sampling policies: which frames of a camera or a video the model sees.

An image costs an encoder pass and about twenty tokens of context, and most camera frames look like
the one before. A policy decides for each frame whether to keep it, and why not:

    judge(frame) ─▶ FrameVerdict changes nothing; without a thumbnail it judges only by time, so
                                 that a frame that comes too soon need not be decoded
    look(frame)                  the frame was decoded; it is judged next
    keep(frame)                  the frame was kept
    begin_turn()                 a turn began, or is over: frames are counted from 0 again

Policies have no clock: times are the frames' own, in ms on any one clock, never decreasing. They
are causal: a frame is judged when it comes, and none waits for a later one. What needs a frame's
content in more detail is in `content_sampling`; files, whose frames are all known, are sampled by
`segments`.

"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

Thumbnail = npt.NDArray[np.uint8]
"""[THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH] luma: what frames are compared by."""

THUMBNAIL_WIDTH = 32
THUMBNAIL_HEIGHT = 18
_LUMA_MOST = 255.0
# Camera timing varies: a frame may be this fraction of a period early or late without changing the
# phase, so that errors do not accumulate.
_SLACK_SHARE = 0.2


class FrameVerdict(StrEnum):
    """The decision about a frame. The values are labels of the metrics."""

    KEEP = "kept"
    TOO_SOON = "too_soon"
    UNCHANGED = "unchanged"
    BLURRED = "blurred"
    """A sharper one was seen just before; the next sharp one is kept, or any after a short wait."""
    ENOUGH = "enough"
    """The turn has reached its frame limit, or the time between two turns has."""
    REFUSED = "refused"
    """The engine is so busy or its memory so full that it looks at nothing (`ladder`)."""


@dataclass(frozen=True, slots=True)
class FrameScores:
    """What `scores.score` computes of a decoded frame: its `sharpness`, and `content` and `flow`,
    by which it differs from the frame looked at before; None: it is the first. `pixels`: its small
    copy, which the next frame is compared with."""

    sharpness: float
    content: float | None
    flow: float | None
    pixels: bytes


@dataclass(frozen=True, slots=True)
class SampledFrame:
    """One frame to judge. `thumbnail` None: not decoded yet. `scores` None: not decoded, or no
    policy of the session reads them."""

    at_ms: float
    thumbnail: Thumbnail | None = None
    scores: FrameScores | None = None


class FrameSampler(Protocol):
    """A policy; see the module's docstring."""

    def judge(self, frame: SampledFrame) -> FrameVerdict: ...
    def look(self, frame: SampledFrame) -> None: ...
    def keep(self, frame: SampledFrame) -> None: ...
    def begin_turn(self) -> None: ...


class Uniform:
    """At most `fps` frames per second on average, and `max_frames` per turn (0: no limit); the
    first `min_frames` of a turn are kept however close they are, so that a short turn has some."""

    def __init__(self, fps: float, min_frames: int = 0, max_frames: int = 0) -> None:
        assert fps > 0
        assert min_frames >= 0
        self.fps = fps
        self.min_frames = min_frames
        self.max_frames = max_frames
        self._due_ms: float | None = None
        self._slack_ms = 0.0
        self._kept = 0

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        if self.max_frames and self._kept >= self.max_frames:
            return FrameVerdict.ENOUGH
        if self._kept < self.min_frames or self._due_ms is None:
            return FrameVerdict.KEEP
        return (
            FrameVerdict.KEEP
            if frame.at_ms >= self._due_ms - self._slack_ms
            else FrameVerdict.TOO_SOON
        )

    def look(self, frame: SampledFrame) -> None:
        pass  # it goes by time alone

    def keep(self, frame: SampledFrame) -> None:
        self._kept += 1
        beat_ms = frame.at_ms
        if self._due_ms is not None:
            beat_ms = max(self._due_ms, frame.at_ms - self._slack_ms)
        period_ms = 1000 / self.fps
        self._due_ms, self._slack_ms = beat_ms + period_ms, _SLACK_SHARE * period_ms

    def begin_turn(self) -> None:
        self._kept = 0


class Motion:
    """Frames that differ from the last kept one: mean absolute difference of luma (L1) of at least
    `threshold`, 0 to 1; and one every `max_gap_ms` whatever it shows (0: disabled)."""

    def __init__(self, threshold: float, max_gap_ms: float = 0.0) -> None:
        assert 0 <= threshold <= 1
        self._threshold, self._max_gap_ms = threshold, max_gap_ms
        self._last: SampledFrame | None = None

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        last = self._last
        if last is None or last.thumbnail is None or frame.thumbnail is None:
            return FrameVerdict.KEEP
        if self._max_gap_ms and frame.at_ms - last.at_ms >= self._max_gap_ms:
            return FrameVerdict.KEEP
        moved = difference(last.thumbnail, frame.thumbnail) >= self._threshold
        return FrameVerdict.KEEP if moved else FrameVerdict.UNCHANGED

    def look(self, frame: SampledFrame) -> None:
        pass  # it compares with the last kept one

    def keep(self, frame: SampledFrame) -> None:
        self._last = frame

    def begin_turn(self) -> None:
        pass  # a new turn does not change what the model has seen


class Every:
    """Keeps frames that all `policies` keep; the first objection is the verdict."""

    def __init__(self, policies: Sequence[FrameSampler]) -> None:
        self._policies = tuple(policies)

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        verdicts = (policy.judge(frame) for policy in self._policies)
        return next(
            (verdict for verdict in verdicts if verdict is not FrameVerdict.KEEP), FrameVerdict.KEEP
        )

    def look(self, frame: SampledFrame) -> None:
        for policy in self._policies:
            policy.look(frame)

    def keep(self, frame: SampledFrame) -> None:
        for policy in self._policies:
            policy.keep(frame)

    def begin_turn(self) -> None:
        for policy in self._policies:
            policy.begin_turn()


def difference(one: Thumbnail, other: Thumbnail) -> float:
    """Mean absolute difference of luma, 0 to 1."""
    return float(np.abs(one.astype(np.int16) - other).mean()) / _LUMA_MOST
