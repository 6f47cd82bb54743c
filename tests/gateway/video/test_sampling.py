"""gateway.video.sampling: which pictures the model sees, on real videos and in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.video.ladder import Ladder, Paced
from headstart.gateway.video.sampling import (
    THUMBNAIL_HEIGHT,
    THUMBNAIL_WIDTH,
    Every,
    FrameSampler,
    FrameVerdict,
    Motion,
    SampledFrame,
    Uniform,
    difference,
)
from tests.gateway.video import videos

FAST, SLOW = 1.5, 0.1  # shares of a chunk's own time: too busy, and idle


def flat(luma: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.full((THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH), luma, np.uint8)


def kept(sampler: FrameSampler, frames: Iterable[SampledFrame]) -> list[SampledFrame]:
    """What a sampler keeps of `frames`, asked as a session asks: by time alone first."""
    chosen = []
    for frame in frames:
        if sampler.judge(SampledFrame(frame.at_ms)) is not FrameVerdict.KEEP:
            assert sampler.judge(frame) is not FrameVerdict.KEEP
        elif sampler.judge(frame) is FrameVerdict.KEEP:
            sampler.keep(frame)
            chosen.append(frame)
    return chosen


def at(times_ms: Sequence[float]) -> list[SampledFrame]:
    return [
        SampledFrame(time_ms, flat(number % 2 * 255)) for number, time_ms in enumerate(times_ms)
    ]


@pytest.mark.parametrize("name", videos.NAMES)
@pytest.mark.parametrize("fps", [0.5, 1.0, 4.0])
def test_uniform_takes_its_rate_of_a_video(name: str, fps: float) -> None:
    """One frame every 1 / fps, to within a frame of the video, and so many in all."""
    frames = videos.frames(name)
    chosen = kept(Uniform(fps), frames)
    length_s = (frames[-1].at_ms - frames[0].at_ms) / 1000
    assert len(chosen) == pytest.approx(length_s * fps + 1, abs=1.2)
    gaps_ms = np.diff([frame.at_ms for frame in chosen])
    assert (abs(gaps_ms - 1000 / fps) <= 0.2 * 1000 / fps + 45).all()


def test_uniform_bears_a_camera_that_is_not_exact() -> None:
    """One frame a second that comes up to 0.1 s early or late is kept, every one of them."""
    random = np.random.default_rng(5)
    frames = at((np.arange(200) * 1000 + random.uniform(-100, 100, 200)).tolist())
    assert len(kept(Uniform(1.0), frames)) == len(frames)


def test_a_turn_has_at_least_and_at_most_so_many() -> None:
    """The first `min_frames` of a turn come whatever the rate; after `max_frames` it is enough,
    until the next turn."""
    sampler = Uniform(1.0, min_frames=3, max_frames=5)
    frames = at([n * 100 for n in range(300)])
    first = kept(sampler, frames[:150])
    assert [frame.at_ms for frame in first[:3]] == [0, 100, 200]
    assert len(first) == 5
    assert sampler.judge(frames[150]) is FrameVerdict.ENOUGH
    sampler.begin_turn()
    assert [frame.at_ms for frame in kept(sampler, frames[150:])[:3]] == [15_000, 15_100, 15_200]


@pytest.mark.parametrize("name", videos.NAMES)
def test_motion_keeps_what_differs_and_nothing_else(name: str) -> None:
    """On a real video: each kept frame is at least the threshold away from the kept one before,
    each dropped frame less than that; and a still picture is kept once."""
    frames, threshold = videos.frames(name), 0.03
    sampler, last = Motion(threshold), None
    for frame in frames:
        verdict = sampler.judge(frame)
        if last is not None:
            assert last.thumbnail is not None
            assert frame.thumbnail is not None
            moved = difference(last.thumbnail, frame.thumbnail) >= threshold
            assert verdict is (FrameVerdict.KEEP if moved else FrameVerdict.UNCHANGED)
        if verdict is FrameVerdict.KEEP:
            sampler.keep(frame)
            last = frame
    still = [SampledFrame(n * 40, frames[0].thumbnail) for n in range(500)]
    assert len(kept(Motion(threshold), still)) == 1
    assert 1 < len(kept(Motion(threshold), frames)) < len(frames)


def test_a_still_picture_is_shown_again_after_the_longest_gap() -> None:
    """With `max_gap_ms` something is kept at least that often."""
    still = [SampledFrame(n * 500, flat(80)) for n in range(100)]
    times = [frame.at_ms for frame in kept(Motion(0.02, max_gap_ms=5_000), still)]
    assert times == list(range(0, 50_000, 5_000))


@given(
    gaps_ms=st.lists(st.floats(0, 5_000), min_size=1, max_size=80),
    fps=st.floats(0.2, 10),
    lumas=st.lists(st.integers(0, 255), min_size=80, max_size=80),
    loads=st.lists(st.sampled_from([FAST, SLOW, 0.6]), min_size=80, max_size=80),
)
def test_no_policy_goes_above_its_rate(
    gaps_ms: list[float], fps: float, lumas: list[int], loads: list[float]
) -> None:
    """Whatever comes when, over any stretch no more frames are kept than the rate allows and one,
    and order is kept; all policies together keep no more than any alone would allow."""
    ladder = Ladder()
    sampler = Every([Paced(ladder, fps), Motion(0.05, max_gap_ms=3_000)])
    chosen, now_ms = [], 0.0
    for gap_ms, luma, share in zip(gaps_ms, lumas, loads, strict=False):
        now_ms += gap_ms
        ladder.load(share, round(now_ms * 1e6))
        chosen += kept(sampler, [SampledFrame(now_ms, flat(luma))])
    times = [frame.at_ms for frame in chosen]
    assert times == sorted(times)
    for first in range(len(times)):
        for last in range(first, len(times)):
            allowed = (times[last] - times[first]) / 1000 * fps + 1 + 0.4
            assert last - first + 1 <= allowed + 1e-6
