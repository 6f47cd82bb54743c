"""How large a part's pictures are shown."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.video.file_sampling import Scanner
from headstart.talk.long_file.picture_sizes import SIDES_PX, PictureSizes, fitted
from headstart.talk.long_file.video_reader import Picture
from headstart.talk.media.frame_image import to_jpeg

FULL, LEAST = SIDES_PX[0], SIDES_PX[-1]
BUDGET = 3_072


def patches(side_px: int) -> float:
    """Of a family that makes a token of 28 x 28 pixels, with 16:9."""
    return (side_px / 28) * (side_px * 9 / 16 / 28)


def learned(tokens: Callable[[int], float], *counts: int) -> tuple[PictureSizes, list[int]]:
    """The sizes after parts of so many pictures each, and the side that each had."""
    sizes, sides = PictureSizes(BUDGET), []
    sizes.observe(FULL, tokens(FULL))
    for count in counts:
        sides.append(sizes.side_px(count))
        sizes.observe(sides[-1], tokens(sides[-1]))
    return sizes, sides


def picture(width: int, height: int) -> Picture:
    pixels = np.full((height, width, 3), (200, 30, 60), np.uint8)
    return Picture(Scanner().score(1.0, pixels), to_jpeg(pixels), 1.0)


def size_of(shown: Picture) -> tuple[int, int]:
    pixels = cv2.imdecode(np.frombuffer(shown.jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return pixels.shape[1], pixels.shape[0]


def test_a_few_pictures_are_shown_in_full() -> None:
    """Slides can be read; the more pictures a part has, the smaller they are."""
    _, sides = learned(patches, 2, 4, 6, 12, 24, 200)
    assert sides == [960, 960, 768, 560, 336, 224]


@given(counts=st.lists(st.integers(1, 64), max_size=12), each=st.integers(100, 4_000))
def test_a_part_is_within_the_budget(counts: list[int], each: int) -> None:
    """Unless the smallest size exceeds it; and the next larger size would exceed it."""
    _, sides = learned(lambda side: each * (side / FULL) ** 2, *counts)
    for count, side in zip(counts, sides, strict=True):
        tokens = {s: count * each * (s / FULL) ** 2 for s in SIDES_PX}
        assert tokens[side] <= BUDGET * 1.0001 or side == LEAST
        assert all(tokens[larger] > BUDGET * 0.9999 for larger in SIDES_PX if larger > side)


def test_a_model_of_one_size_keeps_the_largest() -> None:
    """Its encoder takes 729 tokens of any size: after two parts in smaller ones that is known."""
    _, sides = learned(lambda _: 729, 12, 12, 12, 12)
    assert sides == [560, LEAST, FULL, FULL]


def test_a_small_recording_is_scaled_from_its_own_size() -> None:
    """640 pixels wide, 2,000 tokens each: 12 of them fit at 224, by their pixels and not by those
    of the largest size."""
    sizes = PictureSizes(BUDGET)
    sizes.observe(640, 2_000)
    assert sizes.side_px(1) == FULL
    assert sizes.side_px(3) == 448
    assert sizes.side_px(12) == 224


def test_without_counts_nothing_is_scaled() -> None:
    """Another server that does not say what a picture takes."""
    assert PictureSizes(BUDGET).side_px(64) == FULL


def test_what_could_not_be_read_is_not_sent_again() -> None:
    """A size that was refused, and all larger ones, are out for good; the smallest is all there
    is."""
    sizes = PictureSizes(BUDGET)
    assert sizes.refuse(448)
    assert sizes.side_px(1) == 336
    assert sizes.refuse(336)
    assert not sizes.refuse(224)
    assert sizes.side_px(1) == 224


@pytest.mark.parametrize(
    ("given_px", "side_px", "expected_px"),
    [
        ((960, 540), 336, (336, 188)),
        ((540, 960), 224, (126, 224)),
        ((320, 240), 336, (320, 240)),
        ((960, 4), 224, (224, 2)),
        ((960, 540), 960, (960, 540)),
    ],
)
def test_a_picture_keeps_its_shape(
    given_px: tuple[int, int], side_px: int, expected_px: tuple[int, int]
) -> None:
    """Even sides, as JPEG has them; nothing is enlarged, times and scores stay."""
    shown = picture(*given_px)
    (small,) = fitted([shown], side_px)
    assert size_of(small) == expected_px
    assert (small.at_s, small.candidate) == (shown.at_s, shown.candidate)
    assert (small.jpeg == shown.jpeg) == (given_px == expected_px)
