"""Looking: photographs are named, changes noticed, bad pictures refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from headstart.engine.vision import BadPicture, FrameLabeller
from headstart.engine.vision.pixels import Rgb

pytestmark = pytest.mark.weights


def test_photographs_are_named(eyes: FrameLabeller, cat: Rgb, coffee: Rgb) -> None:
    """Chelsea is a cat of three disputed sorts, the cup is an espresso beyond doubt."""
    labels = eyes.label(cat)
    assert labels.label.endswith(" cat")
    assert (labels.kind, labels.is_blank) == ("cat", False)
    assert labels.kind_probability > 0.8 > labels.probability
    assert labels.alternatives[0][0].endswith(" cat")
    labels = eyes.label(coffee)
    assert labels.label == "espresso"
    assert labels.probability > 0.7


def test_people_are_counted(eyes: FrameLabeller, cat: Rgb, astronaut: Rgb) -> None:
    """A face is a person, a cat is none."""
    assert (eyes.label(astronaut).people, eyes.label(cat).people) == (1, 0)


def test_probabilities_are_in_order_and_add_up(eyes: FrameLabeller, coffee: Rgb) -> None:
    """Label and alternatives fall off, are distinct, and stay within 1."""
    labels = eyes.label(coffee)
    names = [labels.label, *(name for name, _ in labels.alternatives)]
    values = [labels.probability, *(p for _, p in labels.alternatives)]
    assert len(set(names)) == len(names) == 5
    assert values == sorted(values, reverse=True)
    assert sum(values) <= 1.0 + 1e-5


def test_labels_are_reproducible(eyes: FrameLabeller, cat: Rgb) -> None:
    """Labels are reproducible to the last bit."""
    first, second = eyes.label(cat), eyes.label(cat)
    assert first == second


def test_a_batch_gives_the_labels_of_single_pictures(
    eyes: FrameLabeller, cat: Rgb, coffee: Rgb
) -> None:
    """Two pictures in one pass are named as they are alone; no picture, no labels."""
    together = eyes.label_all([cat, coffee])
    for labels, alone in zip(together, (eyes.label(cat), eyes.label(coffee)), strict=True):
        assert labels.label == alone.label
        assert labels.probability == pytest.approx(alone.probability, abs=1e-4)
    assert eyes.label_all([]) == []


@pytest.mark.parametrize(
    ("picture", "got"),
    [
        (np.zeros((4, 4, 3), np.float32), r"float32 \[4, 4, 3\]"),
        (np.zeros((4, 4), np.uint8), r"uint8 \[4, 4\]"),
        (np.zeros((4, 4, 4), np.uint8), r"uint8 \[4, 4, 4\]"),
        (np.zeros((0, 4, 3), np.uint8), r"uint8 \[0, 4, 3\]"),
    ],
)
def test_what_is_no_picture_is_refused(
    eyes: FrameLabeller, picture: npt.NDArray[np.uint8], got: str
) -> None:
    """The error says what was expected and what came."""
    with pytest.raises(BadPicture, match=f"H, W >= 1, got {got}"):
        eyes.label(picture)


def test_a_batch_of_two_sizes_is_refused(eyes: FrameLabeller) -> None:
    """One pass takes one size."""
    with pytest.raises(BadPicture, match=r"\[4, 4, 3\] like the others of its batch"):
        eyes.label_all([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)])
