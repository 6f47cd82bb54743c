"""Audio inside items: validated, sent to the engine in pieces, its transcript added to the item.

    event ─▶ clips_of ─▶ the item, echoed ─▶ Clip… ─▶ AddItem … ClipHeard ─▶ transcript

The engine processes it after the microphone audio that arrived before it. It starts no turn.
Bounds: `CLIPS_MAX` clips and the longest utterance's length per event; `UNHEARD_MAX` clips waiting.

"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from openai.types.realtime import RealtimeConversationItemUserMessage

from headstart.engine import api
from headstart.gateway.audio.clock import CLIENT_RATE_HZ, ENGINE_RATE_HZ
from headstart.gateway.audio.formats import SoundIn, bytes_per_s
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.segmenter import SegmenterSettings
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.items import Json
from headstart.gateway.protocol.parse import decode_bytes
from headstart.gateway.session.actions import ContinueLater
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import NO_TRANSCRIBER, ConversationItem

CLIPS_MAX = 16
UNHEARD_MAX = 64
PIECE_S = 2
"""As much audio as the engine processes in one pass."""


@dataclass(frozen=True, slots=True)
class ItemClip:
    """The audio of one content part, in the client's format; `param` names that part in errors."""

    name: str
    param: str
    content_index: int
    sound_format: Json
    data: bytes

    @property
    def length_s(self) -> float:
        return len(self.data) / bytes_per_s(self.sound_format)

    def pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Pieces of s16 at 16 kHz, each with whether it is the last."""
        wire, hear = SoundIn(), StreamResampler(CLIENT_RATE_HZ, ENGINE_RATE_HZ)
        step = PIECE_S * bytes_per_s(self.sound_format)
        for start in range(0, len(self.data), step):
            last = start + step >= len(self.data)
            pcm = wire.to_wire(self.data[start : start + step], self.sound_format)
            yield hear.feed_pcm(pcm) + (hear.flush_pcm() if last else b""), last


@dataclass(frozen=True, slots=True)
class _ClipPlace:
    """The item and content part that a clip's transcript belongs to. The item itself: after it is
    deleted, the client may create another one with its id."""

    kept: ConversationItem
    content_index: int
    length_s: float


class ItemAudio:
    """The audio clips of one session's items."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._named = 0
        self._pieces: Iterator[api.Clip] = iter(())
        self._then: Callable[[], None] | None = None
        self._event_id: str | None = None
        self._unless_lost = False
        self._unheard: dict[str, _ClipPlace] = {}

    @property
    def is_sending(self) -> bool:
        """Whether `ContinueLater` was requested and `more` is due."""
        return self._then is not None

    def clips_of(self, given: Sequence[tuple[Any, str]]) -> list[ItemClip]:
        """The audio parts without a transcript in items; each item is given with its name in
        errors. Raises `ProtocolError`."""
        sound_format = self._context.config.input_format
        clips: list[ItemClip] = []
        for item, param in given:
            if isinstance(item, RealtimeConversationItemUserMessage):
                for index, part in enumerate(item.content):
                    if part.type != "input_audio" or part.audio is None or part.transcript:
                        continue
                    where = sound_param(param, index)
                    data = _decoded(part.audio, sound_format, where)
                    clips.append(ItemClip(self._name(), where, index, sound_format, data))
        _check_together(clips)
        return clips

    def _name(self) -> str:
        self._named += 1
        return f"clip_{self._named}"

    # --- to the engine ---------------------------------------------------------------------------

    def send(
        self,
        clips: Sequence[ItemClip],
        event_id: str | None,
        then: Callable[[], None],
        *,
        unless_lost: bool = False,
    ) -> None:
        """Send `clips` to the engine, then call `then`, all before the client's next event.
        `unless_lost`: do not call it if the engine was lost meanwhile."""
        assert self._then is None, "the shell has not asked for the rest of the last one"
        session_id = self._context.session_id
        self._pieces = (
            api.Clip(session_id, clip.name, pcm, last)
            for clip in (clips if self._context.engine_up else ())
            for pcm, last in clip.pieces()
        )
        self._then, self._event_id = then, event_id
        self._unless_lost = unless_lost
        self.more()

    def more(self) -> None:
        """Send the next piece, or call `then` after the last one. Raises `ProtocolError`."""
        piece = next(self._pieces, None)
        if piece is not None:
            self._context.send_to_engine(piece)
            self._context.act(ContinueLater())
            return
        then, self._then = self._then, None
        assert then is not None
        try:
            then()
        except errors.ProtocolError as error:
            raise error.about(self._event_id) from None

    # --- words -----------------------------------------------------------------------------------

    def belong_to(self, item_id: str, clips: Sequence[ItemClip]) -> None:
        """Register the item that gets the transcripts of `clips`."""
        kept = self._context.conversation.get(item_id, "retrieve")
        for clip in clips:
            self._unheard[clip.name] = _ClipPlace(kept, clip.content_index, clip.length_s)
            if not self._context.engine_up:
                self._fail(clip.name, "engine_unavailable", "The engine is not available.")
        while len(self._unheard) > UNHEARD_MAX:
            self._fail(next(iter(self._unheard)), "engine_behind", "The engine is too far behind.")

    def clip_words(self, event: api.ClipHeard) -> None:
        """A piece was processed; the last piece brings the transcript."""
        if not event.final or event.clip not in self._unheard:
            return
        if not event.transcribed:
            self._fail(event.clip, *NO_TRANSCRIBER)
            return
        place, context = self._unheard.pop(event.clip), self._context
        kept = place.kept
        if not self._is_there(kept):
            return  # the item was deleted: send nothing about it
        kept.wire["content"][place.content_index]["transcript"] = event.text
        if kept.engine is not None:
            kept.engine = _with_words(kept.engine, place.content_index, event.text)
        if context.config.transcription is None:
            return
        if event.text:
            delta = context.events.transcription_delta
            context.send(delta(kept.item_id, event.text, place.content_index))
        completed = context.events.transcription_completed
        context.send(completed(kept.item_id, event.text, place.length_s, place.content_index))

    def failed(self, event: api.Failed) -> bool:
        """Handle a failed command if it was about item audio, and tell the client. Returns whether
        it was."""
        if event.about == "clip":
            self._fail(event.ref_id, event.code, event.message)
        return event.about == "clip"

    def engine_lost(self) -> None:
        """Fail the clips that were sent: their transcripts will not come."""
        self._pieces = iter(())
        if self._unless_lost and self._then is not None:
            self._then = lambda: None
        for name in list(self._unheard):
            self._fail(name, "engine_lost", "The engine was lost during transcription.")

    def _fail(self, name: str, code: str, message: str) -> None:
        place, context = self._unheard.pop(name, None), self._context
        if place is None:
            return
        context.error(code, message)
        if context.config.transcription is not None and self._is_there(place.kept):
            failed = context.events.transcription_failed
            context.send(failed(place.kept.item_id, code, message, place.content_index))

    def _is_there(self, kept: ConversationItem) -> bool:
        return self._context.conversation.find(kept.item_id) is kept


