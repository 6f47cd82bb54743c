"""A session's answers: responses asked for, running, cancelled, and their latency budgets.

At most one response runs in the conversation; any number may run out of band, up to
`MAX_OUT_OF_BAND` at once.
"""

from __future__ import annotations

import dataclasses

import msgspec
from openai.types.realtime import ConversationItemTruncateEvent, RealtimeResponseCreateParams

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.items import Json
from headstart.gateway.session.active_response import (
    ActiveResponse,
    close_message,
    open_message,
    settle,
    text_over,
    withdraw,
)
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.early_voice import EarlyVoice
from headstart.gateway.session.function_calls import FunctionCalls
from headstart.gateway.session.response import (
    CancelReason,
    Ending,
    Response,
    ResponseFacts,
    ResponseRequest,
    ending_of,
    failed,
)
from headstart.gateway.session.speech_output import SpeechOutput
from headstart.gateway.session.turn_reports import TurnReports
from headstart.gateway.telemetry.latency import BudgetError, TurnBudget, TurnStamps, Unmeasured
from headstart.gateway.tts.messages import ClauseDone, SynthesisedAudio
from headstart.gateway.tts.spoken_response import SpokenResponse

MAX_OUT_OF_BAND = 4


class ResponseManager:
    """Responses by generation, the engine's name for them."""

    def __init__(
        self,
        context: SessionContext,
        out: SpeechOutput,
        reports: TurnReports,
        early_voice: EarlyVoice,
    ) -> None:
        self._context = context
        self._out = out
        self._early_voice = early_voice
        self._reports = reports
        self._running: dict[int, ActiveResponse] = {}
        self._main: ActiveResponse | None = None
        self._spoken: ActiveResponse | None = None  # the newest that answers speech
        self._is_held = False  # until it is known whether somebody interrupts
        self._aside_generation = 0
        self._stamping: list[ActiveResponse] = []  # waiting for `sent`, in order
        context.uses_ids(self._uses_id)
        self.given = 0
        """Answers in the conversation that the client knows of and that ended without a fault."""

    @property
    def active(self) -> bool:
        """Whether a response runs in the conversation."""
        return self._main is not None

    @property
    def is_active(self) -> bool:
        """Whether that response is not being cancelled either."""
        return self._main is not None and self._main.response.cancel_reason is None

    @property
    def has_no_output(self) -> bool:
        """Whether such a response has not said anything yet."""
        main = self._main
        if main is None or not self.is_active:
            return False
        return not main.response.opened and not main.calls.begun

    def _uses_id(self, item_id: str) -> bool:
        """Whether a running response has, or may get, an item with that id, be it out of band."""
        return any(running.owns(item_id) for running in self._running.values())

    def answers_with(self, turn: int, item_id: str) -> bool:
        """Whether that is an item of the answer to that turn, running or over."""
        answer = self._answer_to(turn)
        return answer is not None and answer.owns(item_id)

    def audible(self, now_ns: int) -> bool:
        """Whether a response goes on, or sound of one may still be playing."""
        return self.is_active or self._out.audible(now_ns)

    def active_item(self) -> Json | None:
        """The item that is growing in the conversation, as far as it has got."""
        main = self._main
        if (
            main is None
            or not main.response.opened
            or main.item_id not in self._context.conversation
        ):
            return None
        return main.response.item("in_progress")

    # --- asked for -------------------------------------------------------------------------------

    def answer_speech(
        self, stamps: TurnStamps, turn: int, item_id: str, *, said: bool, calls_from_ns: int = 0
    ) -> None:
        """A spoken turn is over and wants its answer. Unless something was `said`, the client is
        told of it only when there are words, or an answer: as a rule there will be neither.
        `calls_from_ns`: until then function calls are held back."""
        prepared = self._early_voice.take(turn)
        running = self._spoken = self._begin(ResponseRequest(), stamps, prepared=prepared)
        running.turn, running.question_id = turn, item_id
        running.calls_from_ns = calls_from_ns
        self._start(running, None, only_if_heard=True, announce=said)

    def said(self, turn: int) -> None:
        """There are words in that turn."""
        if self._main is not None and self._main.turn == turn:
            self._announce(self._main)

    def create(
        self,
        params: RealtimeResponseCreateParams | None,
        input_items: tuple[api.Item, ...] | None,
        now_ns: int,
    ) -> None:
        """A client's `response.create`. Raises `ProtocolError`."""
        stamps = TurnStamps(sent_ns=now_ns, requested_ns=now_ns)
        request = ResponseRequest.of(params, self._context.config)
        if request.out_of_band:
            items = (
                input_items if input_items is not None else self._context.conversation.for_engine()
            )
            self._start(self._begin(request, stamps), items)
            return
        if self._main is not None:
            self._announce(self._main)  # the error names it
            raise errors.active_response(self._main.response.facts.response_id)
        running = self._begin(request, stamps, own_input=input_items is not None)
        self._start(running, input_items)

    def cancel(self, response_id: str | None) -> None:
        """A client's `response.cancel`. Raises `ProtocolError` when there is nothing to cancel."""
        for running in self._running.values():
            facts = running.response.facts
            wanted = running is self._main if response_id is None else False
            if wanted or facts.response_id == response_id:
                self._announce(running)
                self._cancel(running, "client_cancelled")
                return
        raise errors.cancel_not_active()

    def give_up(self, item_id: str) -> bool:
        """An item was deleted. Where a response still grows in it, the response ends; whether that
        was so."""
        main = self._main
        if main is None or not main.grows(item_id):
            return False
        self._cancel(main, "client_cancelled")
        return True

    def interrupt(self) -> None:
        """Somebody speaks over the answer, or over what is still played of the last one."""
        if self._main is not None:
            self._cancel(self._main, "turn_detected")
        self._out.drop()

    def hold(self, now_ns: int) -> None:
        """Somebody speaks who may mean to interrupt."""
        self._is_held = True
        self._out.hold(now_ns)

    def release(self, now_ns: int) -> None:
        """That is settled."""
        self._is_held = False
        self._out.release(now_ns)

    # --- taken back ------------------------------------------------------------------------------

    def may_withdraw(self, turn: int, item_id: str) -> bool:
        """Whether what followed that turn's item can be taken back: only its own answer, of which
        no function call has reached the client."""
        answer = self._answer_to(turn)
        if self._main is not None and self._main is not answer:
            return False
        behind = self._context.conversation.behind(item_id)
        if behind is None:
            return False
        if answer is None:
            return not behind
        return not answer.calls.is_told and {answer.item_id, *answer.calls.item_ids} >= set(behind)

    def is_heard(self, turn: int, now_ns: int) -> bool:
        """Whether the answer to that turn was spoken and played to its end."""
        answer = self._answer_to(turn)
        if answer is None or answer.speaking is None or answer.generation in self._running:
            return False
        is_cut = answer.response.cancel_reason is not None or answer.speaking.is_cut
        return answer.speaking.samples > 0 and not is_cut and not self._out.audible(now_ns)

    def take_back(self, turn: int, now_ns: int) -> None:
        """Before `interrupt`: the answer to that turn is not to count as said."""
        answer = self._answer_to(turn)
        if answer is not None and answer.revoked_ns is None:
            answer.revoked_ns = now_ns
            answer.early_calls.clear()

    def withdraw(self, turn: int) -> tuple[str, str | None]:
        """Delete the items of an answer that was taken back; those of a running one follow when it
        is over. Returns its id as an item, for the engine, and the response's, if the client knows
        of it; "" and None if there is no answer."""
        answer = self._answer_to(turn)
        if answer is None:
            return "", None
        if answer.generation not in self._running:
            withdraw(self._context, answer)
        self._reports.revoked(answer)
        return answer.item_id, answer.response.facts.response_id if answer.announced else None

    def _answer_to(self, turn: int) -> ActiveResponse | None:
        answer = self._spoken
        return answer if answer is not None and answer.turn == turn else None

    def release_calls(self, now_ns: int) -> None:
        """Tell the client of the function calls that were held back for long enough."""
        running = self._main
        if running is None or not running.early_calls or self._is_held:
            return
        if now_ns < running.calls_from_ns:
            return
        calls, running.early_calls = running.early_calls, []
        for event in calls:
            self.called(event, now_ns)
        self._conclude_if_spoken(running)

    def _cancel(self, running: ActiveResponse, reason: CancelReason) -> None:
        """Nothing more of it is sent; the engine's `Finished` closes it within a step."""
        if running.response.cancel_reason is not None:
            return
        running.response.cancel_reason = reason
        if running.speaking is not None:
            self._out.stop(running.generation)
        if running.text_over is None:
            self._context.send_to_engine(api.Cancel(self._context.session_id, running.generation))
        else:
            cancelled = msgspec.structs.replace(
                running.text_over, reason=api.FinishReason.CANCELLED
            )
            self._conclude(running, cancelled)

    def _begin(
        self,
        request: ResponseRequest,
        stamps: TurnStamps,
        *,
        own_input: bool = False,
        prepared: str = "",
    ) -> ActiveResponse:
        context = self._context
        out_of_band = request.out_of_band
        if out_of_band and len(self._running) - self.active >= MAX_OUT_OF_BAND:
            raise errors.server_error(
                "rate_limit_exceeded",
                f"At most {MAX_OUT_OF_BAND} responses may run out of band at once in a session.",
            )
        facts = ResponseFacts(
            response_id=context.ids.response(),
            item_id=context.ids.item(),
            generation=self._next_aside() if out_of_band else context.turns.respond(),
            conversation_id=None if out_of_band else context.conversation_id,
            max_output_tokens=request.max_output_tokens or context.config.max_output_tokens,
            metadata=request.metadata,
            audio=context.config.response_audio(request.modality, request.sound_format),
        )
        place = None if out_of_band else context.conversation.reserve()
        in_engine = not (out_of_band or own_input)
        calls = FunctionCalls(context, facts, place, in_engine=in_engine)
        running = ActiveResponse(request, Response(facts, context.events), calls, stamps)
        running.place, running.own_input = place, own_input
        if facts.spoken:
            running.speaking = SpokenResponse(prepared)
        self._running[facts.generation] = running
        self._reports.begun(running)
        if not out_of_band:
            self._main = running
        return running

    def _next_aside(self) -> int:
        """Generations of out-of-band answers count down from -1: they are not the turns'."""
        self._aside_generation -= 1
        return self._aside_generation

    def _start(
        self,
        running: ActiveResponse,
        items: tuple[api.Item, ...] | None,
        *,
        only_if_heard: bool = False,
        announce: bool = True,
    ) -> None:
        context, request = self._context, running.request
        facts = running.response.facts
        if announce:
            self._announce(running)
        if not context.engine_up:
            self._end(running, failed("engine_unavailable", "The engine is not ready; try again."))
            return
        context.send_to_engine(
            api.Respond(
                session=context.session_id,
                generation=facts.generation,
                item_id=facts.item_id,
                sampling=context.sampling(facts.max_output_tokens, request.calling),
                instructions=request.instructions,
                items=items,
                only_if_heard=only_if_heard,
                tools=request.tools,
                reports_writing=items is not None and context.wants("pictures"),
            )
        )

    def _announce(self, running: ActiveResponse) -> None:
        """Tell the client that there is a response, once."""
        if not running.announced:
            running.announced = True
            for event in running.response.create():
                self._context.send(event)

    # --- from the engine -------------------------------------------------------------------------

    def delta(self, event: api.Delta, now_ns: int) -> None:
        """A piece of text. What comes after a cancel is dropped."""
        running = self._running.get(event.generation)
        if running is None or running.response.cancel_reason is not None:
            return
        context = self._context
        response = running.response
        first = not response.opened
        if first:
            self._announce(running)
            open_message(context, running)
            self._first(running, event.spans, now_ns)
        context.send(response.delta(event.text), wants_sent_stamp=first)
        if running.speaking is not None:
            self._out.say(running.generation, running.speaking.words(event.text, now_ns))

    def called(self, event: api.Call, now_ns: int) -> None:
        """A piece of a function call."""
        running = self._running.get(event.generation)
        if running is None:
            return
        if running.response.cancel_reason is not None:
            running.calls.drop(event)
            return
        is_early = running.is_revocable and (self._is_held or now_ns < running.calls_from_ns)
        if is_early or running.early_calls:
            running.early_calls.append(event)
            return
        if running.response.opened:
            running.calls.hold(event)
            return
        first = not running.calls.begun
        if first:
            self._announce(running)
            self._first(running, event.spans, now_ns)
        for told in running.calls.take(event):
            is_delta = told["type"] == "response.function_call_arguments.delta"
            self._context.send(told, wants_sent_stamp=first and is_delta)

    def _first(self, running: ActiveResponse, spans: tuple[api.Span, ...], now_ns: int) -> None:
        """The first of an answer has come."""
        running.stamps = dataclasses.replace(
            running.stamps, first_delta_received_ns=now_ns, spans=spans
        )
        running.stamp_pending = True
        self._stamping.append(running)

    def finished(self, event: api.Finished, now_ns: int) -> None:
        """An answer's text is over, one way or another; what is left of it is still spoken."""
        running = self._running.get(event.generation)
        if running is None:
            return
        text_over(self._context, running, event)
        is_whole = event.reason in (api.FinishReason.STOP, api.FinishReason.LENGTH)
        if not is_whole or running.response.cancel_reason is not None:
            self._conclude(running, event)
            return
        if running.speaking is not None:
            self._out.say(running.generation, running.speaking.end(now_ns))
        running.text_over = event
        self._conclude_if_spoken(running)

    def _conclude(self, running: ActiveResponse, event: api.Finished) -> None:
        ending = ending_of(event, running.response.cancel_reason)
        running.outcome = event
        if event.read is not None and running.announced:
            response_id = running.response.facts.response_id
            read = self._context.events.pictures_read(response_id, event.read)
            self._context.send_ours("pictures", read)
        self._end(running, ending)
        self._context.metrics.turn_finished(event.reason.value, event.usage)

    def voice(self, event: SynthesisedAudio | ClauseDone, now_ns: int) -> None:
        """The voice has made a piece of an answer, or is through with a clause."""
        running = self._running.get(event.generation)
        if running is None or running.speaking is None:
            return
        if running.response.cancel_reason is not None:
            return
        if isinstance(event, SynthesisedAudio):
            self._out.sound(running.response, running.speaking, event, now_ns)
            return
        running.speaking.said(event.clause, event.problem)
        self._conclude_if_spoken(running)

    def voice_lost(self, reason: str) -> None:
        """No more sound: answers under way go on, and end, as text."""
        for running in list(self._running.values()):
            if running.speaking is not None:
                running.speaking.give_up(reason)
                self._conclude_if_spoken(running)

    def _conclude_if_spoken(self, running: ActiveResponse) -> None:
        """The end, if the text is over and all of it was spoken and called."""
        if running.text_over is not None and running.is_spoken:
            self._conclude(running, running.text_over)

    def truncate(self, event: ConversationItemTruncateEvent) -> None:
        """A client's wish. Raises `ProtocolError`."""
        running = self._main is not None and self._main.item_id == event.item_id
        if self._context.conversation.is_withdrawn(event.item_id):
            self._out.truncate_withdrawn(event)
        else:
            self._out.truncate(event, running=running)

    def cleared(self, dropped_samples: int) -> None:
        """The playout dropped what it still held."""
        item_id = self._main.item_id if self._main is not None else None
        self._out.cleared(dropped_samples, item_id)

    def close(self) -> None:
        """The session ends in the middle of them. Nobody is there to be told but who observes."""
        for running in self._running.values():
            if running.announced:
                self._context.metrics.turn_ended("disconnected")
                self._reports.over(running, None)

    def engine_lost(self, now_ns: int) -> None:
        """Every answer that ran is a failed one, but for those of which only sound is missing."""
        for running in list(self._running.values()):
            if running.text_over is not None:
                continue
            if running.speaking is not None:
                self._out.stop(running.generation)
            self._end(
                running,
                failed("engine_lost", "The engine was lost while it answered; please ask again."),
            )

    def _end(self, running: ActiveResponse, ending: Ending) -> None:
        context = self._context
        response = running.response
        if ending.status != "cancelled":
            self._announce(running)
        close_message(context, running)
        withdrawn = running.revoked_ns is not None
        for call in running.early_calls:
            running.calls.drop(call)
        for event in response.finish(ending, *running.calls.close(ending, withdrawn=withdrawn)):
            if running.announced:
                context.send(event)
        del self._running[running.generation]
        if running is self._main:
            self._main = None
            context.turns.finish()
            if running.announced and ending.status != "failed":
                self.given += 1
        settle(context, running, ending)
        self._reports.over(running, ending)

    # --- budgets ---------------------------------------------------------------------------------

    def sound_sent(self, response_id: str, now_ns: int) -> None:
        """The first sound of a response is on its way."""
        for running in self._running.values():
            if running.response.facts.response_id == response_id and running.speaking is not None:
                running.speaking.first_sound_ns = now_ns
                return
        self._reports.sound_sent(response_id, now_ns)

    def sent(self, now_ns: int) -> None:
        """The first delta of the oldest response that waits for it is on the wire."""
        if not self._stamping:
            return
        running = self._stamping.pop(0)
        running.stamp_pending = False
        running.stamps = dataclasses.replace(running.stamps, sent_ns=now_ns)
        try:
            running.budget = TurnBudget.from_stamps(running.stamps, self._context.latency_budget_ms)
        except BudgetError as error:
            running.budget = Unmeasured(self._context.latency_budget_ms, running.stamps.realtime)
            self._context.impossible(error)
