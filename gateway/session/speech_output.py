"""A session's speech output: clauses to the TTS, audio to the client, truncated to what was played.

Where the client plays the audio (WebSocket), it reports what it has played with
`conversation.item.truncate`. Where the server plays (WebRTC), `cleared` gives the dropped length,
and items are truncated here.

"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from openai.types.realtime import ConversationItemTruncateEvent

from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.audio.formats import SoundOut
from headstart.gateway.protocol import errors
from headstart.gateway.session.actions import HoldPlayout
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import ConversationItem
from headstart.gateway.session.engine_items import amend, said
from headstart.gateway.session.response import Response
from headstart.gateway.tts.messages import Speak, Stop, SynthesisedAudio
from headstart.gateway.tts.spoken_response import SpokenResponse

PLAYED_MAX = 32  # responses whose playout position is remembered; more than its queue holds
PIECE_BYTES = 2 * CLIENT_RATE_HZ * 2  # two seconds: 128 KiB in base64, no wait for a credit
OVERSHOOT_MS = 250  # tolerance for a client that counts slightly more than it was sent


@dataclass(slots=True)
class _Played:
    """One response's audio in the playout: samples [start, start + speaking.samples)."""

    response_id: str
    item_id: str
    speaking: SpokenResponse
    start_sample: int


