"""Transcription events: partial words, the final transcript, and failures.

Bound: `MAX_UNHEARD` utterances without a final transcript. The engine transcribes in order, so more
mean that it is far behind; the oldest one then gets a failed transcription.

"""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.audio.clock import engine_samples_to_exact_ms
from headstart.gateway.protocol import items
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import NO_TRANSCRIBER, ConversationItem
from headstart.gateway.session.engine_items import keep
from headstart.gateway.session.utterance import Utterance

MAX_UNHEARD = 16


def add_spoken_item(
    context: SessionContext, item_id: str, transcript: str | None
) -> ConversationItem:
    """Turn audio of the input buffer into an item; the caller sends it to the engine."""
    previous = context.conversation.tail_id
    wire = items.message(item_id, "user", [items.input_audio(transcript)])
    kept = ConversationItem(wire, None, known=context.engine_keeps)
    keep(context, kept, previous)
    context.send(context.events.committed(item_id, previous))
    context.send(context.events.item_added(wire, previous))
    context.send(context.events.item_done(wire, previous))
    return kept


class Transcripts:
    """Ended utterances of one session that wait for their final transcript, by turn."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._unheard: dict[int, Utterance] = {}

    def uses_id(self, item_id: str) -> bool:
        """Whether words for an item with that id are still to come."""
        return any(utterance.uses_id(item_id) for utterance in self._unheard.values())

    def find(self, turn: int) -> Utterance | None:
        """None also if the item was deleted: no more events are sent about it then."""
        utterance = self._unheard.get(turn)
        return (
            utterance
            if utterance is not None and utterance.item_id in self._context.conversation
            else None
        )

    def commit(self, utterance: Utterance) -> None:
        """The utterance has ended and become an item; its final transcript follows."""
        context = self._context
        if utterance.continues is not None:
            self._replace(utterance.continues.utterance)
        add_spoken_item(context, utterance.item_id, None)
        self._unheard[utterance.turn] = utterance
        if not context.engine_up:
            self._give_up(utterance, "engine_unavailable", "The engine is not available.")
        elif len(self._unheard) > MAX_UNHEARD:
            oldest = next(iter(self._unheard.values()))
            self._give_up(oldest, "engine_behind", "The engine is too far behind.")

    def _replace(self, first: Utterance) -> None:
        """The item of a message's first part: the whole message takes its place."""
        conversation = self._context.conversation
        self._unheard.pop(first.turn, None)
        if first.item_id in conversation:
            conversation.withdraw(first.item_id)
            self._context.send(self._context.events.item_deleted(first.item_id))

    def show(self, utterance: Utterance, event: api.Hearing) -> None:
        """Show the words so far. Committed words change after a final pass, and where a pause ends
        a part of the utterance."""
        self._show(utterance, event.committed)
        context = self._context
        context.send_ours(
            "hearing",
            context.events.hearing(
                turn=utterance.turn,
                item_id=utterance.item_id,
                committed=event.committed,
                tentative=event.tentative,
                audio_ms=engine_samples_to_exact_ms(event.at_sample),
            ),
        )

    def final_words(self, event: api.Heard) -> None:
        """Send the final transcript."""
        utterance = self._unheard.pop(event.ref.turn, None)
        kept = self._context.conversation.find(utterance.item_id) if utterance is not None else None
        if utterance is None or kept is None:
            return
        context = self._context
        kept.wire["content"][0]["transcript"] = event.text if event.transcribed else None
        words = (api.Text(event.text),) if event.text else ()
        kept.engine = api.Item(utterance.item_id, api.Role.USER, words)
        if not event.transcribed:
            self.send_failed(utterance, *NO_TRANSCRIBER)
        elif context.config.transcription is not None or utterance.shown:
            self._show(utterance, event.text)
            audio_s = engine_samples_to_exact_ms(utterance.length_samples) / 1000
            context.send(
                context.events.transcription_completed(utterance.item_id, event.text, audio_s)
            )

    def failed(self, event: api.Failed) -> bool:
        """Handle a failed command if it was about speech, and tell the client. Returns whether it
        was."""
        if event.about not in ("begin_speech", "audio", "hush", "resume", "end_speech"):
            return event.about == "drop_speech"
        if event.about == "end_speech" and self._unheard:
            self._give_up(next(iter(self._unheard.values())), event.code, event.message)
        return True

    def engine_lost(self) -> None:
        """Fail the waiting transcripts: they will not come."""
        for utterance in list(self._unheard.values()):
            self._give_up(utterance, "engine_lost", "The engine was lost during transcription.")

    def send_failed(self, utterance: Utterance, code: str, message: str) -> None:
        """Report that an utterance will get no transcript."""
        self._context.error(code, message)
        self._send_end(utterance, code, message)

    def _send_end(self, utterance: Utterance, code: str, message: str) -> None:
        context = self._context
        if context.config.transcription is not None or utterance.shown:
            context.send(context.events.transcription_failed(utterance.item_id, code, message))
            utterance.shown = ""  # no more deltas follow

    def _show(self, utterance: Utterance, committed: str) -> None:
        """Send the newly committed words as a delta, if the session wants transcripts. Sent words
        cannot be taken back: if they are heard otherwise later, only the whole transcript at the
        end is sent."""
        context = self._context
        if context.config.transcription is None or not committed.startswith(utterance.shown):
            return
        new = committed[len(utterance.shown) :]
        if new:
            utterance.shown = committed
            context.send(context.events.transcription_delta(utterance.item_id, new))

    def dropped(self, utterance: Utterance) -> None:
        """The open utterance becomes no item. A client that got deltas of it is told that no more
        follow; this is not counted as an error."""
        if utterance.shown:
            message = "The audio was dropped before it became an item."
            self._send_end(utterance, "dropped", message)

    def _give_up(self, utterance: Utterance, code: str, message: str) -> None:
        self._unheard.pop(utterance.turn, None)
        kept = self._context.conversation.find(utterance.item_id)
        if kept is not None:
            kept.known = kept.known and code == "engine_behind"  # still transcribed
            self.send_failed(utterance, code, message)
