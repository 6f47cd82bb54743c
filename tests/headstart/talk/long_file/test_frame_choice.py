"""Which pictures of a part are shown."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.protocol.limits import MAX_EVENT_PICTURES
from headstart.gateway.video.file_sampling import POLICIES, FilePolicy, Scanner
from headstart.talk.long_file.frame_choice import FrameChooser
from headstart.talk.long_file.likeness import look_alike
from headstart.talk.long_file.video_reader import Picture

POLICY = pytest.mark.parametrize("policy", POLICIES)


def pictures(levels: dict[int, int]) -> list[Picture]:
    """Grey ones, by quarter of a second."""
    scanner = Scanner()
    return [
        Picture(scanner.score(at / 4, np.full((36, 64, 3), level, np.uint8)), b"", at / 4)
        for at, level in sorted(levels.items())
    ]


def shown(policy: FilePolicy, levels: dict[int, int], at_most: int = 12) -> list[int]:
    """The quarters of a second from which pictures are shown."""
    chosen = FrameChooser(policy, at_most).choose(pictures(levels))
    return [round(4 * picture.at_s) for picture in chosen]


@given(
    levels=st.dictionaries(st.integers(0, 119), st.integers(0, 255), max_size=120),
    at_most=st.integers(1, 60),
    policy=st.sampled_from(POLICIES),
)
def test_every_policy_keeps_its_promises(
    levels: dict[int, int], at_most: int, policy: FilePolicy
) -> None:
    """In order, none twice, no more than allowed, never nothing of something, and no two
    neighbours that look alike."""
    chosen = FrameChooser(policy, at_most).choose(pictures(levels))
    times_s = [picture.at_s for picture in chosen]
    assert times_s == sorted(set(times_s))
    assert len(chosen) <= at_most
    assert bool(chosen) == bool(levels)
    for before, after in pairwise(chosen):
        assert not look_alike(before.candidate, after.candidate)


@POLICY
def test_a_still_part_has_one_picture(policy: FilePolicy) -> None:
    """What looks the same is shown once."""
    assert len(shown(policy, dict.fromkeys(range(120), 100))) == 1


@pytest.mark.parametrize("policy", ["motion", "change", "flow"])
def test_what_moves_gets_the_pictures(policy: FilePolicy) -> None:
    """Ten still seconds, then ten in which much happens: those have nearly all of them."""
    levels = dict.fromkeys(range(40), 100) | {40 + n: (n * 61) % 256 for n in range(40)}
    found = shown(policy, levels)
    if policy == "flow":  # nothing has moved between two plain pictures
        assert len(found) >= 6
        return
    assert len(found) >= 11
    assert sum(at >= 40 for at in found) >= len(found) - 1


def test_a_short_glimpse_is_not_missed() -> None:
    """One different picture in thirty seconds."""
    assert 77 in shown("change", dict.fromkeys(range(120), 100) | {77: 200}, 4)


def test_a_line_of_text_that_appears_is_something_new() -> None:
    """A slide gets one more line, a hundredth of its area."""
    slide = np.full((360, 640, 3), 250, np.uint8)
    more = slide.copy()
    for left in range(60, 420, 16):
        more[180:200, left : left + 8] = 20
    scanner = Scanner()
    one, other = scanner.score(0.0, slide), scanner.score(0.25, more)
    assert not look_alike(one, other)
    noise = np.random.default_rng(0).integers(-4, 5, slide.shape)
    same = scanner.score(0.5, np.clip(more + noise, 0, 255).astype(np.uint8))
    assert look_alike(other, same)


def test_a_part_has_no_more_pictures_than_an_event_may() -> None:
    """Though a still part has left many over."""
    chooser = FrameChooser("uniform", 60)
    chooser.choose(pictures({0: 0}))
    lively = {n: (n * 61) % 256 for n in range(120)}
    assert len(chooser.choose(pictures(lively))) <= MAX_EVENT_PICTURES