class SpeechOutput:
    """The speech output of one session."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._played: deque[_Played] = deque(maxlen=PLAYED_MAX)
        self._sent_samples = 0
        self._plays_until_ns = 0  # when the sent audio ends, if it is played at once
        self._held_ns: int | None = None  # since when the playout is paused
        self._encode = SoundOut()
        self.has_spoken = False
        """Audio was sent in this session, so its voice can no longer change."""

    def say(self, generation: int, clauses: list[tuple[int, str]]) -> None:
        context = self._context
        for number, text in clauses:
            speak = Speak(context.session_id, generation, number, text, context.config.speed)
            context.send_to_tts(speak)

    def stop(self, generation: int) -> None:
        """Stop synthesis of that response."""
        self._context.send_to_tts(Stop(self._context.session_id, generation))

    def sound(
        self, response: Response, speaking: SpokenResponse, event: SynthesisedAudio, now_ns: int
    ) -> None:
        """Send a piece of audio to the client."""
        first = speaking.samples == 0
        if first:
            facts = response.facts
            self._played.append(
                _Played(facts.response_id, facts.item_id, speaking, self._sent_samples)
            )
        speaking.sound(event.clause, event.samples)
        self._sent_samples += event.samples
        self._context.echo.played(event.pcm, now_ns)
        lasts_ns = event.samples * 10**9 // CLIENT_RATE_HZ
        self._plays_until_ns = max(self._plays_until_ns, now_ns) + lasts_ns
        self.has_spoken = True
        self._play(response, event.pcm, first)

    def _play(self, response: Response, pcm: bytes, first: bool) -> None:
        """Send in pieces that fit a client's frame."""
        audio = response.facts.audio
        assert audio is not None
        for start in range(0, len(pcm), PIECE_BYTES):
            piece = pcm[start : start + PIECE_BYTES]
            response_id, sound_format = response.facts.response_id, audio["output"]["format"]
            encoded = self._encode.encode(response_id, piece, sound_format)
            stamp = first and start == 0
            self._context.play(response.sound(), piece, encoded, wants_sent_stamp=stamp)

    # --- what was heard --------------------------------------------------------------------------

    def truncate(self, event: ConversationItemTruncateEvent, *, running: bool) -> None:
        """The client played only this much of a spoken item. Raises `ProtocolError`. While the
        response is `running` its text still grows, so the item is truncated at its end."""
        kept = self._context.conversation.get(event.item_id, "truncate")
        speech = kept.speech
        if speech is None:
            raise errors.truncate_not_audio()
        if event.content_index != 0:
            raise errors.no_such_content(event.content_index, 1)
        end_ms = event.audio_end_ms
        if end_ms > speech.duration_ms + OVERSHOOT_MS:
            raise errors.truncate_beyond_end(speech.duration_ms, end_ms)
        self._cut(kept, speech, end_ms * CLIENT_RATE_HZ // 1000, running=running)

    def truncate_withdrawn(self, event: ConversationItemTruncateEvent) -> None:
        """The client played only this much of an item that was taken back before it could know. It
        gets no reply, since no event names a deleted item."""
        speech = self._context.conversation.withdrawn_speech(event.item_id)
        if speech is not None:
            speech.cut(event.audio_end_ms * CLIENT_RATE_HZ // 1000)

    def _cut(
        self, kept: ConversationItem, speech: SpokenResponse, heard_samples: int, *, running: bool
    ) -> None:
        context = self._context
        speech.cut(heard_samples)
        self._plays_until_ns = 0
        context.echo.drop()
        heard_ms = speech.heard_ms  # an earlier truncation may have been shorter
        context.send(context.events.item_truncated(kept.item_id, 0, heard_ms))
        if not running:
            self.settle(kept)

    def settle(self, kept: ConversationItem) -> None:
        """Truncate the item of a finished response to what was heard: for the client and for the
        model. The KV cache drops the rows after the last word heard."""
        assert kept.speech is not None
        heard = kept.speech.heard_text()
        kept.wire["content"] = [kept.wire["content"][0] | {"transcript": heard}]
        amend(self._context, kept, said(kept.item_id, heard))

    # --- a playout of our own --------------------------------------------------------------------

    def audible(self, now_ns: int) -> bool:
        """Whether sent audio may still be playing, assuming gapless playback. Paused audio plays
        later; a client that does not follow `gateway.interruption` plays on meanwhile."""
        at_ns = now_ns
        if self._held_ns is not None and self._context.playout_pauses:
            at_ns = self._held_ns
        return at_ns < self._plays_until_ns

    def hold(self, now_ns: int) -> None:
        """Pause the playout: the user may be interrupting."""
        if self._held_ns is None:
            self._held_ns = now_ns
            self._context.echo.hold(now_ns)
            self._context.act(HoldPlayout(held=True))

    def release(self, now_ns: int) -> None:
        """Resume the playout at the paused position. A client that plays by itself and does not
        follow `gateway.interruption` has played on."""
        if self._held_ns is not None:
            if self._context.playout_pauses and self.audible(now_ns):
                self._plays_until_ns += now_ns - self._held_ns
            self._held_ns = None
            self._context.echo.release(now_ns)
            self._context.act(HoldPlayout(held=False))

    def drop(self) -> None:
        """Drop all audio still to be played: the user interrupts, or the client asked for it. This
        also ends a pause."""
        self._plays_until_ns = 0
        self._context.echo.drop()
        self._context.clear_playout()
        if self._held_ns is not None:
            self._context.act(HoldPlayout(held=True))

    def playing(self, what: str, position_sample: int) -> str | None:
        """The playout began ("started") or ran empty ("stopped") at a sample of all audio sent.
        Returns the response whose audio that is, or None if it is no longer remembered."""
        at = max(0, position_sample - 1)
        found = [played for played in self._played if played.start_sample <= at]
        if not found:
            return None
        events, response_id = self._context.events, found[-1].response_id
        name: Literal["started", "stopped"] = "started" if what == "started" else "stopped"
        self._context.send(events.playout(name, response_id))
        return response_id

    def cleared(self, dropped_samples: int, running_item_id: str | None) -> None:
        """The last `dropped_samples` sent will not be played: truncate the responses they belong
        to."""
        heard_until = self._sent_samples - dropped_samples
        for played in self._played:
            end = played.start_sample + played.speaking.samples
            kept = self._context.conversation.find(played.item_id)
            if end <= heard_until or not dropped_samples:
                continue
            heard = max(0, heard_until - played.start_sample)
            if kept is not None and kept.speech is not None:
                running = played.item_id == running_item_id
                self._cut(kept, kept.speech, heard, running=running)
            elif self._context.conversation.is_withdrawn(played.item_id):
                played.speaking.cut(heard)
        if self._played and dropped_samples:
            newest = self._played[-1].response_id
            self._context.send(self._context.events.playout("cleared", newest))
        self._played.clear()
        self._sent_samples = heard_until  # the playout counts what it plays, not what it drops
