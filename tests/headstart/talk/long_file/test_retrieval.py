import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.talk.long_file.notes import Caption, Note, groups
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.retrieval import chosen, scores, times, to_the_point
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


# --- lines ----------------------------------------------------------------------------------------


def shown_and_said() -> list[Note]:
    """A lion from 0:30 on, a slide at 1:00, a bird at 1:06, and a sentence in two lines."""
    first, second = Note(PLAN.part(1)), Note(PLAN.part(2))
    first.captions = [Caption(30, "I see a lion.")]
    first.heard = [Line(32, 35, "The museum in the old town"), Line(36, 38, "closes on Monday.")]
    first.heard.append(Line(48, 50, "That is all."))
    second.captions = [
        Caption(60.5, "I can't tell what this is.", ("Lesson 12", "How glass is made")),
        Caption(66, "I see a bird."),
    ]
    second.heard = [Line(62, 64, "It was a quiet afternoon.")]
    return [first, second]


SLIDE = '1:00 shown: a text that says "Lesson 12 / How glass is made"'


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which lesson is about glass?", [SLIDE]),
        ("What does the slide say at 1:03?", [SLIDE]),
        ("What text is shown at 1:00?", [SLIDE]),  # as clocks show it
        ("What is shown at 0:55?", ["0:30 shown: I see a lion.", '0:48 said: "That is all."']),
        ("What does the speaker say at 1:05?", ['1:02 said: "It was a quiet afternoon."']),
        (
            "When does the museum close?",  # a sentence goes on behind a short pause
            ['0:32 said: "The museum in the old town"', '0:36 said: "closes on Monday."'],
        ),
        ("When is the bird shown?", ["1:06 shown: I see a bird."]),
        ("What is it about?", []),
        ("Summarise the lesson.", []),
        ("Who is the president?", []),
    ],
)
def test_the_lines_that_a_question_is_about(question: str, expected: list[str]) -> None:
    """By its words, or by the time that it names; none if it is about no line or about all."""
    assert list(map(str, to_the_point(question, shown_and_said()))) == expected


def test_what_is_shown_at_a_time() -> None:
    """The newest picture of that part; nothing behind the end, or of a part without pictures."""
    notes = [Note(PLAN.part(index)) for index in range(3)]
    for each in notes[:2]:
        each.captions = [Caption(each.part.start_s + s, f"A {s}.") for s in (0, 9)]

    def shown(at: str) -> list[str]:
        return [str(entry) for entry in to_the_point(f"What is at {at}?", notes)]

    assert shown("0:29") == ["0:28 shown: A 0."]
    assert shown("0:40") == ["0:37 shown: A 9."]
    assert shown("1:10") == []
    assert shown("12:30") == []


def test_one_of_many_lines_that_say_the_same() -> None:
    """A lion that stands there for minutes is one line, from when it came."""
    notes = [Note(PLAN.part(index)) for index in range(9)]
    for each in notes:
        each.captions = [Caption(each.part.new_s, "I see a lion.")]
    assert [str(e) for e in to_the_point("When is a lion shown?", notes)] == [
        "0:00 shown: I see a lion."
    ]


def test_it_begins_with_the_first_of_many_lines() -> None:
    """Asked when it is shown; otherwise many lines are none."""
    notes = [Note(PLAN.part(index)) for index in range(3)]
    for each, kind in zip(notes, ("brown", "black", "big"), strict=True):
        each.captions = [Caption(each.part.new_s, f"I see a {kind} cat.")]
    assert [e.text for e in to_the_point("When is the cat shown?", notes)] == ["I see a brown cat."]
    assert to_the_point("What colour is the cat?", notes) == []


def test_many_lines_are_not_to_the_point() -> None:
    """Which of them is meant is for whoever reads the notes."""
    notes = [note(index, f"the number of whales is {index}") for index in range(9)]
    assert to_the_point("What is the number of whales?", notes) == []


@given(st.text(max_size=60))
def test_lines_are_those_of_the_notes(question: str) -> None:
    """In order, without doubles, whatever is asked."""
    notes = shown_and_said()
    found = to_the_point(question, notes)
    assert len(found) == len(set(found))
    assert [e.start_s for e in found] == sorted(e.start_s for e in found)
    assert set(found) <= {entry for each in notes for entry in each.entries()}


# --- captions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("A man at a board.", 'A man at a board. It has a text that says "Lesson 12 / Glass"'),
        ("I can't tell what this is. It's white.", 'a text that says "Lesson 12 / Glass"'),
        ("I can\u2019t tell what this is. It's white.", 'a text that says "Lesson 12 / Glass"'),
        ('A slide that says "Lesson 12 / Glass".', 'a text that says "Lesson 12 / Glass"'),
    ],
)
def test_what_is_written_stands_once(said: str, expected: str) -> None:
    """A caption that does not know, or only repeats it, says nothing beside it."""
    note_ = Note(PLAN.part(0), captions=[Caption(3, said, ("Lesson 12", "Glass"))])
    assert str(note_).splitlines()[1:] == [f"0:03 shown: {expected}"]
    assert note_.summary == expected


@pytest.mark.parametrize(
    ("said", "written"),
    [("A red exit sign hangs above a wooden door.", "EXIT"), ("Two boxes side by side.", "→")],
)
def test_what_else_is_shown_is_kept(said: str, written: str) -> None:
    """Beside few written words, or none, a caption tells more than them."""
    note_ = Note(PLAN.part(0), captions=[Caption(3, said, (written,))])
    assert note_.summary == f'{said} It has a text that says "{written}"'
