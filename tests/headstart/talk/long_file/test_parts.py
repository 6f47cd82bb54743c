from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.talk.long_file.parts import Plan
from headstart.talk.media.times import BadTime, clock, in_words, parse_time


@given(
    start_s=st.floats(0, 3600),
    lasts_s=st.floats(0.05, 40_000),
    part_s=st.floats(5, 120),
)
def test_parts_cover_everything_and_overlap(start_s: float, lasts_s: float, part_s: float) -> None:
    """No gap, 2 s twice, nothing beyond the ends, no part that is all overlap."""
    plan = Plan(start_s, start_s + lasts_s, part_s)
    parts = [plan.part(index) for index in range(plan.count)]
    assert parts[0].start_s == start_s
    assert parts[-1].end_s == pytest.approx(plan.end_s)
    for before, part in pairwise(parts):
        assert before.end_s - part.start_s == pytest.approx(2.0, abs=1e-6)
        assert part.new_s == pytest.approx(before.end_s)
        assert part.lasts_s > 2.0 - 1e-6
    assert all(part.lasts_s <= part_s + 1e-6 for part in parts)


def test_half_an_hour_and_ten_hours() -> None:
    """As the docs say."""
    assert Plan(0, 1800).count == 65
    assert Plan(0, 36_000).count == 1286
    assert Plan(0, 30).count == Plan(0, 0.1).count == 1
    assert Plan(0, 31).count == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5", 1.5),
        ("1:30", 90),
        ("1:02:03", 3723),
        ("12m", 720),
        ("2min", 120),
        ("1h", 3600),
        (" 0:07 ", 7),
    ],
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    """Every form that the error message names."""
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-3", "1:2:3:4", "1:30m", "12 o'clock", "1e5", "nan"])
def test_what_is_no_time(text: str) -> None:
    """The error says what was expected."""
    with pytest.raises(BadTime, match="expected seconds, M:SS"):
        parse_time(text)


@given(st.integers(0, 400_000))
def test_a_clock_reads_back(seconds: int) -> None:
    """`clock` and `parse_time` agree."""
    assert parse_time(clock(seconds)) == seconds


def test_lengths_in_words() -> None:
    """Rounded as a person would."""
    assert [in_words(s) for s in (0.2, 40, 89, 90, 780, 5399, 9000)] == [
        "1 s",
        "40 s",
        "89 s",
        "2 min",
        "13 min",
        "90 min",
        "2.5 h",
    ]