def sound_param(param: str, part: int) -> str:
    """The name of a content part's audio in errors."""
    return f"{param}.content[{part}].audio"


def sounds(clips: Sequence[ItemClip]) -> Mapping[str, api.Sound]:
    """The engine's names of `clips`, by their names in errors."""
    return {clip.param: api.Sound(clip.name) for clip in clips}


def _decoded(audio: str, sound_format: Json, param: str) -> bytes:
    """The decoded audio bytes. Raises `ProtocolError`."""
    data = decode_bytes(audio, param=param)
    if sound_format["type"] == "audio/pcm" and len(data) % 2:
        raise errors.invalid_audio(param, f"an odd number of bytes ({len(data)})")
    return data


def _check_together(clips: Sequence[ItemClip]) -> None:
    """Raises `ProtocolError` if the clips exceed what one event may hold."""
    longest_s = SegmenterSettings().max_utterance_s
    together_s = 0.0
    for number, clip in enumerate(clips, 1):
        together_s += clip.length_s
        if together_s > longest_s:
            raise errors.invalid_audio(clip.param, f"{together_s:.2f} s, more than {longest_s} s")
        if number > CLIPS_MAX:
            raise errors.invalid_audio(clip.param, f"more than {CLIPS_MAX} parts with sound")


def _with_words(item: api.Item, part: int, text: str) -> api.Item:
    """The item with the transcript in place of its audio. Its images may be gone by now."""
    parts = list(item.parts)
    if part < len(parts):
        parts[part] = api.Text(text)
    return msgspec.structs.replace(item, parts=tuple(parts))
