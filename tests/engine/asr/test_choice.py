"""headstart.engine.asr.choice: the largest Whisper that a machine has time for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from headstart.engine.asr.choice import SHARE, Choice, Demand, choose

NAMES = ("large", "base", "tiny")
TWO = Demand(sessions=2, chunk_ms=500)


def _scripted(
    timings_ms: Mapping[str, float | None], asked: list[str]
) -> Callable[[int], float | None]:
    def time_ms(place: int) -> float | None:
        asked.append(NAMES[place])
        return timings_ms[NAMES[place]]

    return time_ms


@pytest.mark.parametrize(
    ("timings_ms", "chosen", "measured"),
    [
        ({"large": 100.0}, "large", ["large"]),
        ({"large": 125.0}, "large", ["large"]),
        ({"large": 125.1, "base": 60.0}, "base", ["large", "base"]),
        ({"large": 900.0, "base": 300.0}, "tiny", ["large", "base"]),
        ({"large": None, "base": 60.0}, "base", ["large", "base"]),
        ({"large": None, "base": None}, "tiny", ["large", "base"]),
    ],
)
def test_the_largest_that_keeps_up(
    timings_ms: Mapping[str, float | None], chosen: str, measured: list[str]
) -> None:
    """With half of the time to spare for all sessions; smaller ones are not even loaded, and the
    smallest is taken unmeasured."""
    asked: list[str] = []
    assert NAMES[choose(NAMES, _scripted(timings_ms, asked), TWO).place] == chosen
    assert asked == measured


def test_more_people_and_shorter_chunks_want_quicker_ears() -> None:
    """The time of a chunk is shared by the sessions."""
    assert TWO.limit_ms == SHARE * 250
    assert Demand(4, 500).limit_ms == Demand(2, 250).limit_ms == TWO.limit_ms / 2
    assert Demand(1, 500).limit_ms == TWO.limit_ms * 2


def test_the_reason_has_the_figures() -> None:
    """What each took, what was allowed, and for whom."""
    choice = choose(NAMES, _scripted({"large": 301.4, "base": None}, []), TWO)
    assert choice == Choice(
        2,
        "large takes 301 ms a chunk; base cannot be used; at most 125 ms fit "
        "(2 at once, 500 ms chunks)",
    )
    choice = choose(NAMES, _scripted({"large": 301.4, "base": 61.0}, []), TWO)
    assert choice.reason == (
        "large takes 301 ms a chunk; base takes 61 ms a chunk of at most 125 ms "
        "(2 at once, 500 ms chunks)"
    )


def test_one_alone_is_taken() -> None:
    """Nothing is measured."""
    asked: list[str] = []
    assert choose(("tiny",), _scripted({}, asked), TWO) == Choice(
        0, "no other fetched Whisper suits"
    )
    assert not asked
