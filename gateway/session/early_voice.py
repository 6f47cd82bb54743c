"""The beginning of an answer that nobody has asked for yet, for the voice to make its first sound.

    silence ─▶ the model begins an answer ─▶ `Prepared`, with each token ─▶ its first clause
    ─▶ `Prepare` to the voice ─▶ the turn ends, and its first sound is there

A turn that may end before a clause is whole (`eager`) has a first phrase instead.
Where the model finds that the message goes on, the voice is told nothing: most such silences are
pauses. A response that begins otherwise is spoken as if nothing had been prepared.
"""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.session.context import SessionContext
from headstart.gateway.tts.messages import Prepare
from headstart.gateway.tts.spoken_response import SpokenResponse

LIKELY_OVER = 0.5
"""How likely the message must be over, by the model, if it says so."""


class EarlyVoice:
    """What the voice of one session was told ahead."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._silence: api.TurnRef | None = None  # the newest
        self._goes_on = False  # the message, behind it
        self._clause = ""  # told in it

    def end_of_message(self, event: api.EndOfMessage) -> None:
        """The model's estimate for the silence, which comes before any text of an answer."""
        self._begin(event.ref)
        self._goes_on = event.probability < LIKELY_OVER

    def prepared(self, event: api.Prepared, *, hurry: bool) -> None:
        """An answer says more: tell the voice of its first clause, once for each silence. With
        `hurry`, a first phrase will do."""
        self._begin(event.ref)
        if self._goes_on or self._clause:
            return
        self._clause = clause = _first_clause(event, hurry=hurry)
        if clause:
            context = self._context
            context.send_to_tts(Prepare(context.session_id, clause, context.config.speed))

    def take(self, turn: int) -> str:
        """The clause that the voice was told of for the answer to that turn, or ""."""
        clause, silence = self._clause, self._silence
        self._silence, self._goes_on, self._clause = None, False, ""
        return clause if silence is not None and turn == silence.turn else ""

    def _begin(self, silence: api.TurnRef) -> None:
        if silence != self._silence:
            self._silence, self._goes_on, self._clause = silence, False, ""


def _first_clause(prepared: api.Prepared, *, hurry: bool) -> str:
    trial = SpokenResponse()
    clauses = trial.words(prepared.text, 0, hurry=hurry and not prepared.complete)
    if not clauses and prepared.complete:
        clauses = trial.end(0)
    return clauses[0][1] if clauses else ""
