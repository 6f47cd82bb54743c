"""Whose turn it is: one enum of states, one transition table, one setter.

Speech and responses overlap: the user may begin to speak while a response is active, and the
response continues until it is cancelled (or to its end, if `interrupt_response` is false). A state
therefore says both whether there is speech and whether a response is active. `diagram()` draws the
table.

Push-to-talk uses the same machine: the first append is BEGIN, a commit END, a clear DROP. An
utterance ends with END before its response begins with RESPOND, even when both come at once.

"""

from __future__ import annotations

import logging
from enum import Enum

from headstart.engine.api import TurnRef

logger = logging.getLogger(__name__)


class TurnState(Enum):
    """Whether there is speech, and whether a response is active."""

    QUIET = "quiet"  # no speech, no response
    HEARING = "hearing"
    HUSHED = "hushed"  # a short pause in speech: speculation runs
    ANSWERING = "answering"  # a response is active, no speech
    HEARING_OVER_ANSWER = "hearing_over_answer"
    HUSHED_OVER_ANSWER = "hushed_over_answer"


class TurnEvent(Enum):
    """What moves a turn from one state to another."""

    BEGIN = "begin"  # speech began
    HUSH = "hush"  # a short pause
    RESUME = "resume"  # speech continues
    END = "end"  # the endpoint, or a commit
    DROP = "drop"  # it was no speech, or a clear
    RESPOND = "respond"  # a response begins
    FINISH = "finish"  # the response is over: done, cancelled or failed


_S, _E = TurnState, TurnEvent
TRANSITIONS: dict[TurnState, dict[TurnEvent, TurnState]] = {
    _S.QUIET: {
        _E.BEGIN: _S.HEARING,
        _E.RESPOND: _S.ANSWERING,
    },
    _S.HEARING: {
        _E.HUSH: _S.HUSHED,
        _E.END: _S.QUIET,
        _E.DROP: _S.QUIET,
        _E.RESPOND: _S.HEARING_OVER_ANSWER,
    },
    _S.HUSHED: {
        _E.RESUME: _S.HEARING,
        _E.END: _S.QUIET,
        _E.DROP: _S.QUIET,
        _E.RESPOND: _S.HUSHED_OVER_ANSWER,
    },
    _S.ANSWERING: {
        _E.BEGIN: _S.HEARING_OVER_ANSWER,
        _E.FINISH: _S.QUIET,
    },
    _S.HEARING_OVER_ANSWER: {
        _E.HUSH: _S.HUSHED_OVER_ANSWER,
        _E.END: _S.ANSWERING,
        _E.DROP: _S.ANSWERING,
        _E.FINISH: _S.HEARING,
    },
    _S.HUSHED_OVER_ANSWER: {
        _E.RESUME: _S.HEARING_OVER_ANSWER,
        _E.END: _S.ANSWERING,
        _E.DROP: _S.ANSWERING,
        _E.FINISH: _S.HUSHED,
    },
}


class IllegalTurnEventError(Exception):
    """The event is not allowed in this state; the state is unchanged."""

    def __init__(self, state: TurnState, event: TurnEvent) -> None:
        self.state = state
        self.event = event
        allowed = ", ".join(e.value for e in TRANSITIONS[state])
        super().__init__(f"{event.value} is not possible while {state.value}; only {allowed}")


class StaleTurnError(Exception):
    """The event is about an utterance other than the open one; the state is unchanged."""

    def __init__(self, expected: TurnRef | None, got: TurnRef) -> None:
        self.expected = expected
        self.got = got
        super().__init__(f"expected {expected}, got {got}")


class TurnMachine:
    """The turn state of one session. Apply the segmenter's events in order, and the response's as
    they happen.

    `ref` is the open utterance, or the last one; `generation` the active response, or the last one;
    0: none yet. Each method raises IllegalTurnEventError, or StaleTurnError for the wrong ref.

    """

    def __init__(self) -> None:
        self._state = TurnState.QUIET
        self.ref: TurnRef | None = None
        self.generation = 0

    @property
    def state(self) -> TurnState:
        return self._state

    @property
    def speech_is_open(self) -> bool:
        """Whether the user is speaking, short pauses included."""
        return self._state not in (TurnState.QUIET, TurnState.ANSWERING)

    def begin(self, ref: TurnRef) -> None:
        """Speech begins; its turn number is higher than any before."""
        newer = self.ref is None or ref.turn > self.ref.turn
        self._apply(TurnEvent.BEGIN, ref, self.ref, is_due=newer)
        self.ref = ref

    def hush(self, ref: TurnRef) -> None:
        self._apply(TurnEvent.HUSH, ref, self.ref, is_due=ref == self.ref)

    def resume(self, ref: TurnRef) -> None:
        """Speech continues; `ref` is the next revision of the open utterance."""
        due = None if self.ref is None else TurnRef(self.ref.turn, self.ref.revision + 1)
        self._apply(TurnEvent.RESUME, ref, due, is_due=ref == due)
        self.ref = ref

    def end(self, ref: TurnRef) -> None:
        self._apply(TurnEvent.END, ref, self.ref, is_due=ref == self.ref)

    def drop(self, ref: TurnRef) -> None:
        self._apply(TurnEvent.DROP, ref, self.ref, is_due=ref == self.ref)

    def respond(self) -> int:
        """A response begins; returns its generation."""
        self._move(TurnEvent.RESPOND)
        self.generation += 1
        return self.generation

    def finish(self) -> None:
        self._move(TurnEvent.FINISH)

    def _apply(
        self, event: TurnEvent, ref: TurnRef, expected: TurnRef | None, *, is_due: bool
    ) -> None:
        if event not in TRANSITIONS[self._state]:
            raise IllegalTurnEventError(self._state, event)
        if not is_due:
            raise StaleTurnError(expected, ref)
        self._move(event)

    def _move(self, event: TurnEvent) -> None:
        """The only place where the state changes."""
        new = TRANSITIONS[self._state].get(event)
        if new is None:
            raise IllegalTurnEventError(self._state, event)
        logger.debug("turn: %s -> %s (%s)", self._state.value, new.value, event.value)
        self._state = new


def diagram() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {TurnState.QUIET.value}"]
    for state, row in TRANSITIONS.items():
        targets: dict[TurnState, list[str]] = {}
        for event, target in row.items():
            targets.setdefault(target, []).append(event.value)
        for target, events in targets.items():
            lines.append(f"    {state.value} --> {target.value}: {' / '.join(events)}")
    return "\n".join(lines) + "\n"
