"""A decoder that repeats itself, or says more than anybody could."""

from __future__ import annotations

import pytest

from headstart.engine.asr.runaway import LoopSettings, loop_start, token_limit


@pytest.mark.parametrize(
    ("tokens", "start"),
    [
        ("abcdeabcde", 5),  # a whole sentence again
        ("xyabcabc", 5),
        ("abcdefabc", 6),  # it has begun to say it again
        ("abcdef", None),
        ("abab", None),  # too little to be sure
        ("aaaa", 1),
        ("abcdeAbcde", 5),  # the repeat begins in other letter case
    ],
)
def test_loop_over_the_same_sound(tokens: str, start: int | None) -> None:
    """Tokens said again of the same place are cut from where the repeat begins."""
    places = [0.2 * tokens.index(letter.lower()) for letter in tokens]
    assert loop_start([ord(letter) for letter in tokens], places) == start


@pytest.mark.parametrize("tokens", ["abcdeabcde", "aaaaaaaa", "abcabcabcabc"])
def test_people_may_repeat_themselves(tokens: str) -> None:
    """The same words heard later in the sound are no loop."""
    places = [0.2 * index for index in range(len(tokens))]
    assert loop_start([ord(letter) for letter in tokens], places) is None


def test_loop_without_places() -> None:
    """Where nothing is known of places, only many repeats are a loop."""
    rule = LoopSettings(blind_tokens=6)
    assert loop_start([1, 2, 3] * 2, settings=rule) is None
    assert loop_start([1, 2, 3] * 3, settings=rule) == 3
    assert loop_start([7] * 6, settings=rule) is None
    assert loop_start([7] * 7, settings=rule) == 1


def test_token_limit_grows_with_time() -> None:
    """No sound allows a few tokens, each second some more."""
    assert 0 < token_limit(0) < 10
    assert 30 <= token_limit(5) - token_limit(0) <= 60
