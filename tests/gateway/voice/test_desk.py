"""Whose clause comes next: the listener who would run dry first; nobody is worked for in vain."""

from __future__ import annotations

from gateway.voice.desk import CLAUSES_MAX, LEAD_MAX_S, Desk
from gateway.voice.messages import Said, Sound, Speak, VoiceEvent
from tests.gateway.voice.voices import Beeps


def work_all(desk: Desk, now_s: float = 0.0) -> list[VoiceEvent]:
    events = []
    while desk.next_s(now_s) == 0:
        events.append(desk.work(now_s))
    return events


def test_an_answer_is_spoken_in_order() -> None:
    """Clause by clause, each with its end."""
    desk = Desk(Beeps())
    desk.ask(Speak("a", 1, 0, "one two"))
    desk.ask(Speak("a", 1, 1, "three"))
    events = [(type(e).__name__, getattr(e, "clause", None)) for e in work_all(desk)]
    assert events == [("Sound", 0), ("Sound", 0), ("Said", 0), ("Sound", 1), ("Said", 1)]
    assert len(desk) == 0
    assert desk.next_s(0) is None


def test_a_new_listener_comes_before_one_who_has_something_to_hear() -> None:
    """Somebody who waits for a first word is not behind another one's long answer."""
    desk = Desk(Beeps())
    desk.ask(Speak("a", 1, 0, "x " * 50))
    for _ in range(10):
        desk.work(0.0)
    desk.ask(Speak("b", 1, 0, "first"))
    event = desk.work(0.0)
    assert isinstance(event, Sound)
    assert event.session == "b"


def test_a_stop_ends_it_at_once() -> None:
    """Not one piece more is made, of that answer or of that session."""
    voice = Beeps()
    desk = Desk(voice)
    for session, generation in (("a", 1), ("a", 2), ("b", 1)):
        desk.ask(Speak(session, generation, 0, "one two three"))
    desk.work(0.0)
    desk.stop("a", 1)
    assert len(desk) == 2
    desk.stop("a", None)
    assert {event.session for event in work_all(desk) if isinstance(event, Sound)} == {"b"}
    assert voice.pieces_made == 1 + 3


def test_nobody_is_far_ahead_of_their_listener() -> None:
    """It waits at `LEAD_MAX_S` of sound, and goes on as that is played."""
    desk = Desk(Beeps())
    desk.ask(Speak("a", 1, 0, "x " * 1000))
    made = len(work_all(desk, 0.0))
    assert abs(made * 0.1 - LEAD_MAX_S) <= 0.11
    wait_s = desk.next_s(0.0)
    assert wait_s is not None
    assert 0 < wait_s <= 0.1
    assert len(work_all(desk, 5.0)) in (50, 51)


def test_a_clause_that_cannot_be_said_is_told() -> None:
    """The next one is spoken all the same."""
    desk = Desk(Beeps())
    desk.ask(Speak("a", 1, 0, "broken"))
    desk.ask(Speak("a", 1, 1, "fine"))
    said = [event for event in work_all(desk) if isinstance(event, Said)]
    assert [bool(event.problem) for event in said] == [True, False]


def test_what_waits_has_a_bound() -> None:
    """One clause too many is refused by name."""
    desk = Desk(Beeps())
    for number in range(CLAUSES_MAX):
        assert desk.ask(Speak("a", 1, number, "x")) is None
    refused = desk.ask(Speak("a", 1, CLAUSES_MAX, "x"))
    assert isinstance(refused, Said)
    assert refused.problem


def test_answers_that_are_over_are_forgotten() -> None:
    """However many a session has: once they are played nothing is kept of them."""
    desk = Desk(Beeps())
    for generation in range(100):
        desk.ask(Speak("a", generation, 0, "one"))
        work_all(desk, float(generation))
    assert len(desk._answers) <= 2
