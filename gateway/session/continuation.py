"""Speech that goes on after an endpoint that came too early: the message continues, and the answer
to its first part is taken back.

    endpoint ─▶ answered, may continue ─(the window is over)─▶ final
                        │ speech within the window: a candidate, held until its words are known
                        ├─▶ words that go on ─▶ TAKEN BACK: the answer is withdrawn, and both parts
                        │                       are one utterance, which becomes a new item
                        └─▶ a cough, "mm-hm" ─▶ nothing happens

For clients the first part's item is deleted when the whole message is committed, so that each item
gets its events once and the conversation never lacks a message. The engine joins both parts at once
(`api.ContinueSpeech`). Bounds: one ended utterance is kept, and a message is no longer than one
utterance may be.

"""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.audio.clock import NS_PER_MS, ms_to_engine_samples
from headstart.gateway.audio.segmenter import SegmenterSettings
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.responses import ResponseManager
from headstart.gateway.session.utterance import EndedUtterance, Utterance

LATE_PACKETS_MS = 500  # by which the wall clock may be ahead of the sample clock
LONGEST_SAMPLES = SegmenterSettings().max_utterance_s * api.SAMPLE_RATE_HZ


class Continuation:
    """The last ended utterance of one session, as long as it may be continued."""

    def __init__(self, context: SessionContext, responses: ResponseManager) -> None:
        self._context = context
        self._responses = responses
        self._last: EndedUtterance | None = None
        self._candidate: Utterance | None = None  # open or undecided
        context.uses_ids(self._uses_id)

    def _uses_id(self, item_id: str) -> bool:
        """Whether an item with that id may still be taken back."""
        if (last := self._last) is None:
            return False
        spoken = last.utterance
        return item_id == spoken.item_id or self._responses.answers_with(spoken.turn, item_id)

    def ended(self, question: EndedUtterance) -> bool:
        """A turn has ended; returns whether it may be continued."""
        self._last = question if question.event.revocable_ms and question.wants_answer else None
        self._candidate = None
        return self._last is not None

    def consider(self, utterance: Utterance, now_ns: int) -> None:
        """Speech begins: set `utterance.before` if it may continue the last utterance."""
        last = self._last
        self._candidate = None
        if last is None:
            return
        gone = utterance.speech_sample - last.event.endpoint_sample
        is_soon = gone <= ms_to_engine_samples(last.event.revocable_ms)
        is_heard = self._responses.is_heard(last.utterance.turn, now_ns)  # then this replies to it
        is_over = is_heard or self._is_over(last, now_ns)
        if is_soon and not is_over and self._is_possible(last):
            utterance.before, self._candidate = last, utterance
        else:
            self._last = None

    def may_join(self, utterance: Utterance) -> bool:
        """Whether the utterance can still become a part of the message before it."""
        before = utterance.before
        return before is not None and before is self._last and self._is_possible(before)

    def decline(self, utterance: Utterance) -> None:
        """The utterance is a message of its own after all."""
        if utterance.before is None:
            return
        if utterance.before is self._last:
            self._release()
        utterance.before = self._candidate = None

    def join(self, utterance: Utterance) -> None:
        """The utterance continues the message before it. Its answer is cancelled or over."""
        context, before = self._context, utterance.before
        assert before is not None
        utterance.continues, self._last, self._candidate = before, None, None
        utterance.joined_samples = before.utterance.length_samples
        utterance.hearing, utterance.text_is_final = None, False
        before.utterance.before = before.utterance.continues = None  # not a chain of all parts
        first_id = before.utterance.item_id
        context.conversation.get(first_id, "delete").known = False
        answer_id, response_id = self._responses.withdraw(before.utterance.turn)
        context.send_ours(
            "turn",
            context.events.turn_continued(
                turn=utterance.turn,
                item_id=utterance.item_id,
                continued_item_id=first_id,
                response_id=response_id,
            ),
        )
        assert context.turns.ref is not None
        context.send_to_engine(
            api.ContinueSpeech(context.session_id, context.turns.ref, first_id, answer_id)
        )

    def dropped(self, utterance: Utterance) -> None:
        """The utterance becomes no item. The first part of a continued one is a message again; it
        cannot be continued once more."""
        if utterance is self._candidate:
            self._candidate = None
        before, context = utterance.continues, self._context
        if before is None:
            return
        self._last = None
        item_id = before.utterance.item_id
        kept = context.conversation.find(item_id)
        if kept is not None:
            kept.known = context.engine_keeps
        elif context.engine_keeps:  # the client has deleted it meanwhile
            context.send_to_engine(api.RemoveItem(context.session_id, item_id))

    def look(self, now_ns: int) -> None:
        """Release the last utterance once nobody can continue it any more."""
        last = self._last
        if last is not None and self._candidate is None and self._is_over(last, now_ns):
            self._release()

    def _release(self) -> None:
        self._last = None
        if self._context.engine_up:
            self._context.send_to_engine(api.ReleaseSpeech(self._context.session_id))

    def engine_lost(self) -> None:
        """What the recogniser knew is lost."""
        self._last = self._candidate = None

    def _is_over(self, last: EndedUtterance, now_ns: int) -> bool:
        """Whether the window is over by the wall clock, which also runs while no sound comes."""
        window_ns = (last.event.revocable_ms + LATE_PACKETS_MS) * NS_PER_MS
        return now_ns - last.stopped_ns > window_ns

    def _is_possible(self, last: EndedUtterance) -> bool:
        """Whether nothing but an answer that can be taken back has followed."""
        context, spoken = self._context, last.utterance
        detection = context.config.turn_detection
        return (
            context.engine_up
            and detection is not None
            and detection.interrupt_response
            and spoken.length_samples < LONGEST_SAMPLES
            and self._responses.may_withdraw(spoken.turn, spoken.item_id)
        )
