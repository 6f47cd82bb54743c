"""Audio that clients append, processed in pieces so that other sessions get their turn.

One append may hold five minutes of audio, which take half a second to process. A long append is
therefore split: the first piece is processed at once. For each further piece `ContinueLater` asks
the runner to call again, after the other sessions and before this client's next event.

"""

from __future__ import annotations

from openai.types.realtime import InputAudioBufferAppendEvent

from headstart.gateway.audio.formats import SoundIn
from headstart.gateway.audio.segmenter import UtteranceTooLongError
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.fast_append import FastAppend, TimedFastAppend, fast_append
from headstart.gateway.session.actions import ContinueLater
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.input_speech import InputSpeech

BYTES_PER_MS = 48  # s16 mono at 24 kHz
PIECE_BYTES = 1000 * BYTES_PER_MS


class AudioAppender:
    """Call `take` for each append, then `more` once for each `ContinueLater`."""

    def __init__(self, context: SessionContext, speech: InputSpeech) -> None:
        self._context = context
        self._speech = speech
        self._sound_in = SoundIn()
        self._rest = memoryview(b"")
        self._captured_ms: float | None = None
        self._event_id: str | None = None

    def quick(self, text: str) -> FastAppend | None:
        """Parse `text` on the fast path; None if it needs the full parser. Safe on any thread."""
        config = self._context.config
        if config.input_format["type"] != "audio/pcm":
            return None
        return fast_append(text, extensions=config.gateway is not None)

    def packet(self, text: str) -> FastAppend | None:
        """As `quick`, but only for an append that fits in one piece."""
        append = self.quick(text)
        return append if append is not None and len(append.audio) <= PIECE_BYTES else None

    def take_packet(self, packet: FastAppend, now_ns: int) -> None:
        """Process what `packet` returned."""
        pcm = self._sound_in.to_wire(packet.audio, self._context.config.input_format)
        captured_ms = packet.captured_at_ms if isinstance(packet, TimedFastAppend) else None
        self._feed(pcm, captured_ms, now_ns)

    def take(self, event: FastAppend | InputAudioBufferAppendEvent, now_ns: int) -> None:
        """Process one append. Raises `ProtocolError` for invalid audio, or when a push-to-talk
        utterance gets too long; the pieces before the one that exceeded the limit are kept."""
        pcm = self._sound_in.decode(event.audio, self._context.config.input_format)
        captured_ms: float | None = getattr(event, "captured_at_ms", None)
        assert not self._rest, "the shell has not asked for the rest of the last one"
        if len(pcm) <= PIECE_BYTES:
            self._feed(pcm, captured_ms, now_ns)
            return
        self._rest = memoryview(pcm)
        self._captured_ms, self._event_id = captured_ms, event.event_id
        self.more(now_ns)

    def more(self, now_ns: int) -> None:
        """Process the next piece. Raises as `take` does."""
        piece, self._rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
        at_ms = self._captured_ms
        if at_ms is not None:
            at_ms -= len(self._rest) / BYTES_PER_MS
        try:
            self._feed(bytes(piece), at_ms, now_ns)
        except errors.ProtocolError as error:
            self._rest = memoryview(b"")
            raise error.about(self._event_id) from None
        if self._rest:
            self._context.act(ContinueLater())

    def _feed(self, pcm: bytes, captured_ms: float | None, now_ns: int) -> None:
        try:
            self._speech.feed(pcm, captured_ms, now_ns)
        except UtteranceTooLongError as error:
            raise errors.invalid_audio("audio", str(error)) from error
