"""One response that runs."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.engine import api
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import Place
from headstart.gateway.session.function_calls import FunctionCalls
from headstart.gateway.session.response import Response, ResponseRequest, kv_to_wire
from headstart.gateway.session.speech_output import voice_report
from headstart.gateway.telemetry.latency import TurnBudget, TurnStamps, Unmeasured
from headstart.gateway.tts.spoken_response import SpokenResponse


@dataclass(slots=True)
class ActiveResponse:
    """One response that runs, with the stamps its budget is made of."""

    request: ResponseRequest
    response: Response
    calls: FunctionCalls
    stamps: TurnStamps
    turn: int = 0  # the utterance it answers; 0: none
    question_id: str | None = None
    budget: TurnBudget | Unmeasured | None = None
    stamp_pending: bool = False  # its first delta is on its way to the socket
    finished: api.Finished | None = None  # over before that delta was on the wire
    speaking: SpokenResponse | None = None  # of a spoken answer
    text_over: api.Finished | None = None  # the engine is through with it, the voice is not
    place: Place | None = None  # in the conversation; None: it is out of band
    said: str = ""  # once it is over: its text as the engine keeps it in the conversation
    own_input: bool = False  # it answers items of its own, and joins the conversation
    announced: bool = False  # the client knows of it

    @property
    def generation(self) -> int:
        return self.response.facts.generation

    @property
    def item_id(self) -> str:
        """Of the message, if it says anything."""
        return self.response.facts.item_id

    def grows(self, item_id: str) -> bool:
        """Whether more of it may still come into that item."""
        is_message = self.response.opened and self.item_id == item_id
        return is_message or self.calls.is_open(item_id)


def send_report(context: SessionContext, running: ActiveResponse, event: api.Finished) -> None:
    """Its latency report, once it is over and its first token sent."""
    if running.budget is None:
        return  # nothing was ever sent, so there is no first token to count to
    usage = event.usage
    context.send_ours(
        "latency",
        context.events.latency_report(
            turn=running.turn,
            item_id=running.question_id if running.question_id in context.conversation else None,
            response_id=running.response.facts.response_id,
            budget=running.budget.to_wire(),
            kv=kv_to_wire(event.kv),
            chunks=context.chunks.to_wire(),
            usage={
                "input_tokens": usage.input,
                "cached_tokens": usage.cached,
                "output_tokens": usage.output,
                "speculated_tokens": usage.speculated,
                "wasted_tokens": usage.wasted,
            },
            decode_tok_s=event.decode_tok_s,
            voice=voice_report(running.speaking, running.stamps, running.budget),
        ),
    )
