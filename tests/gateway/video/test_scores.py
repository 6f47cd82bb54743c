"""gateway.video.scores: how much a frame changed, how far things moved, and how sharp it is."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from scenedetect.common import FrameTimecode
from scenedetect.detectors import ContentDetector
from scenedetect.stats_manager import StatsManager

from headstart.gateway.video import scores
from headstart.gateway.video.scores import LOOK_BYTES, LOOK_HEIGHT, LOOK_WIDTH, score
from tests.gateway.video import videos

Rgb = npt.NDArray[np.uint8]


def textured(height: int = 144, width: int = 256, seed: int = 3) -> Rgb:
    """Smooth blobs of colour, so that a displacement can be seen everywhere."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    smooth = cv2.GaussianBlur(noise, (0, 0), 6).astype(np.float32)
    spread = (smooth - smooth.min()) / (smooth.max() - smooth.min()) * 255
    return np.asarray(spread, np.uint8)


def test_the_first_frame_has_nothing_to_be_compared_with() -> None:
    """Sharpness it has, and the small copy for the next one."""
    first = score(textured())
    assert (first.content, first.flow) == (None, None)
    assert first.sharpness > 0
    assert len(first.pixels) == LOOK_BYTES


def test_the_same_frame_again_has_not_changed() -> None:
    """No content, and no flow beyond its rounding."""
    picture = textured()
    again = score(picture, score(picture).pixels)
    assert again.content == 0
    assert again.flow == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("name", videos.NAMES)
def test_content_is_scored_as_pyscenedetect_does(name: str) -> None:
    """Frame by frame of a real video, on the same small copies."""
    detector, kept = ContentDetector(), StatsManager()
    detector.stats_manager = kept
    before = b""
    for number, (_, rgb) in enumerate(videos.pictures(name, step=10)):
        scored = score(rgb, before)
        small = np.frombuffer(scored.pixels, np.uint8).reshape(LOOK_HEIGHT, LOOK_WIDTH, 3)
        timecode = FrameTimecode(number, 25.0)
        detector.process_frame(timecode, cv2.cvtColor(small, cv2.COLOR_RGB2BGR))
        if before:
            (theirs,) = kept.get_metrics(timecode, ["content_val"])
            assert scored.content == pytest.approx(theirs, abs=1e-6)
        before = scored.pixels
    assert number > 5


@pytest.mark.parametrize("pixels", [4, 8, 12])
def test_flow_measures_how_far_the_picture_moved(pixels: int) -> None:
    """A camera that pans: the displacement in widths, and the further the more."""
    picture = textured(width=320)
    one, other = picture[:, 20:276], picture[:, 20 + pixels : 276 + pixels]
    moved = score(np.ascontiguousarray(other), score(np.ascontiguousarray(one)).pixels).flow
    assert moved is not None
    assert moved == pytest.approx(pixels / 256, rel=0.3)


def test_a_change_of_light_is_content_and_little_flow() -> None:
    """The lamp goes on: nothing has moved."""
    dark = textured() // 3
    bright = score(dark * 2, score(dark).pixels)
    assert bright.content is not None
    assert bright.content > 10
    moved = score(np.roll(dark, 12, axis=1), score(dark).pixels)
    assert bright.flow is not None
    assert moved.flow is not None
    assert bright.flow < moved.flow / 2


def test_the_more_blurred_the_less_sharp() -> None:
    """On a real picture, whatever its size; a blank one is not sharp at all."""
    _, picture = next(iter(videos.pictures("bikes")))
    blurred = [picture, *(cv2.GaussianBlur(picture, (0, 0), sigma) for sigma in (1, 2, 4))]
    values = [scores.sharpness(np.asarray(one)) for one in blurred]
    assert values == sorted(values, reverse=True)
    assert values[0] > 4 * values[-1]
    assert scores.sharpness(np.full((50, 70, 3), 128, np.uint8)) == 0


@pytest.mark.parametrize("shape", [(1, 10_000), (10_000, 1), (1, 1), (2, 3), (4320, 7680)])
def test_any_shape_has_scores(shape: tuple[int, int]) -> None:
    """One pixel wide or high, and 8K: finite numbers, and no change from itself."""
    picture = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    again = score(picture, score(picture).pixels)
    assert again.content == 0
    assert again.flow == pytest.approx(0, abs=1e-3)
    assert np.isfinite(again.sharpness)
