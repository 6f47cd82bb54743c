"""What the client is told of words: while they come, when they are final, and when they never come.

Bound: `MAX_UNHEARD` utterances whose words are not final yet. The engine hears them in order, so
more mean that it is far behind; the oldest is then told as a failed transcription.
"""

from __future__ import annotations

from engine import api
from gateway.conversation import NO_TRANSCRIBER, Kept
from gateway.engine_items import keep
from gateway.media.timebase import hear_ms_exact
from gateway.protocol import items
from gateway.spoken import Spoken
from gateway.state import SessionState

MAX_UNHEARD = 16


def add_spoken(state: SessionState, item_id: str, transcript: str | None) -> Kept:
    """Sound of the input buffer becomes an item; whoever calls tells the engine of it."""
    previous = state.talk.tail_id
    wire = items.message(item_id, "user", [items.input_audio(transcript)])
    kept = Kept(wire, None, known=state.engine_keeps)
    keep(state, kept, previous)
    state.send(state.events.committed(item_id, previous))
    state.send(state.events.item_added(wire, previous))
    state.send(state.events.item_done(wire, previous))
    return kept


class Transcripts:
    """One session's utterances that are over and wait for their final words, by turn, in order."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._unheard: dict[int, Spoken] = {}

    def find(self, turn: int) -> Spoken | None:
        """None also of one whose item was deleted: nothing more is told of it."""
        spoken = self._unheard.get(turn)
        return spoken if spoken is not None and spoken.item_id in self._state.talk else None

    def commit(self, spoken: Spoken) -> None:
        """The utterance is over and an item from now on; its words follow when they are final."""
        state = self._state
        add_spoken(state, spoken.item_id, None)
        self._unheard[spoken.turn] = spoken
        if not state.engine_up:
            self._give_up(spoken, "engine_unavailable", "The engine is not available.")
        elif len(self._unheard) > MAX_UNHEARD:
            oldest = next(iter(self._unheard.values()))
            self._give_up(oldest, "engine_behind", "The engine is too far behind.")

    def show(self, spoken: Spoken, event: api.Hearing) -> None:
        """The words so far. Committed ones differ only after a final pass."""
        self._show(spoken, event.committed)
        state = self._state
        state.send_ours(
            "hearing",
            state.events.hearing(
                turn=spoken.turn,
                item_id=spoken.item_id,
                committed=event.committed,
                tentative=event.tentative,
                audio_ms=hear_ms_exact(event.at_sample),
            ),
        )

    def heard(self, event: api.Heard) -> None:
        """The final words."""
        spoken = self._unheard.pop(event.ref.turn, None)
        kept = self._state.talk.find(spoken.item_id) if spoken is not None else None
        if spoken is None or kept is None:
            return
        state = self._state
        kept.wire["content"][0]["transcript"] = event.text if event.transcribed else None
        words = (api.Text(event.text),) if event.text else ()
        kept.engine = api.Item(spoken.item_id, api.Role.USER, words)
        if not event.transcribed:
            self.tell_failed(spoken, *NO_TRANSCRIBER)
        elif state.config.transcription is not None or spoken.shown:
            self._show(spoken, event.text)
            audio_s = hear_ms_exact(spoken.end_sample - spoken.start_sample) / 1000
            state.send(state.events.transcription_completed(spoken.item_id, event.text, audio_s))

    def failed(self, event: api.Failed) -> bool:
        """Whether a failed command was about speech; then the client is told here."""
        if event.about not in ("begin_speech", "audio", "hush", "resume", "end_speech"):
            return event.about == "drop_speech"
        if event.about == "end_speech" and self._unheard:
            self._give_up(next(iter(self._unheard.values())), event.code, event.message)
        return True

    def engine_lost(self) -> None:
        """No words will come for what was said."""
        for spoken in list(self._unheard.values()):
            self._give_up(spoken, "engine_lost", "The engine was lost while it listened.")

    def tell_failed(self, spoken: Spoken, code: str, message: str) -> None:
        """An utterance of which there will be no words."""
        self._state.metrics.error(code)
        self._tell_end(spoken, code, message)

    def _tell_end(self, spoken: Spoken, code: str, message: str) -> None:
        state = self._state
        if state.config.transcription is not None or spoken.shown:
            state.send(state.events.transcription_failed(spoken.item_id, code, message))
            spoken.shown = ""  # that is over

    def _show(self, spoken: Spoken, committed: str) -> None:
        """Send what is new of the committed words, if the session wants transcripts. Words that
        were sent cannot be taken back: where a final pass has others, the whole transcript comes
        at the end only."""
        state = self._state
        if state.config.transcription is None or not committed.startswith(spoken.shown):
            return
        new = committed[len(spoken.shown) :]
        if new:
            spoken.shown = committed
            state.send(state.events.transcription_delta(spoken.item_id, new))

    def dropped(self, spoken: Spoken) -> None:
        """The open utterance becomes no item. Who was told words of it is told that no more come;
        that is no error of ours, and not counted as one."""
        if spoken.shown:
            message = "The sound was dropped before it became an item."
            self._tell_end(spoken, "dropped", message)

    def _give_up(self, spoken: Spoken, code: str, message: str) -> None:
        self._unheard.pop(spoken.turn, None)
        kept = self._state.talk.find(spoken.item_id)
        if kept is not None:
            kept.known = kept.known and code == "engine_behind"  # that one still reads it
            self.tell_failed(spoken, code, message)
