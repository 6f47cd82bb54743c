"""Whose turn it is: one enum of states, one transition table, one setter.

Speech and answers overlap: a person may begin to speak while an answer runs, and the answer goes on
until it is cancelled (or for good, where `interrupt_response` is false). So a state says both: what
is heard, and whether a response runs. `diagram()` draws the table.

Push-to-talk uses the same machine: the first append is BEGIN, a commit END, a clear DROP.
An utterance ends with END before its answer begins with RESPOND, even when both come at once.
"""

from __future__ import annotations

import logging
from enum import Enum

from headstart.engine.api import TurnRef

logger = logging.getLogger(__name__)


class TurnState(Enum):
    QUIET = "quiet"  # nobody speaks, nothing is answered
    HEARING = "hearing"
    HUSHED = "hushed"  # a short silence: speculation runs
    ANSWERING = "answering"  # a response runs, nobody speaks
    HEARING_OVER_ANSWER = "hearing_over_answer"
    HUSHED_OVER_ANSWER = "hushed_over_answer"


class TurnEvent(Enum):
    BEGIN = "begin"  # speech began
    HUSH = "hush"  # a short silence
    RESUME = "resume"  # speech goes on
    END = "end"  # the endpoint, or a commit
    DROP = "drop"  # no speech after all, or a clear
    RESPOND = "respond"  # an answer begins
    FINISH = "finish"  # it is over: done, cancelled or failed


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
    """The event has no place in this state; nothing was changed."""

    def __init__(self, state: TurnState, event: TurnEvent) -> None:
        self.state = state
        self.event = event
        allowed = ", ".join(e.value for e in TRANSITIONS[state])
        super().__init__(f"{event.value} is not possible while {state.value}; only {allowed}")


class StaleTurnError(Exception):
    """The event is about another utterance than the open one; nothing was changed."""

    def __init__(self, expected: TurnRef | None, got: TurnRef) -> None:
        self.expected = expected
        self.got = got
        super().__init__(f"expected {expected}, got {got}")


class TurnMachine:
    """One session's turn. Apply the listener's events in order, and the answer's as they happen.

    `ref` is the open utterance, or the last one; `generation` the running answer, or the last one;
    0: none yet. Each method raises IllegalTurnEventError, or StaleTurnError for the wrong ref.
    """

    def __init__(self) -> None:
        self._state = TurnState.QUIET
        self.ref: TurnRef | None = None
        self.generation = 0

    @property
    def state(self) -> TurnState:
        return self._state

    def begin(self, ref: TurnRef) -> None:
        """Speech began; its turn number is higher than any before."""
        newer = self.ref is None or ref.turn > self.ref.turn
        self._apply(TurnEvent.BEGIN, ref, self.ref, is_due=newer)
        self.ref = ref

    def hush(self, ref: TurnRef) -> None:
        self._apply(TurnEvent.HUSH, ref, self.ref, is_due=ref == self.ref)

    def resume(self, ref: TurnRef) -> None:
        """Speech goes on; `ref` is the next revision of the open utterance."""
        due = None if self.ref is None else TurnRef(self.ref.turn, self.ref.revision + 1)
        self._apply(TurnEvent.RESUME, ref, due, is_due=ref == due)
        self.ref = ref

    def end(self, ref: TurnRef) -> None:
        self._apply(TurnEvent.END, ref, self.ref, is_due=ref == self.ref)

    def drop(self, ref: TurnRef) -> None:
        self._apply(TurnEvent.DROP, ref, self.ref, is_due=ref == self.ref)

    def respond(self) -> int:
        """An answer begins; its generation."""
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
        """The one place where the state changes."""
        new = TRANSITIONS[self._state].get(event)
        if new is None:
            raise IllegalTurnEventError(self._state, event)
        logger.debug("turn: %s -> %s (%s)", self._state.value, new.value, event.value)
        self._state = new


def diagram() -> str:
    """The table as a mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {TurnState.QUIET.value}"]
    for state, row in TRANSITIONS.items():
        targets: dict[TurnState, list[str]] = {}
        for event, target in row.items():
            targets.setdefault(target, []).append(event.value)
        for target, events in targets.items():
            lines.append(f"    {state.value} --> {target.value}: {' / '.join(events)}")
    return "\n".join(lines) + "\n"
