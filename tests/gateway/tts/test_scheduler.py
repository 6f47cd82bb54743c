"""Whose clause comes next: the listener who would run dry first; nobody is worked for in vain."""

from __future__ import annotations

from headstart.gateway.tts.messages import ClauseDone, Speak, SynthesisedAudio, VoiceEvent
from headstart.gateway.tts.scheduler import CLAUSES_MAX, LEAD_MAX_S, TtsScheduler
from tests.gateway.tts.voices import Beeps


def work_all(scheduler: TtsScheduler, now_s: float = 0.0) -> list[VoiceEvent]:
    events = []
    while scheduler.next_s(now_s) == 0:
        events.append(scheduler.work(now_s))
    return events


def test_an_answer_is_spoken_in_order() -> None:
    """Clause by clause, each with its end."""
    scheduler = TtsScheduler(Beeps())
    scheduler.ask(Speak("a", 1, 0, "one two"))
    scheduler.ask(Speak("a", 1, 1, "three"))
    events = [(type(e).__name__, getattr(e, "clause", None)) for e in work_all(scheduler)]
    assert events == [
        ("SynthesisedAudio", 0),
        ("SynthesisedAudio", 0),
        ("ClauseDone", 0),
        ("SynthesisedAudio", 1),
        ("ClauseDone", 1),
    ]
    assert len(scheduler) == 0
    assert scheduler.next_s(0) is None


def test_a_new_listener_comes_before_one_who_has_something_to_hear() -> None:
    """Somebody who waits for a first word is not behind another one's long answer."""
    scheduler = TtsScheduler(Beeps())
    scheduler.ask(Speak("a", 1, 0, "x " * 50))
    for _ in range(10):
        scheduler.work(0.0)
    scheduler.ask(Speak("b", 1, 0, "first"))
    event = scheduler.work(0.0)
    assert isinstance(event, SynthesisedAudio)
    assert event.session == "b"


def test_a_stop_ends_it_at_once() -> None:
    """Not one piece more is made, of that answer or of that session."""
    voice = Beeps()
    scheduler = TtsScheduler(voice)
    for session, generation in (("a", 1), ("a", 2), ("b", 1)):
        scheduler.ask(Speak(session, generation, 0, "one two three"))
    scheduler.work(0.0)
    scheduler.stop("a", 1)
    assert len(scheduler) == 2
    scheduler.stop("a", None)
    assert {
        event.session for event in work_all(scheduler) if isinstance(event, SynthesisedAudio)
    } == {"b"}
    assert voice.pieces_made == 1 + 3


def test_nobody_is_far_ahead_of_their_listener() -> None:
    """It waits at `LEAD_MAX_S` of sound, and goes on as that is played."""
    scheduler = TtsScheduler(Beeps())
    scheduler.ask(Speak("a", 1, 0, "x " * 1000))
    made = len(work_all(scheduler, 0.0))
    assert abs(made * 0.1 - LEAD_MAX_S) <= 0.11
    wait_s = scheduler.next_s(0.0)
    assert wait_s is not None
    assert 0 < wait_s <= 0.1
    assert len(work_all(scheduler, 5.0)) in (50, 51)


def test_a_clause_that_cannot_be_said_is_told() -> None:
    """The next one is spoken all the same."""
    scheduler = TtsScheduler(Beeps())
    scheduler.ask(Speak("a", 1, 0, "broken"))
    scheduler.ask(Speak("a", 1, 1, "fine"))
    said = [event for event in work_all(scheduler) if isinstance(event, ClauseDone)]
    assert [bool(event.problem) for event in said] == [True, False]


def test_what_waits_has_a_bound() -> None:
    """One clause too many is refused by name."""
    scheduler = TtsScheduler(Beeps())
    for number in range(CLAUSES_MAX):
        assert scheduler.ask(Speak("a", 1, number, "x")) is None
    refused = scheduler.ask(Speak("a", 1, CLAUSES_MAX, "x"))
    assert isinstance(refused, ClauseDone)
    assert refused.problem


def test_answers_that_are_over_are_forgotten() -> None:
    """However many a session has: once they are played nothing is kept of them."""
    scheduler = TtsScheduler(Beeps())
    for generation in range(100):
        scheduler.ask(Speak("a", generation, 0, "one"))
        work_all(scheduler, float(generation))
    assert len(scheduler._answers) <= 2
