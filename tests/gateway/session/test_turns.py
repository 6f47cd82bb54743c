"""The turn machine: one table, one setter, and nothing changes on an illegal event."""

from __future__ import annotations

import logging
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.api import TurnRef
from headstart.gateway.session.turns import (
    TRANSITIONS,
    IllegalTurnEventError,
    StaleTurnError,
    TurnEvent,
    TurnMachine,
    TurnState,
    diagram,
)

PATHS: dict[TurnState, list[TurnEvent]] = {
    TurnState.QUIET: [],
    TurnState.HEARING: [TurnEvent.BEGIN],
    TurnState.HUSHED: [TurnEvent.BEGIN, TurnEvent.HUSH],
    TurnState.ANSWERING: [TurnEvent.RESPOND],
    TurnState.HEARING_OVER_ANSWER: [TurnEvent.RESPOND, TurnEvent.BEGIN],
    TurnState.HUSHED_OVER_ANSWER: [TurnEvent.RESPOND, TurnEvent.BEGIN, TurnEvent.HUSH],
}

S = TurnState
SPEECH = {S.HEARING, S.HUSHED, S.HEARING_OVER_ANSWER, S.HUSHED_OVER_ANSWER}
ANSWER = {S.ANSWERING, S.HEARING_OVER_ANSWER, S.HUSHED_OVER_ANSWER}


def apply(machine: TurnMachine, event: TurnEvent) -> None:
    """Apply an event with the ref that is due."""
    ref = machine.ref or TurnRef(0)
    match event:
        case TurnEvent.BEGIN:
            machine.begin(TurnRef(ref.turn + 1))
        case TurnEvent.RESUME:
            machine.resume(TurnRef(ref.turn, ref.revision + 1))
        case TurnEvent.HUSH:
            machine.hush(ref)
        case TurnEvent.END:
            machine.end(ref)
        case TurnEvent.DROP:
            machine.drop(ref)
        case TurnEvent.RESPOND:
            machine.respond()
        case TurnEvent.FINISH:
            machine.finish()


def machine_in(state: TurnState) -> TurnMachine:
    machine = TurnMachine()
    for event in PATHS[state]:
        apply(machine, event)
    assert machine.state is state
    return machine


@pytest.mark.parametrize(("state", "event"), list(product(TurnState, TurnEvent)))
def test_the_table_is_the_law(state: TurnState, event: TurnEvent) -> None:
    """Every event in every state: the table's target, or a named error and no change at all."""
    machine = machine_in(state)
    before = (machine.state, machine.ref, machine.generation)
    target = TRANSITIONS[state].get(event)
    if target is None:
        with pytest.raises(IllegalTurnEventError) as caught:
            apply(machine, event)
        assert (caught.value.state, caught.value.event) == (state, event)
        assert (machine.state, machine.ref, machine.generation) == before
    else:
        apply(machine, event)
        assert machine.state is target


@given(st.lists(st.sampled_from(TurnEvent), max_size=40))
def test_speech_and_answers_are_kept_apart(events: list[TurnEvent]) -> None:
    """Through any legal sequence, the state knows whether an utterance and an answer are open."""
    machine, hearing, answering = TurnMachine(), False, False
    for event in events:
        if event not in TRANSITIONS[machine.state]:
            continue
        apply(machine, event)
        hearing = (hearing or event is TurnEvent.BEGIN) and event not in (
            TurnEvent.END,
            TurnEvent.DROP,
        )
        answering = (answering or event is TurnEvent.RESPOND) and event is not TurnEvent.FINISH
        assert (machine.state in SPEECH, machine.state in ANSWER) == (hearing, answering)


def test_states_are_sorted_once() -> None:
    """Hearing and answering cover all states but quiet."""
    assert set(TurnState) - {TurnState.QUIET} == SPEECH | ANSWER


def test_a_pause_is_still_speech_and_an_answer_is_not() -> None:
    """Speech is open from its beginning to its end, over an answer too."""
    machine, ref = TurnMachine(), TurnRef(1)
    is_open = [machine.speech_is_open]
    for step in (
        machine.respond,
        lambda: machine.begin(ref),
        lambda: machine.hush(ref),
        machine.finish,
        lambda: machine.end(ref),
    ):
        step()
        is_open.append(machine.speech_is_open)
    assert is_open == [False, False, True, True, True, False]


def test_generation_grows_with_each_answer() -> None:
    """Each answer has a number of its own, cancelled or not."""
    machine = TurnMachine()
    numbers = []
    for _ in range(3):
        numbers.append(machine.respond())
        machine.finish()
    assert numbers == [1, 2, 3]
    assert machine.generation == 3


def test_revision_grows_on_resume() -> None:
    """The open utterance's ref follows each resumption, and hush and end want the newest."""
    machine = TurnMachine()
    machine.begin(TurnRef(1))
    machine.hush(TurnRef(1))
    machine.resume(TurnRef(1, 1))
    assert machine.ref == TurnRef(1, 1)
    with pytest.raises(StaleTurnError):
        machine.end(TurnRef(1, 0))
    assert machine.state is TurnState.HEARING
    machine.end(TurnRef(1, 1))


def test_stale_refs_change_nothing() -> None:
    """An old turn cannot begin again, a revision cannot be skipped, another turn not be ended."""
    machine = TurnMachine()
    machine.begin(TurnRef(2))
    with pytest.raises(StaleTurnError, match="turn=1"):
        machine.drop(TurnRef(1))
    machine.hush(TurnRef(2))
    with pytest.raises(StaleTurnError):
        machine.resume(TurnRef(2, 2))
    assert (machine.state, machine.ref) == (TurnState.HUSHED, TurnRef(2))
    machine.end(TurnRef(2))
    with pytest.raises(StaleTurnError):
        machine.begin(TurnRef(2))
    assert machine.state is TurnState.QUIET


def test_illegal_events_say_what_was_possible() -> None:
    """The error names the state, the event and the events it would have taken."""
    with pytest.raises(IllegalTurnEventError, match="while quiet; only begin, respond"):
        TurnMachine().finish()


def test_every_move_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The one setter logs old -> new."""
    with caplog.at_level(logging.DEBUG, logger="headstart.gateway.session.turns"):
        TurnMachine().respond()
    assert "quiet -> answering (respond)" in caplog.text


def test_diagram_shows_every_transition() -> None:
    """The drawing has each state's arrows, made from the table."""
    text = diagram()
    assert text.startswith("stateDiagram-v2\n    [*] --> quiet\n")
    drawn = {
        (left, right, event)
        for line in text.splitlines()[2:]
        for left, rest in [line.strip().split(" --> ")]
        for right, events in [rest.split(": ")]
        for event in events.split(" / ")
    }
    table = {
        (state.value, target.value, event.value)
        for state, row in TRANSITIONS.items()
        for event, target in row.items()
    }
    assert drawn == table
