"""Causal sampling policies that go by a frame's content: `Scene`, `Flow` and `Sharp`.

They read the scores of decoded frames (`headstart.gateway.video.scores`) and stand behind a policy
that limits the rate (`sampling.Every`): that one skips frames by time, undecoded; these look at the
frames that come once the next one is due, until one is kept. The middle, the last and the sharpest
frame of a stretch that is not over are not known yet, so each has a causal stand-in; in a file they
are exact (`file_sampling`).

"""

from __future__ import annotations

from collections import deque

from headstart.gateway.video.sampling import FrameVerdict, SampledFrame

SETTLED_MS = 2_000.0
"""A scene that has lasted so long is shown a second time: transitions and focus are over."""
FLOW_NOISE = 0.004
"""Displacements below, in widths of the frame and from one look to the next, are a camera's noise:
a quarter of a pixel of the small copy."""
SHARP_ENOUGH = 0.9
"""A frame counts as sharp from this share of the sharpest of the last `SHARP_SPAN_MS` on."""
SHARP_SPAN_MS = 3_000.0
SHARP_LOOKS = 16
"""Looks remembered; at most `LOOKS_PER_WAIT` are made in a wait, and waits are half a second."""
SHARP_WAIT_MS = 500.0
LOOKS_PER_WAIT = 5


class Scene:
    """The first frame of each scene, a second one when the scene has lasted `SETTLED_MS`, and one
    every `max_gap_ms` while it goes on (0: never so). A scene begins where the content score is at
    least `threshold`, 0 to 255."""

    def __init__(self, threshold: float, max_gap_ms: float = 0.0) -> None:
        assert 0 <= threshold <= 255
        self._threshold, self._max_gap_ms = threshold, max_gap_ms
        self._began_ms = 0.0
        self._shown = 0  # frames kept of this scene
        self._last_ms: float | None = None  # when the newest frame was kept; None: none yet

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        if frame.thumbnail is None or self._last_ms is None or self._shown == 0:
            return FrameVerdict.KEEP
        settled = self._shown == 1 and frame.at_ms - self._began_ms >= SETTLED_MS
        aged = self._max_gap_ms > 0 and frame.at_ms - self._last_ms >= self._max_gap_ms
        return FrameVerdict.KEEP if settled or aged else FrameVerdict.UNCHANGED

    def look(self, frame: SampledFrame) -> None:
        content = None if frame.scores is None else frame.scores.content
        if content is None or content >= self._threshold:
            self._began_ms, self._shown = frame.at_ms, 0

    def keep(self, frame: SampledFrame) -> None:
        self._shown += 1
        self._last_ms = frame.at_ms

    def begin_turn(self) -> None:
        pass  # a new turn does not change what the model has seen


class Flow:
    """Frames from which things have moved on by `threshold` since the last kept one: the optical
    flow from look to look, added up, in widths of the frame; and one every `max_gap_ms` whatever it
    shows (0: never so). Displacements are averaged over the frame, so that a hand in front of a
    still room counts by its size."""

    def __init__(self, threshold: float, max_gap_ms: float = 0.0) -> None:
        assert threshold >= 0
        self._threshold, self._max_gap_ms = threshold, max_gap_ms
        self._moved = 0.0
        self._last_ms: float | None = None

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        if frame.thumbnail is None or self._last_ms is None or self._moved >= self._threshold:
            return FrameVerdict.KEEP
        aged = self._max_gap_ms > 0 and frame.at_ms - self._last_ms >= self._max_gap_ms
        return FrameVerdict.KEEP if aged else FrameVerdict.UNCHANGED

    def look(self, frame: SampledFrame) -> None:
        moved = None if frame.scores is None else frame.scores.flow
        if moved is not None and moved >= FLOW_NOISE:
            self._moved += moved

    def keep(self, frame: SampledFrame) -> None:
        self._moved, self._last_ms = 0.0, frame.at_ms

    def begin_turn(self) -> None:
        pass  # as for `Scene`


class Sharp:
    """Sharp frames: at least `SHARP_ENOUGH` of the sharpest of the last `SHARP_SPAN_MS`. If none
    comes within `SHARP_WAIT_MS` of the first look, the next one is kept as it is: a camera that
    moves all the time is seen, too. Frames between two looks are not decoded."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, float]] = deque(maxlen=SHARP_LOOKS)  # ms, sharpness
        self._waits_from_ms: float | None = None  # the first look behind the last kept frame

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        if frame.thumbnail is None:
            return self._by_time(frame.at_ms)
        if frame.scores is None or self._waits_from_ms is None:
            return FrameVerdict.KEEP
        recent = [value for at_ms, value in self._looks if frame.at_ms - at_ms <= SHARP_SPAN_MS]
        sharp = frame.scores.sharpness >= SHARP_ENOUGH * max(recent, default=0.0)
        waited = frame.at_ms - self._waits_from_ms >= SHARP_WAIT_MS
        return FrameVerdict.KEEP if sharp or waited else FrameVerdict.BLURRED

    def _by_time(self, at_ms: float) -> FrameVerdict:
        if self._waits_from_ms is None or not self._looks:
            return FrameVerdict.KEEP
        looked_ms = self._looks[-1][0]
        soon = at_ms - looked_ms < SHARP_WAIT_MS / LOOKS_PER_WAIT
        return FrameVerdict.TOO_SOON if soon else FrameVerdict.KEEP

    def look(self, frame: SampledFrame) -> None:
        if frame.scores is None:
            return
        self._looks.append((frame.at_ms, frame.scores.sharpness))
        if self._waits_from_ms is None:
            self._waits_from_ms = frame.at_ms

    def keep(self, frame: SampledFrame) -> None:
        self._waits_from_ms = None

    def begin_turn(self) -> None:
        pass  # what was sharp before is a measure still
