"""Whose clause comes next: the listener who would run dry first; nobody is worked for in vain."""

from __future__ import annotations

import pytest

from headstart.gateway.tts.messages import (
    ClauseDone,
    Prepare,
    Speak,
    SynthesisedAudio,
    VoiceEvent,
)
from headstart.gateway.tts.scheduler import (
    CLAUSES_MAX,
    EARLY_LEAD_S,
    EARLY_MAX,
    LEAD_MAX_S,
    TtsScheduler,
)
from tests.gateway.tts.voices import Beeps


def work_all(scheduler: TtsScheduler, now_s: float = 0.0) -> list[VoiceEvent]:
    events = []
    while scheduler.next_s(now_s) == 0:
        event = scheduler.work(now_s)
        events += [] if event is None else [event]
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


def test_the_first_piece_is_made_ahead() -> None:
    """One piece and no more; the response that begins so has it at once, and is the same."""
    voice, plain = Beeps(), TtsScheduler(Beeps())
    scheduler = TtsScheduler(voice)
    scheduler.prepare(Prepare("a", "one two three"))
    assert work_all(scheduler) == []
    assert voice.pieces_made == 1
    assert scheduler.next_s(0.0) is None
    for each in (scheduler, plain):
        each.ask(Speak("a", 1, 0, "one two three"))
        each.ask(Speak("a", 1, 1, "four"))
    first = scheduler.work(0.0)
    assert isinstance(first, SynthesisedAudio)
    assert voice.pieces_made == 1
    assert [first, *work_all(scheduler)] == work_all(plain)


@pytest.mark.parametrize(
    "speak",
    [Speak("a", 1, 0, "one four"), Speak("a", 1, 0, "one two", 1.5), Speak("b", 1, 0, "one two")],
)
def test_another_beginning_is_spoken_anew(speak: Speak) -> None:
    """Other words, another speed, another session: as if nothing had been made."""
    voice, plain = Beeps(), TtsScheduler(Beeps())
    scheduler = TtsScheduler(voice)
    scheduler.prepare(Prepare("a", "one two"))
    work_all(scheduler)
    scheduler.ask(speak)
    plain.ask(speak)
    assert work_all(scheduler) == work_all(plain)
    assert voice.pieces_made == 1 + 2


def test_another_response_leaves_it_to_the_next() -> None:
    """One out of band, for example, which is spoken in between."""
    voice = Beeps()
    scheduler = TtsScheduler(voice)
    scheduler.prepare(Prepare("a", "one two"))
    scheduler.ask(Speak("a", -1, 0, "three"))
    work_all(scheduler)
    scheduler.ask(Speak("a", 1, 0, "one two"))
    work_all(scheduler)
    assert voice.pieces_made == 1 + 2


def test_what_was_made_ahead_is_for_one_response() -> None:
    """The next response with the same words is made from its beginning; so is a later clause."""
    voice = Beeps()
    scheduler = TtsScheduler(voice)
    scheduler.prepare(Prepare("a", "one two"))
    work_all(scheduler)
    for generation in (1, 2):
        scheduler.ask(Speak("a", generation, 0, "one two"))
        assert len(work_all(scheduler, generation * 10.0)) == 3
    assert voice.pieces_made == 2 + 2
    scheduler.ask(Speak("a", 3, 0, "x"))
    scheduler.prepare(Prepare("a", "one two"))
    scheduler.ask(Speak("a", 3, 1, "one two"))
    assert len(work_all(scheduler, 30.0)) == 2 + 3


def test_a_beginning_waits_for_a_listener_who_would_run_dry() -> None:
    """Whoever has less than `EARLY_LEAD_S` left comes first; whoever has more waits."""
    voice = Beeps()
    scheduler = TtsScheduler(voice)
    scheduler.ask(Speak("a", 1, 0, "x " * 50))
    scheduler.prepare(Prepare("b", "one"))
    pieces = 0
    while isinstance(scheduler.work(0.0), SynthesisedAudio):
        pieces += 1
    assert pieces * 0.1 == pytest.approx(EARLY_LEAD_S, abs=0.11)
    assert voice.pieces_made == pieces + 1


def test_beginnings_are_replaced_forgotten_and_bounded() -> None:
    """A later one takes the place; a session that leaves takes its own along; the oldest goes."""
    voice = Beeps()
    scheduler = TtsScheduler(voice)
    scheduler.prepare(Prepare("a", "one"))
    scheduler.prepare(Prepare("a", "two"))
    scheduler.prepare(Prepare("b", "three"))
    scheduler.stop("b", None)
    work_all(scheduler)
    assert voice.pieces_made == 1
    scheduler.prepare(Prepare("a", "two"))  # the same again: it is there
    work_all(scheduler)
    assert voice.pieces_made == 1
    for number in range(EARLY_MAX + 1):
        scheduler.prepare(Prepare(f"s{number}", "x"))
    work_all(scheduler)
    made = voice.pieces_made
    scheduler.ask(Speak("s0", 1, 0, "x"))
    scheduler.ask(Speak("s1", 1, 0, "x"))
    scheduler.ask(Speak("s256", 1, 0, "x"))
    work_all(scheduler)
    assert voice.pieces_made == made + 1  # s0's alone


def test_a_beginning_that_cannot_be_said_is_nobodys_fault() -> None:
    """The response itself says why, if it comes."""

    scheduler = TtsScheduler(Beeps())
    scheduler.prepare(Prepare("a", "broken"))
    assert work_all(scheduler) == []
    scheduler.ask(Speak("a", 1, 0, "broken"))
    (event,) = work_all(scheduler)
    assert isinstance(event, ClauseDone)
    assert "no such sound" in event.problem
