"""gateway.video.content_sampling: the causal policies that go by content, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.video.content_sampling import SETTLED_MS, SHARP_WAIT_MS, Flow, Scene, Sharp
from headstart.gateway.video.sampling import (
    Every,
    FrameSampler,
    FrameScores,
    FrameVerdict,
    SampledFrame,
    Uniform,
)
from headstart.gateway.video.scores import score
from tests.gateway.video import videos

Rgb = npt.NDArray[np.uint8]
BLANK = np.zeros((18, 32), np.uint8)


def told(at_ms: float, **scores: float | None) -> SampledFrame:
    """A frame with these scores; those that are not given are as of a still camera."""
    known = {"sharpness": 100.0, "content": 0.0, "flow": 0.0} | scores
    return SampledFrame(at_ms, BLANK, FrameScores(**known, pixels=b""))  # type: ignore[arg-type]


def kept(sampler: FrameSampler, frames: Iterable[SampledFrame]) -> list[float]:
    """Times in ms of what a sampler keeps, asked as a session asks: by time alone, then decoded."""
    chosen = []
    for frame in frames:
        if sampler.judge(SampledFrame(frame.at_ms)) is FrameVerdict.KEEP:
            sampler.look(frame)
            if sampler.judge(frame) is FrameVerdict.KEEP:
                sampler.keep(frame)
                chosen.append(frame.at_ms)
    return chosen


def shown(sampler: FrameSampler, pictures: Iterable[tuple[float, Rgb]]) -> list[float]:
    """As `kept`, of real pictures, each scored against the last one looked at."""
    before, chosen = b"", []
    for at_ms, rgb in pictures:
        if sampler.judge(SampledFrame(at_ms)) is not FrameVerdict.KEEP:
            continue
        scores = score(rgb, before)
        before = scores.pixels
        chosen += kept(sampler, [SampledFrame(at_ms, BLANK, scores)])
    return chosen


def one_after_the_other(step: int) -> tuple[list[tuple[float, Rgb]], list[float]]:
    """All videos as one film, and the times of its cuts."""
    film: list[tuple[float, Rgb]] = []
    cuts, start_ms = [], 0.0
    for name in videos.NAMES:
        part = list(videos.pictures(name, step))
        film += [(start_ms + at_ms, rgb) for at_ms, rgb in part]
        cuts.append(start_ms)
        start_ms = film[-1][0] + 40 * step
    return film, cuts[1:]


def test_each_scene_is_shown_when_it_begins() -> None:
    """Real videos behind one another: the first frame of each is kept, as long as the rate allows
    another; and many fewer than the film has."""
    film, cuts = one_after_the_other(step=3)
    chosen = shown(Every([Uniform(4.0), Scene(27.0)]), film)
    assert chosen[0] == film[0][0]
    for cut_ms in cuts:
        assert any(cut_ms <= at_ms <= cut_ms + 300 for at_ms in chosen), (cut_ms, chosen)
    assert len(chosen) < len(film) / 10


def test_a_scene_that_goes_on_is_shown_when_it_has_settled_and_then_rarely() -> None:
    """Two seconds after it began, then every ten; a cut begins the count anew."""
    frames = [told(n * 100, content=None if n == 0 else 1.0) for n in range(300)]
    frames[150] = told(15_000, content=90.0)
    chosen = kept(Scene(27.0, max_gap_ms=10_000), frames)
    assert chosen == [0, SETTLED_MS, 12_000, 15_000, 15_000 + SETTLED_MS, 27_000]


def test_a_cut_that_comes_while_no_frame_is_due_is_not_forgotten() -> None:
    """The frames behind it are skipped by time, undecoded: the next one that is looked at is
    compared with one before the cut."""
    film = [(n * 100.0, np.full((36, 64, 3), 20 if n < 4 else 200, np.uint8)) for n in range(30)]
    chosen = shown(Every([Uniform(1.0), Scene(27.0)]), film)
    assert chosen[:2] == [0, 800]


def test_a_panning_camera_is_kept_each_time_it_has_moved_on() -> None:
    """At 0.02 widths a frame and a threshold of 0.1, every fifth one; a still one once, and its
    noise counts for nothing however long it lasts."""
    pans = [told(n * 100, flow=None if n == 0 else 0.02) for n in range(51)]
    assert kept(Flow(0.1), pans) == [n * 500 for n in range(11)]
    still = [told(n * 100, flow=None if n == 0 else 0.003) for n in range(1000)]
    assert kept(Flow(0.1), still) == [0]
    assert kept(Flow(0.1, max_gap_ms=10_000), still) == [n * 10_000 for n in range(10)]


def test_flow_follows_a_real_pan() -> None:
    """A window that moves over a real picture at an even speed gives evenly spaced frames, twice as
    many at twice the speed."""
    _, picture = next(iter(videos.pictures("bikes")))
    wide = np.asarray(cv2.resize(picture, (1280, 360)), np.uint8)
    counts = []
    for step in (4, 8):
        film = [
            (n * 40.0, np.ascontiguousarray(wide[:, n * step : n * step + 640])) for n in range(80)
        ]
        counts.append(len(shown(Flow(0.08), film)))
    assert counts[0] > 3
    assert 1.5 <= counts[1] / counts[0] <= 2.5


def test_a_blurred_frame_gives_way_to_a_sharp_one() -> None:
    """Of frames that are sharp in turn, only sharp ones are kept."""
    frames = [told(n * 110, sharpness=100.0 if n % 4 == 3 else 20.0) for n in range(200)]
    frames[0] = told(0, sharpness=100.0)
    chosen = kept(Every([Uniform(1.0), Sharp()]), frames)
    assert len(chosen) > 10
    assert {round(at_ms / 110) % 4 for at_ms in chosen[1:]} == {3}


def test_a_camera_that_is_never_sharp_is_seen_after_a_short_wait() -> None:
    """Everything gets blurred for good: no frame is more than the wait late."""
    frames = [told(n * 50, sharpness=100.0 if n < 20 else 10.0) for n in range(400)]
    chosen = kept(Every([Uniform(1.0), Sharp()]), frames)
    gaps_ms = np.diff(chosen)
    assert (gaps_ms <= 1_000 + SHARP_WAIT_MS + 50).all()
    assert chosen[-1] > 18_000


def test_looks_for_a_sharp_one_are_few() -> None:
    """A camera of 60 frames a second is decoded five times in a wait, not thirty."""
    sampler, looks = Sharp(), 0
    for n in range(600):
        frame = told(n * 1000 / 60, sharpness=max(1.0, 1000.0 - n))
        if sampler.judge(SampledFrame(frame.at_ms)) is FrameVerdict.KEEP:
            looks += 1
            sampler.look(frame)
            if sampler.judge(frame) is FrameVerdict.KEEP and n < 30:
                sampler.keep(frame)
    assert looks <= 10 * 10 + 30


def samplers() -> Iterator[FrameSampler]:
    yield Scene(27.0, max_gap_ms=3_000)
    yield Flow(0.1, max_gap_ms=3_000)
    yield Sharp()


@given(
    gaps_ms=st.lists(st.floats(0, 5_000), min_size=1, max_size=60),
    values=st.lists(st.tuples(*[st.floats(0, 255)] * 3), min_size=60, max_size=60),
    fps=st.floats(0.2, 10),
)
def test_no_policy_goes_above_its_rate(
    gaps_ms: list[float], values: Sequence[tuple[float, float, float]], fps: float
) -> None:
    """Whatever comes when: the first frame is kept, order is kept, and over any stretch no more
    than the rate allows and one."""
    for policy in samplers():
        now_ms, frames = 0.0, []
        for gap_ms, (sharpness, content, flow) in zip(gaps_ms, values, strict=False):
            now_ms += gap_ms
            frames.append(told(now_ms, sharpness=sharpness, content=content, flow=flow))
        times = kept(Every([Uniform(fps), policy]), frames)
        assert times[0] == frames[0].at_ms
        assert times == sorted(times)
        for first in range(len(times)):
            for last in range(first, len(times)):
                allowed = (times[last] - times[first]) / 1000 * fps + 1 + 0.4
                assert last - first + 1 <= allowed + 1e-6


@pytest.mark.parametrize("policy", [Scene(27.0), Flow(0.1), Sharp()])
def test_a_frame_without_scores_is_no_error(policy: FrameSampler) -> None:
    """A policy may be chosen while a frame is being decoded that was not asked to be scored."""
    policy.look(SampledFrame(0.0, BLANK))
    assert policy.judge(SampledFrame(0.0, BLANK)) is FrameVerdict.KEEP
