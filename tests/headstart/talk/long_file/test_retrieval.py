import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.talk.long_file.notes import Caption, Note, groups
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.retrieval import chosen, scores, shown_at, times
from headstart.talk.long_file.transcription import Line

PLAN = Plan(0, 1800)


def note(index: int, said: str, seen: str = "A man talks.") -> Note:
    part = PLAN.part(index)
    return Note(part, seen, [Line(part.start_s + 5, part.start_s + 9, said)])


FILLER = [f"we come to topic number {n} of the long list" for n in range(PLAN.count)]


def lecture() -> list[Note]:
    notes = [note(index, said) for index, said in enumerate(FILLER)]
    notes[23] = note(23, "the treasure is buried under the old lighthouse")
    return notes


def test_a_rare_word_finds_its_part() -> None:
    """The question's words lead to the part in which they were said, endings apart."""
    picked = chosen("Where are the treasures buried?", lecture(), 800, 0, 1800)
    assert 23 in [each.part.index for each in picked]
    assert sum(len(str(each)) for each in picked) <= 800


def test_all_of_a_short_recording_is_read() -> None:
    """Nothing is left out that fits."""
    assert chosen("What?", lecture()[:4], 6000, 0, 1800) == lecture()[:4]


@pytest.mark.parametrize(
    ("question", "at_s"),
    [
        ("What happens at 12:30?", 750),
        ("What is said in minute 20?", 1220),
        ("What do you see after 90 seconds?", 90),
        ("How does it begin?", 1),
        ("What is said at the very end?", 1799),
    ],
)
def test_a_time_finds_its_part(question: str, at_s: float) -> None:
    """Clock times, minutes, seconds, the beginning and the end."""
    picked = chosen(question, lecture(), 400, 0, 1800)
    assert any(each.part.start_s <= at_s <= each.part.end_s for each in picked)


def test_what_is_shown_at_a_time() -> None:
    """The newest picture of that part; nothing behind the end, or of a part without pictures."""
    notes = lecture()[:3]
    for each in notes[:2]:
        start_s = each.part.start_s
        each.captions += [Caption(start_s, f"{start_s:.0f}"), Caption(start_s + 9, "later")]
    assert shown_at(notes, 29.5) == notes[1].captions[0]
    assert shown_at(notes, 40) == notes[1].captions[1]
    assert shown_at(notes, 70) is None
    assert shown_at(notes, 750) is None


def test_times_in_a_question() -> None:
    """Hours too; a number is no time."""
    assert times("at 1:02:03", 7200) == [(3722, 3724)]
    assert times("Are there 12 people?", 7200) == []


@given(st.integers(1, 5000), st.integers(1, 65), st.text(max_size=60))
def test_the_room_is_kept(room_chars: int, count: int, question: str) -> None:
    """In order, without doubles, at least one, and within the room unless one alone is larger."""
    notes = lecture()[:count]
    picked = chosen(question, notes, room_chars, 0, 1800)
    indices = [each.part.index for each in picked]
    assert indices == sorted(set(indices))
    assert picked
    assert len(picked) == 1 or sum(len(str(each)) for each in picked) <= room_chars


@given(st.integers(1, 3000))
def test_groups_hold_every_note_once(room_chars: int) -> None:
    """In order, for digests."""
    notes = lecture()
    made = groups(notes, room_chars)
    assert [each for group in made for each in group] == notes
    assert all(group for group in made)


def test_what_two_parts_share_is_written_once() -> None:
    """A line within the overlap belongs to the earlier part's note."""
    part = PLAN.part(1)
    shared = Line(part.start_s + 0.2, part.start_s + 1.5, "twice")
    across = Line(part.start_s + 1, part.start_s + 4, "once")
    text = str(Note(part, "", [shared, across]))
    assert "twice" not in text
    assert "once" in text


def test_scores_are_there_for_every_note() -> None:
    """Also for notes without a word."""
    empty = Note(PLAN.part(0))
    assert scores("anything", [empty, empty], 0, 60) == [0.0, 0.0]
