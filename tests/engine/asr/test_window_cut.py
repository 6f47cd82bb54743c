"""headstart.engine.asr.window_cut: where a window is cut."""

from __future__ import annotations

import pytest
import torch

from headstart.engine.asr.hypothesis import Word
from headstart.engine.asr.window_cut import Cut, find_cut

_SECONDS = 12


def _frames(quiet_at_s: tuple[float, ...] = ()) -> torch.Tensor:
    """Loud all the time, but for 100 ms around the given times."""
    frames = torch.zeros(_SECONDS * 100, 80)
    for at_s in quiet_at_s:
        frames[int(at_s * 100) - 5 : int(at_s * 100) + 5] = -5.0
    return frames


def _words(text: str) -> list[Word]:
    return [Word(f" {word}", (1,), -0.1) for word in text.split()]


_TEXT = "one two. three four five six"
_PLACES_S = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0]


def _cut(
    text: str = _TEXT,
    places_s: list[float] = _PLACES_S,
    committed: int = 5,
    quiet_at_s: tuple[float, ...] = (),
    force: bool = False,
) -> Cut | None:
    words = _words(text)
    return find_cut(
        _frames(quiet_at_s), words, places_s, committed=committed, keep_s=3.0, force=force
    )


def test_cuts_at_the_last_sentence_end() -> None:
    """Behind a full stop, at the quietest place before the next word."""
    cut = _cut(quiet_at_s=(3.2,))
    assert cut is not None
    assert cut.words == 2
    assert 315 <= cut.frame <= 325


def test_without_a_sentence_end_as_late_as_allowed() -> None:
    """The latest word that leaves `keep_s` of sound."""
    cut = _cut(text="one two three four five six")
    assert cut is not None
    assert cut.words == 4
    assert 500 <= cut.frame <= 815


def test_only_committed_words_are_cut_off() -> None:
    """A tentative word keeps its sound."""
    cut = _cut(text="one two three four five six", committed=1)
    assert cut is not None
    assert cut.words == 1


def test_words_out_of_order_are_not_cut_between() -> None:
    """Where a later word seems to be heard earlier, the cut goes elsewhere."""
    cut = _cut(text="one two three four five six", places_s=[1.0, 2.0, 7.0, 5.0, 8.0, 10.0])
    assert cut is not None
    assert cut.words == 4  # both confused words are on the same side
    cut = _cut(text="one two three four five six", places_s=[1.0, 2.0, 9.5, 5.0, 8.0, 10.0])
    assert cut is not None
    assert cut.words == 1  # nothing next to the word in doubt


@pytest.mark.parametrize("places_s", [[], [5.0] * 6])
def test_no_good_place(places_s: list[float]) -> None:
    """Without places, or with all words in one, there is no cut unless by force."""
    assert _cut(places_s=places_s) is None
    forced = _cut(places_s=places_s, force=True)
    assert forced is not None
    assert 850 <= forced.frame <= 950


def test_force_takes_the_words_before_the_cut() -> None:
    """By force, uncommitted words go with their sound."""
    cut = _cut(committed=0, force=True)
    assert cut is not None
    assert cut.words == 5
    assert 850 <= cut.frame <= 950


def test_force_without_words() -> None:
    """Noise without words is dropped too."""
    cut = _cut(text="", places_s=[], committed=0, force=True)
    assert cut is not None
    assert cut.words == 0
