"""gateway.video.file_sampling: which frames of a file are chosen, in two passes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.video.file_sampling import (
    MAX_FPS,
    MIN_FPS,
    POLICIES,
    Candidate,
    FilePolicy,
    RunningBudget,
    Scanner,
    choose,
    scan,
    small_rgb,
)
from headstart.gateway.video.sampling import FrameScores
from headstart.gateway.video.scores import LOOK_BYTES
from tests.gateway.video import videos

BIKES_CUTS_S = (1.25, 3.25, 5.5, 7.5, 9.75)
"""By eye, on frames a quarter of a second apart."""


def candidate(
    at_s: float,
    *,
    motion: float = 0.0,
    flow: float | None = 0.0,
    sharpness: float = 100.0,
    scene: int = 0,
) -> Candidate:
    pixels = bytes([round(255 * motion)]) * LOOK_BYTES
    return Candidate(at_s, motion, FrameScores(sharpness, 0.0, flow, pixels), scene)


def still(count: int, fps: float = 4.0) -> list[Candidate]:
    return [candidate(n / fps) for n in range(count)]


@cache
def film(name: str, start_s: float = 0.0) -> list[Candidate]:
    return scan((start_s + at_s, frame) for at_s, frame in videos.decoded(name))


# --- one segment ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", videos.NAMES)
def test_a_scan_takes_so_many_frames_a_second(name: str) -> None:
    """Of a real video, four a second, each with scores."""
    found = film(name)
    length_s = found[-1].at_s - found[0].at_s
    assert len(found) == pytest.approx(length_s * MAX_FPS + 1, abs=1.1)
    assert found[0].scores.content is None
    assert all(c.scores.content is not None for c in found[1:])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("frames", [1, 2, 7, 64])
def test_every_policy_stays_within_the_budget(policy: FilePolicy, frames: int) -> None:
    """On a real video: no more than the budget, in order, each once; and it says what it did."""
    found = film("bikes")
    choice = choose(policy, found, frames)
    assert 1 <= len(choice.indexes) <= frames
    assert list(choice.indexes) == sorted(set(choice.indexes))
    assert choice.indexes[-1] < len(found)
    assert choice.why


def test_uniform_is_even_in_time_not_in_number() -> None:
    """Of a file that has most of its frames in its first second, the frames chosen are a second
    apart still."""
    times = [*np.linspace(0, 1, 100), *range(2, 11)]
    choice = choose("uniform", [candidate(t) for t in times], 5)
    chosen = [times[index] for index in choice.indexes]
    assert chosen == [pytest.approx(s, abs=0.02) for s in (1, 3, 5, 7, 9)]


@pytest.mark.parametrize("policy", ["motion", "flow"])
def test_more_frames_where_more_moves(policy: FilePolicy) -> None:
    """Ten still seconds and ten that move: nearly all frames are of those, but not all."""
    moving = [0.0] * 40 + [0.1] * 40
    found = [candidate(n / 4, motion=m, flow=m) for n, m in enumerate(moving)]
    choice = choose(policy, found, 20)
    later = sum(index >= 40 for index in choice.indexes)
    assert choice.policy == policy
    assert 17 <= later < len(choice.indexes) <= 20


@pytest.mark.parametrize("policy", ["motion", "flow", "scene"])
def test_what_never_changes_is_shown_rarely_and_evenly(policy: FilePolicy) -> None:
    """A still video of 20 s: one frame in two seconds, whatever the budget, and it says why."""
    choice = choose(policy, still(80), 64)
    assert (choice.policy, len(choice.indexes)) == ("uniform", 10)
    assert choice.why.startswith(("nothing moves", "one scene"))
    assert set(np.diff(choice.indexes)) <= {7, 8, 9}


def test_what_changes_is_shown_once_and_not_missed() -> None:
    """Four looks in half a minute, one of them for a quarter of a second; a still segment has one
    frame, a restless one all of the budget."""
    looks = [100] * 40 + [200] + [100] * 20 + [150] * 59
    found = seen(looks)
    chosen = choose("change", found, 8).indexes
    assert [looks[index] for index in chosen] == [100, 200, 100, 150]
    assert choose("change", seen([100] * 80), 8).indexes == (0,)
    assert len(choose("change", seen([(n * 61) % 256 for n in range(120)]), 12).indexes) == 12


def seen(levels: list[int]) -> list[Candidate]:
    """Grey frames, four a second."""
    scanner = Scanner()
    pictures = (np.full((36, 64, 3), level, np.uint8) for level in levels)
    return [scanner.score(n / 4, picture) for n, picture in enumerate(pictures)]


def scenes(*lengths: int) -> list[Candidate]:
    """Scenes of so many candidates each."""
    numbers = [number for number, length in enumerate(lengths) for _ in range(length)]
    return [candidate(n / 4, scene=number) for n, number in enumerate(numbers)]


def test_a_scenes_first_middle_and_last_frame() -> None:
    """Exactly these, as long as they fit the budget."""
    found = scenes(9, 21, 5)
    choice = choose("scene", found, 9)
    assert choice.indexes == (0, 4, 8, 9, 19, 29, 30, 32, 34)
    assert (choice.policy, choice.why) == ("scene", "3 scenes")


def test_scenes_are_thinned_to_the_budget() -> None:
    """The lasts go first, then the firsts, then scenes, evenly."""
    found = scenes(9, 21, 5)
    assert choose("scene", found, 8).indexes == (0, 4, 9, 19, 30, 32)
    assert choose("scene", found, 5).indexes == (4, 19, 32)
    few = choose("scene", found, 2)
    assert few.indexes == (4, 32)
    assert few.why == "3 scenes, of which 2 fit the budget"


def cuts(found: list[Candidate]) -> list[float]:
    """Times in s of the first candidates of scenes, but for the first scene."""
    return [b.at_s for a, b in pairwise(found) if a.scene != b.scene]


def test_the_cuts_of_a_real_film_are_found() -> None:
    """Its five cuts, as a person sees them, and no other."""
    assert cuts(film("bikes")) == [pytest.approx(s, abs=0.26) for s in BIKES_CUTS_S]


def test_the_cut_from_one_file_to_the_next_is_found() -> None:
    """Of other sizes, too."""
    last_s = 0.0

    def both() -> Iterator[tuple[float, av.VideoFrame]]:
        nonlocal last_s
        for at_s, frame in videos.decoded("bigbuckbunny"):
            last_s = at_s
            yield at_s, frame
        start_s = last_s + 0.04
        for at_s, frame in videos.decoded("carphone_pristine"):
            yield start_s + at_s, frame

    found = cuts(scan(both()))
    assert any(last_s < cut_s <= last_s + 0.3 for cut_s in found)


def test_a_flash_begins_no_scene() -> None:
    """Two cuts closer together than a scene may be: what follows is the scene before."""
    grey = [60] * 50 + [250] * 3 + [60] * 50
    frames = [
        (n / 25, av.VideoFrame.from_ndarray(np.full((36, 64, 3), value, np.uint8), "rgb24"))
        for n, value in enumerate(grey)
    ]
    assert len(cuts(scan(frames))) <= 1


def test_the_sharpest_of_each_second() -> None:
    """One of each second if the budget allows, else of as many stretches as it does."""
    found = [candidate(n / 4, sharpness=100.0 if n % 4 == 2 else 50.0) for n in range(40)]
    choice = choose("sharp", found, 64)
    assert len(choice.indexes) == 10
    assert all(found[index].scores.sharpness == 100.0 for index in choice.indexes)
    assert len(choose("sharp", found, 3).indexes) == 3


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_and_next_to_nothing(policy: FilePolicy) -> None:
    """No frame, no budget, one frame, and frames that all have one time."""
    assert choose(policy, [], 5).indexes == ()
    assert choose(policy, [], 5).why == "no frame could be decoded"
    assert choose(policy, still(5), 0).indexes == ()
    assert choose(policy, still(1), 5).indexes == (0,)
    at_once = choose(policy, [candidate(1.0, motion=0.5, flow=0.5) for _ in range(9)], 4)
    assert 1 <= len(at_once.indexes) <= 4


@given(
    gaps_s=st.lists(st.floats(0, 100), min_size=1, max_size=60),
    values=st.lists(st.tuples(*[st.floats(0, 1)] * 3, st.booleans()), min_size=60),
    frames=st.integers(0, 80),
    policy=st.sampled_from(POLICIES),
)
def test_any_segment_can_be_chosen_from(
    gaps_s: list[float],
    values: list[tuple[float, float, float, bool]],
    frames: int,
    policy: FilePolicy,
) -> None:
    """Whatever the times and scores: at most the budget, in order, none twice, none if none."""
    at_s, scene, found = 0.0, 0, []
    for gap_s, (motion, flow, sharpness, cut) in zip(gaps_s, values, strict=False):
        at_s, scene = at_s + gap_s, scene + cut
        found.append(candidate(at_s, motion=motion, flow=flow, sharpness=sharpness, scene=scene))
    indexes = choose(policy, found, frames).indexes
    assert len(indexes) <= frames
    assert bool(indexes) == bool(frames)
    assert list(indexes) == sorted(set(indexes))
    assert all(0 <= index < len(found) for index in indexes)


# --- segments one after the other ----------------------------------------------------------------


def lively(motion: float, lasts_s: float = 30.0) -> list[Candidate]:
    return [candidate(n / 4, motion=motion) for n in range(round(4 * lasts_s))]


def test_what_still_segments_leave_over_is_kept_for_later() -> None:
    """A lively segment behind a still one has twice as many, and not more."""
    budget = RunningBudget(0.4)
    assert budget.grant(lively(0.0), 30) <= 12
    budget.spend(1)
    assert budget.grant(lively(0.2), 30) == 23
    budget.spend(23)
    assert budget.grant(lively(0.2), 30) == 12


def test_a_still_segment_behind_lively_ones_gets_fewer() -> None:
    """Half of the average at least."""
    budget = RunningBudget(0.4)
    for _ in range(3):
        budget.spend(budget.grant(lively(0.2), 30))
    assert budget.grant(lively(0.0), 30) == 6


def test_within_a_large_budget_the_bounds_are_those_of_all_segments() -> None:
    """From 0.5 to 4 a second."""
    budget = RunningBudget(3.0)
    budget.spend(budget.grant(lively(0.2), 30))
    still = budget.grant(lively(0.0), 30)
    budget.spend(still)
    assert still == 30 * MIN_FPS
    assert budget.grant(lively(0.5), 30) == 30 * MAX_FPS


@given(
    per_s=st.floats(0.03, 5),
    segments=st.lists(st.tuples(st.floats(0.1, 120), st.floats(0, 1), st.booleans()), max_size=40),
)
def test_a_running_budget_is_never_overspent(
    per_s: float, segments: list[tuple[float, float, bool]]
) -> None:
    """Up to any moment no more than was earned, but for one frame of each segment that would have
    none; at most `MAX_FPS`, and no more than there are."""
    budget, spent, seconds, bare = RunningBudget(per_s), 0, 0.0, 0
    for lasts_s, motion, is_empty in segments:
        found = [] if is_empty else lively(motion, lasts_s)
        granted = budget.grant(found, lasts_s)
        budget.spend(granted)
        seconds += max(lasts_s, 1 / MAX_FPS)
        spent, bare = spent + granted, bare + (granted == 1)
        assert granted <= len(found)
        assert granted <= max(1, lasts_s * MAX_FPS)
        assert bool(granted) == bool(found)
        assert spent - bare <= per_s * seconds + 1e-6


# --- bad input -----------------------------------------------------------------------------------


def written(
    path: Path,
    frames: list[npt.NDArray[np.uint8]],
    *,
    codec: str = "ffv1",
    pixels: str = "bgr0",
    times_ms: list[int] | None = None,
) -> Path:
    """A lossless video of these frames, RGB or RGBA."""
    height, width, channels = frames[0].shape
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for number, rgb in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24" if channels == 3 else "rgba")
            frame.pts = 40 * number if times_ms is None else times_ms[number]
            frame.time_base = Fraction(1, 1000)
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    return path


def scanned(path: Path) -> list[Candidate]:
    with av.open(str(path)) as container:
        return scan((frame.time or 0.0, frame) for frame in container.decode(video=0))


def noise(height: int, width: int, channels: int, seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_video_of_one_frame(tmp_path: Path, policy: FilePolicy) -> None:
    """It is chosen, and the sentence says that there is only one."""
    found = scanned(written(tmp_path / "one.mkv", [noise(36, 64, 3, 1)]))
    choice = choose(policy, found, 8)
    assert (choice.indexes, choice.why) == ((0,), "there is one frame")


@pytest.mark.parametrize("shape", [(1, 10_000), (10_000, 1)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_video_one_pixel_high_or_wide(
    tmp_path: Path, policy: FilePolicy, shape: tuple[int, int]
) -> None:
    """Scaled as it is, with its other side at one pixel."""
    frames = [noise(*shape, 3, seed) for seed in range(30)]
    found = scanned(written(tmp_path / "thin.mov", frames, codec="png", pixels="rgb24"))
    assert 1 <= len(choose(policy, found, 3).indexes) <= 3


def test_alpha_is_drawn_on_white(tmp_path: Path) -> None:
    """What is transparent is white to the scores, as it is to the model."""
    clear = noise(40, 60, 4, 1)
    clear[..., 3] = 0
    path = written(tmp_path / "alpha.mov", [clear] * 3, codec="qtrle", pixels="argb")
    with av.open(str(path)) as container:
        first = next(iter(container.decode(video=0)))
        assert small_rgb(first).min() == 255
    assert scanned(path)[0].scores.sharpness == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_variable_frame_rate(tmp_path: Path, policy: FilePolicy) -> None:
    """A burst, then a frame every three seconds: candidates go by time, not by number."""
    times_ms = [*range(0, 1000, 10), *range(3000, 30_000, 3000)]
    frames = [noise(18, 32, 3, seed) for seed in range(len(times_ms))]
    found = scanned(written(tmp_path / "vfr.mkv", frames, times_ms=times_ms))
    assert len(found) == 4 + 9
    assert 1 <= len(choose(policy, found, 6).indexes) <= 6


def test_times_that_go_back_do_not_stop_a_scan() -> None:
    """They are left out; what comes after is there."""
    black = av.VideoFrame.from_ndarray(np.zeros((36, 64, 3), np.uint8), "rgb24")
    found = scan((at_s, black) for at_s in (0.0, 5.0, 1.0, 2.0, 5.3, 6.0))
    assert [c.at_s for c in found] == [0.0, 5.0, 5.3, 6.0]
