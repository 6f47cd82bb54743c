"""Which frames of a file's segments the model sees, in two passes.

    first pass    Scanner, or scan(frames)           ─▶ Candidates: scores, no pixels to speak of
                  RunningBudget.grant(candidates)    ─▶ how many frames the segment gets
    second pass   choose(policy, candidates, frames) ─▶ Choice: which candidates, and why so

A file of any length is read once, segment by segment: a budget is shared by what is known so far.

A candidate takes some 7 kB (`scores.LOOK_BYTES`), so a segment's frames need not be held: the
caller decodes it again, or keeps compressed pictures. All of a segment is known when its frames are
chosen, so the middle and the last frame of a scene are exact here, which the causal policies of a
camera (`content_sampling`) can only guess.

Scenes are found by PySceneDetect's `ContentDetector`, driven with every frame and the frames' own
times, so that neither a variable frame rate nor the rate of candidates matters.

"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import av
import cv2
import numpy as np
import numpy.typing as npt
from av.video.reformatter import Interpolation
from scenedetect.common import FrameTimecode, Timecode
from scenedetect.detectors import ContentDetector

from headstart.gateway.protocol.frame_pixels import flatten
from headstart.gateway.video import scores
from headstart.gateway.video.sampling import FrameScores

FilePolicy = Literal["uniform", "motion", "change", "scene", "flow", "sharp"]
POLICIES: tuple[FilePolicy, ...] = get_args(FilePolicy)

MIN_FPS = 0.5
MAX_FPS = 4.0
"""Frames a second that a segment gets, at least and at most, if the budget allows: the rule of the
adaptive sampling that was compared with uniform 2 fps on ActivityNet and NextQA."""
SCENE_THRESHOLD = 27.0
SCENE_LEAST_S = 0.6
"""Cuts closer together are one: flashes, and the frames of a transition."""
NEW = 0.012
"""Difference of luma from which on a frame shows something that the one before did not."""
STILL = 0.002
"""Motion or flow added to each candidate's, so that a stretch where nothing moves has a share."""
_MS = Fraction(1, 1000)
_HALF_MS = 0.0005  # the detector's times are whole ms
_LUMA_MOST = 255.0
# Only what the detector reports in frames would depend on it, and we read times.
_NOMINAL_FPS = 25.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A frame that may be chosen. `motion`: mean absolute difference of luma from the candidate
    before, 0 to 1; 0 for the first. `scene`: which one it is of, from 0 on."""

    at_s: float
    motion: float
    scores: FrameScores
    scene: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """`indexes` of the chosen candidates, ascending. `policy`: the one that chose them, which is
    not the wanted one if that does not apply; `why`: a sentence on what was done."""

    indexes: tuple[int, ...]
    policy: str
    why: str


class Scanner:
    """The first pass over a file: `see` each frame in time order. Frames must all be seen, also
    those that are no candidates, because a cut shows from one frame to the next. It holds the last
    candidate's scores and the times of the cuts, whatever the file's length; a caller that converts
    frames by itself takes `is_due`, `score` and, if it wants scenes, `watch_for_cuts`."""

    def __init__(self, fps: float = MAX_FPS) -> None:
        self._period_s = 1 / fps
        self._due_s = -math.inf
        self._start_s: float | None = None
        self._pixels = b""
        self._cuts_s: list[float] = []
        self._detector = ContentDetector(threshold=SCENE_THRESHOLD, min_scene_len=SCENE_LEAST_S)

    def see(self, at_s: float, frame: av.VideoFrame) -> Candidate | None:
        """Some tenths of a millisecond for a small frame; one or two for a candidate, which is
        returned, of scene 0. One that cannot be converted is left out."""
        try:
            self.watch_for_cuts(at_s, frame)
            return self.score(at_s, small_rgb(frame)) if self.is_due(at_s) else None
        except (av.error.FFmpegError, ValueError):
            return None

    def in_scenes(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """With the scenes found so far. A cut is found up to `SCENE_LEAST_S` after its time."""
        return [
            dataclasses.replace(c, scene=bisect.bisect_right(self._cuts_s, c.at_s))
            for c in candidates
        ]

    def is_due(self, at_s: float) -> bool:
        """Whether a frame of that time is to be a candidate."""
        return at_s >= self._due_s

    def score(self, at_s: float, rgb: npt.NDArray[np.uint8]) -> Candidate:
        """A frame that is due as a candidate, of scene 0; the next one is due a period later."""
        beat_s = self._due_s if at_s - self._due_s < self._period_s else at_s
        self._due_s = beat_s + self._period_s
        scored = scores.score(rgb, self._pixels)
        motion = difference(self._pixels, scored.pixels) if self._pixels else 0.0
        self._pixels = scored.pixels
        return Candidate(at_s, motion, scored)

    def watch_for_cuts(self, at_s: float, frame: av.VideoFrame) -> None:
        """Raises FFmpegError or ValueError for a frame that cannot be converted."""
        small = frame.reformat(
            scores.LOOK_WIDTH, scores.LOOK_HEIGHT, interpolation=Interpolation.AREA, threads=1
        )
        bgr = flatten(small).reformat(format="bgr24", threads=1).to_ndarray()
        if self._start_s is None:
            self._start_s = at_s
        at_ms = max(0, round((at_s - self._start_s) * 1000))
        timecode = FrameTimecode(Timecode(at_ms, _MS), _NOMINAL_FPS)
        for cut in self._detector.process_frame(timecode, bgr):
            bisect.insort(self._cuts_s, self._start_s + cut.seconds - _HALF_MS)


def scan(frames: Iterable[tuple[float, av.VideoFrame]], fps: float = MAX_FPS) -> list[Candidate]:
    """The candidates of a segment: `fps` of its frames a second, given with their times in s."""
    scanner = Scanner(fps)
    found = [scanner.see(at_s, frame) for at_s, frame in frames]
    return scanner.in_scenes([candidate for candidate in found if candidate is not None])


def small_rgb(frame: av.VideoFrame) -> npt.NDArray[np.uint8]:
    """[height, width, 3] of a video frame, on white, as small as the scores need it. Raises
    FFmpegError or ValueError for a frame that cannot be converted."""
    scale = min(1.0, scores.SHARP_SIDE_PX / max(frame.width, frame.height))
    width, height = (max(1, round(side * scale)) for side in (frame.width, frame.height))
    small = frame.reformat(width, height, interpolation=Interpolation.AREA, threads=1)
    rgb = flatten(small).reformat(format="rgb24", threads=1)
    return np.asarray(rgb.to_ndarray(), np.uint8)


class RunningBudget:
    """Frames for the segments of a file that is read once, from its beginning: `per_s` frames a
    second on average, more for a segment in which more moves than in those before it.

    A segment gets between `MIN_FPS` and `MAX_FPS`, and never more than the frames that were earned
    up to its end and are not spent; of what earlier segments left over, as many again as it has
    earned itself. Below `MIN_FPS` on average, the minimum is half of the average.
    """

    def __init__(self, per_s: float) -> None:
        assert per_s > 0
        self.per_s = per_s
        self._saved = 0.0
        self._moved, self._seconds = 0.0, 0.0

    def grant(self, candidates: Sequence[Candidate], lasts_s: float) -> int:
        """How many frames a segment of that length gets; to be followed by `spend`."""
        lasts_s = max(lasts_s, 1 / MAX_FPS)
        moved = sum(c.motion + STILL for c in candidates)
        self._moved, self._seconds = self._moved + moved, self._seconds + lasts_s
        usual = self._moved / self._seconds * lasts_s
        earned = self.per_s * lasts_s
        self._saved = min(self._saved, earned) + earned
        wanted = earned * moved / usual if usual else earned
        least = min(MIN_FPS * lasts_s, earned / 2)
        most = min(self._saved, MAX_FPS * lasts_s, float(len(candidates)))
        # A short file, or the first segment, gets one at least.
        return max(min(round(max(wanted, least)), math.floor(most + 1e-9)), min(1, len(candidates)))

    def spend(self, frames: int) -> None:
        """So many frames of the segment were taken; the others are left to later ones."""
        self._saved = max(0.0, self._saved - frames)


def choose(policy: FilePolicy, candidates: Sequence[Candidate], frames: int) -> Choice:
    """At most `frames` of a segment's candidates by one policy.

    uniform   evenly in time
    motion    evenly in what changes: more frames where luma moves more
    change    of each stretch of 1 / `MIN_FPS` the frame that differs most from the one before, then
              others that do; no two neighbours that show the same, so a still segment has one
    flow      evenly in movement, likewise by optical flow
    scene     the first, middle and last frame of each scene, thinned to `frames`: lasts go first,
              then firsts, then scenes, evenly; without a cut, evenly in time at `MIN_FPS`
    sharp     the sharpest frame of each second, or of as many equal stretches as there are `frames`
    """
    assert policy in POLICIES, policy
    assert frames >= 0
    if not candidates or not frames:
        why = "no frame could be decoded" if not candidates else "the budget is 0 frames"
        return Choice((), policy, why)
    if len(candidates) == 1:
        return Choice((0,), policy, "there is one frame")
    return _WAYS[policy](candidates, frames)


def _uniform(candidates: Sequence[Candidate], frames: int) -> Choice:
    indexes = _evenly(_seconds(candidates), frames)
    return Choice(indexes, "uniform", f"{len(indexes)} frames evenly in time")


def _by_motion(candidates: Sequence[Candidate], frames: int) -> Choice:
    moved = [c.motion for c in candidates]
    return _by_path("motion", candidates, moved, frames)


def _by_change(candidates: Sequence[Candidate], frames: int) -> Choice:
    changed = [1.0, *(c.motion for c in candidates[1:])]
    stretches: dict[int, list[int]] = {}
    for index, candidate in enumerate(candidates):
        since_s = max(0.0, candidate.at_s - candidates[0].at_s)
        stretches.setdefault(int(since_s * MIN_FPS), []).append(index)
    newest = sorted(max(inside, key=lambda i: (changed[i], -i)) for inside in stretches.values())
    kept = _thinned(candidates, newest, frames)
    for index in sorted(set(range(len(candidates))) - set(kept), key=lambda i: (-changed[i], i)):
        if len(kept) >= frames or changed[index] < NEW:
            break
        place = bisect.bisect(kept, index)
        beside = kept[max(0, place - 1) : place + 1]
        if all(_apart(candidates, near, index) >= NEW for near in beside):
            kept.insert(place, index)
    return Choice(tuple(kept), "change", f"{len(kept)} frames that differ")


def _thinned(candidates: Sequence[Candidate], chosen: Sequence[int], frames: int) -> list[int]:
    """`chosen` without those that show the same as the one before, and then without those that are
    closest to their neighbours, in looks and in time; the first is kept."""
    kept = list(chosen[:1])
    for index in chosen[1:]:
        if _apart(candidates, kept[-1], index) >= NEW:
            kept.append(index)

    def worth(place: int) -> float:
        before, after = kept[place - 1], kept[min(place + 1, len(kept) - 1)]
        apart_s = candidates[after].at_s - candidates[before].at_s
        return _apart(candidates, before, kept[place]) * max(apart_s, 0.1)

    while len(kept) > frames:
        del kept[min(range(1, len(kept)), key=worth)]
    return kept


def _apart(candidates: Sequence[Candidate], one: int, other: int) -> float:
    return difference(candidates[one].scores.pixels, candidates[other].scores.pixels)


def _by_flow(candidates: Sequence[Candidate], frames: int) -> Choice:
    moved = [c.scores.flow or 0.0 for c in candidates]
    return _by_path("flow", candidates, moved, frames)


def _by_path(
    policy: str, candidates: Sequence[Candidate], moved: Sequence[float], frames: int
) -> Choice:
    if max(moved) < STILL:
        fewer = min(frames, _least(candidates))
        indexes = _evenly(_seconds(candidates), fewer)
        return Choice(indexes, "uniform", f"nothing moves: {len(indexes)} frames evenly in time")
    path = np.cumsum([step + STILL for step in moved])
    indexes = _evenly(path, frames)
    return Choice(indexes, policy, f"{len(indexes)} frames evenly in {policy}")


def _scene(candidates: Sequence[Candidate], frames: int) -> Choice:
    by_number: dict[int, list[int]] = {}
    for index, candidate in enumerate(candidates):
        by_number.setdefault(candidate.scene, []).append(index)
    scenes = list(by_number.values())
    if len(scenes) == 1:
        fewer = min(frames, _least(candidates))
        even = _evenly(_seconds(candidates), fewer)
        return Choice(even, "uniform", f"one scene: {len(even)} frames evenly in time")
    ways: tuple[Callable[[Sequence[int]], Iterable[int]], ...] = (
        lambda scene: (scene[0], _middle(candidates, scene), scene[-1]),
        lambda scene: (scene[0], _middle(candidates, scene)),
        lambda scene: (_middle(candidates, scene),),
    )
    for way in ways:
        indexes = sorted({index for scene in scenes for index in way(scene)})
        if len(indexes) <= frames:
            break
    found = f"{len(scenes)} scenes"
    if len(indexes) > frames:
        kept = np.linspace(0, len(indexes) - 1, frames).round().astype(int)
        indexes = sorted({indexes[i] for i in kept})
        found += f", of which {len(indexes)} fit the budget"
    return Choice(tuple(indexes), "scene", found)


def _sharp(candidates: Sequence[Candidate], frames: int) -> Choice:
    seconds = _seconds(candidates)
    length_s = float(seconds[-1] - seconds[0])
    stretches = max(1, min(frames, math.ceil(length_s)))
    places = np.minimum((seconds - seconds[0]) / max(length_s, 1e-9) * stretches, stretches - 1)
    best: dict[int, int] = {}
    for index, place in enumerate(places.astype(int).tolist()):
        held = best.get(place)
        if held is None or _sharpness(candidates, index) > _sharpness(candidates, held):
            best[place] = index
    indexes = tuple(sorted(best.values()))
    return Choice(indexes, "sharp", f"the sharpest frame of {stretches} stretches")


_WAYS: dict[FilePolicy, Callable[[Sequence[Candidate], int], Choice]] = {
    "uniform": _uniform,
    "motion": _by_motion,
    "change": _by_change,
    "flow": _by_flow,
    "scene": _scene,
    "sharp": _sharp,
}


def _evenly(path: npt.NDArray[np.float64], count: int) -> tuple[int, ...]:
    """Indexes of the points nearest to the middles of `count` equal parts of a path that never goes
    back. Fewer, where several parts have the same nearest point."""
    parts = path[0] + (np.arange(count) + 0.5) / count * (path[-1] - path[0])
    right = np.clip(np.searchsorted(path, parts), 1, len(path) - 1)
    nearest = np.where(parts - path[right - 1] <= path[right] - parts, right - 1, right)
    return tuple(sorted(set(nearest.tolist())))


def _seconds(candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
    return np.maximum.accumulate(np.array([c.at_s for c in candidates], np.float64))


def _length_s(candidates: Sequence[Candidate]) -> float:
    """With the last frame's own duration, taken to be the mean of the others'."""
    if len(candidates) < 2:
        return 0.0
    between_s = max(candidates[-1].at_s - candidates[0].at_s, 0.0)
    return between_s * len(candidates) / (len(candidates) - 1)


def _least(candidates: Sequence[Candidate]) -> int:
    return max(1, math.ceil(_length_s(candidates) * MIN_FPS))


def _middle(candidates: Sequence[Candidate], scene: Sequence[int]) -> int:
    """The frame nearest to the middle of the scene's time."""
    half_s = (candidates[scene[0]].at_s + candidates[scene[-1]].at_s) / 2
    return min(scene, key=lambda index: abs(candidates[index].at_s - half_s))


def _sharpness(candidates: Sequence[Candidate], index: int) -> float:
    return candidates[index].scores.sharpness


def difference(one: bytes, other: bytes) -> float:
    """Mean absolute difference of luma between the `pixels` of two scores, 0 to 1."""
    assert len(one) == len(other) == scores.LOOK_BYTES
    shape = scores.LOOK_HEIGHT, scores.LOOK_WIDTH, 3
    luma = [
        cv2.cvtColor(np.frombuffer(pixels, np.uint8).reshape(shape), cv2.COLOR_RGB2GRAY)
        for pixels in (one, other)
    ]
    return float(cv2.absdiff(luma[0], luma[1]).mean()) / _LUMA_MOST
