"""Which regions a question is about, and their tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.notes import asks_about_writing
from headstart.engine.vision.regions.findings import Findings, RegionFinder
from headstart.engine.vision.regions.grid import Grid
from headstart.engine.vision.regions.relevance import (
    LEVELS,
    UNASKED_TOKENS,
    Wanted,
    allot,
    asked_by,
    in_places,
    tokens_by_region,
)
from tests.engine.vision.regions.conftest import (
    CAT,
    CELL_PIXELS,
    CUP,
    FACE,
    SIGN,
    SMALL_SIGN,
)


def given_for(
    question: str, rgb: Rgb, finder: RegionFinder, before: Rgb | None = None
) -> dict[int, int]:
    found = Findings(Grid.of(rgb.shape[0], rgb.shape[1], CELL_PIXELS))
    writing = asks_about_writing(question)
    return tokens_by_region(
        question, rgb, found, finder, CELL_PIXELS, before=before, writing=writing
    )


@pytest.mark.parametrize(
    ("question", "regions"),
    [
        ("What does the sign say?", {SIGN, SMALL_SIGN}),
        ("Which platform is written there?", {SIGN, SMALL_SIGN}),
        ("When does the train to Oxford leave?", {SIGN}),
        ("Who is that?", {FACE}),
        ("Is she smiling?", {FACE}),
        ("What colour are the cat's eyes?", {FACE}),  # eyes are people's first
        ("Is the cat asleep?", {CAT}),
        ("How full is the cup?", {CUP}),
        ("How much is an espresso?", {SMALL_SIGN, CUP}),
        ("Is there a dog?", set()),  # nobody knows
        ("What is in the lower right corner?", {CUP}),
        ("What do you see on the left?", {CAT, SIGN}),
        ("What lies on the laptop on the left?", {CAT, SIGN}),  # not at the top
        ("What does the sign on the left say?", {SIGN}),
        ("What does the sign on the right say?", {FACE, CUP}),  # there is none: the place counts
        ("Describe it.", {SIGN, SMALL_SIGN}),  # and a face, but for the limit
    ],
)
def test_a_question_is_about_regions(
    finder: RegionFinder, scene: Rgb, question: str, regions: set[int]
) -> None:
    """By place, writing, people, names of things, and words that are read."""
    assert set(given_for(question, scene, finder)) == regions


def test_regions_get_what_they_need(finder: RegionFinder, scene: Rgb) -> None:
    """Large letters can be read in few tokens, small ones need more; a place is shown best."""
    read = given_for("What does the sign say?", scene, finder)
    assert LEVELS[0] == read[SIGN] < read[SMALL_SIGN]
    assert given_for("Who is that?", scene, finder) == {FACE: 256}
    assert given_for("What is on the left?", scene, finder) == {CAT: 400, SIGN: 400}
    assert sum(given_for("Describe it.", scene, finder).values()) <= UNASKED_TOKENS


def test_what_has_changed_is_shown(scene: Rgb) -> None:
    """Strongest first. Without another picture, and without detectors, nothing is known."""
    now = scene.copy()
    now[550:700, 1000:1300] = 0
    assert given_for("What has changed?", now, RegionFinder(), scene) == {CUP: 256}
    assert given_for("What has changed?", now, RegionFinder()) == {}
    assert given_for("What has changed?", scene, RegionFinder(), scene) == {}


def test_a_picture_without_what_is_asked_has_no_regions(finder: RegionFinder, scene: Rgb) -> None:
    """Then it is shown as a whole: the detectors may have missed it."""
    plain = np.full_like(scene, 120)
    for question in ("What does it say?", "Who is that?", "Is there a cat?", "Describe it."):
        assert given_for(question, plain, finder) == {}


def test_places_are_places_only_where_they_are_meant() -> None:
    """ "Right" is more often no side."""
    assert asked_by("What is on the far left?").places == {"left"}
    assert asked_by("And the top right corner?").places == {"top", "right"}
    assert not asked_by("What is this right now?").places
    assert not asked_by("Is that right?").places
    assert not asked_by("What is left of it?").places


def test_words_count_in_the_singular_too() -> None:
    """Names of things are singular."""
    assert {"dogs", "dog"} <= asked_by("What are the dogs doing?").words
    assert not asked_by("What is this, and how can you see it?").words


@pytest.mark.parametrize(
    ("places", "regions"),
    [
        ({"left"}, {0, 3, 6}),
        ({"top", "right"}, {2}),
        ({"middle"}, {4}),
        ({"bottom", "middle"}, {7}),
        (set[str](), set(range(9))),
    ],
)
def test_places_are_sides_of_the_grid(places: set[str], regions: set[int]) -> None:
    """Three by three; where there is one column only, left is all of it."""
    assert in_places(Grid(900, 900, 3, 3), places) == regions
    assert in_places(Grid(900, 100, 3, 1), {"left"}) == {0, 1, 2}


REGIONS = st.dictionaries(
    st.integers(0, 15),
    st.tuples(st.floats(0.01, 1), st.integers(1, 600), st.integers(1, 600)),
    max_size=16,
)


@given(regions=REGIONS, limit=st.integers(0, 2000))
def test_the_limit_is_kept(regions: dict[int, tuple[float, int, int]], limit: int) -> None:
    """Each gets a level, no more than it wants, the most relevant first."""
    wanted = {n: Wanted(relevance, tokens) for n, (relevance, tokens, _) in regions.items()}
    full = {n: tokens for n, (_, _, tokens) in regions.items()}
    given = allot(wanted, full, limit)
    cost = {n: min(level, full[n]) for n, level in given.items()}
    assert sum(cost.values()) <= limit
    for number, level in given.items():
        assert level in LEVELS
        smaller = [other for other in LEVELS if other < level]
        assert not smaller or smaller[-1] < wanted[number].tokens
    first = min(wanted, key=lambda n: (-wanted[n].relevance, n), default=None)
    if first is not None and first not in given:
        assert min(LEVELS[0], full[first]) > limit
