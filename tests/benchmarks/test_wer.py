"""How the hearing benchmark counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import wer
from benchmarks.recordings import CLIPS
from engine.ears.listener import Ears


def test_a_wrong_line_of_the_list_is_named(tmp_path: Path) -> None:
    """Path, line number and what was there; a good line's path is relative to the list."""
    made = tmp_path / "list.tsv"
    made.write_text("a.wav\tOne two.\n")
    assert wer.read_list(made) == [(tmp_path / "a.wav", "One two.")]
    made.write_text("a.wav\tOne two.\nb.wav no tab\n")
    with pytest.raises(ValueError, match=r"list\.tsv:2: .*'b\.wav no tab'"):
        wer.read_list(made)


def test_a_word_that_is_replaced_counts_as_revised() -> None:
    """Where "sea" gave way to "see", three words were shown at two places, one of them in vain."""
    tally = wer.Tally()
    wer._count_shown([["I"], ["I", "sea"], ["I", "see"]], tally)
    assert (tally.shown, tally.revised) == (3, 1)


def test_tokens_behind_the_first_difference_are_rolled_back() -> None:
    """Two of three went; two new ones were prefilled on top of the three."""
    tally = wer.Tally()
    tokens = wer._prefill([], [1, 2, 3], tally)
    wer._prefill(tokens, [1, 4, 5], tally)
    assert (tally.prefilled, tally.rolled_back) == (5, 2)


def test_lag_ends_when_a_word_is_shown_for_good() -> None:
    """Shown at 500 ms, taken back, shown again at 1500: it counts from there."""
    shown = [(500.0, ["yes"]), (1000.0, ["this"]), (1500.0, ["yes"])]
    assert wer._lags_ms(shown, [400.0]) == [1100.0]


@pytest.mark.parametrize(("clip", "words"), [("capital.wav", "capital of france")])
def test_a_clip_is_heard(whisper_dir: Path, clip: str, words: str) -> None:
    """With the packaged weights a bundled clip's words arrive, each with a lag."""
    tally = wer.Tally()

    def encode(text: str) -> list[int]:
        return [hash(word) for word in text.split()]

    wer.stream(Ears.load(whisper_dir), wer.load(CLIPS / clip), 500, encode, tally)
    assert words in tally.texts[0].lower()
    assert tally.lags_ms
