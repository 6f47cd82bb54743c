"""What is said in a part, line by line with times: a transcription session that hears it all.

The server's voice detection finds the lines and tells when they begin and end. A part ends in
silence, so each of its lines is complete; what goes on behind it is whole in the next part. Such a
session hears only: no language model reads along.

"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from headstart.talk.connection.session import ClientSession, Event
from headstart.talk.long_file.out_of_band import AnswerFailed
from headstart.talk.long_file.parts import Part
from headstart.talk.media.audio import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from headstart.talk.media.playback import pcm_ms

KIND = "transcription"
APPEND_BYTES = BYTES_PER_SAMPLE * SAMPLE_RATE_HZ  # a second
SILENCE_MS = 500
PADDING_MS = 300
"""Of a line's beginning: the server counts it in."""
TAIL_S = 1.2
"""Silence behind a part: longer than `SILENCE_MS`, so that its last line ends."""
SETTINGS: Event = {
    "type": KIND,
    "audio": {
        "input": {
            "transcription": {"model": "whisper-1"},
            "turn_detection": {
                "type": "server_vad",
                "silence_duration_ms": SILENCE_MS,
                "prefix_padding_ms": PADDING_MS,
            },
        }
    },
}
GATEWAY: Event = {"events": [], "endpointing": "fixed", "chunk_ms": 1000, "resume": True}
CANNOT = "no_transcriber"
"""The error code of a server whose model takes sound without a transcript."""


@dataclass
class Line:
    """Something said. Times in s of the recording."""

    start_s: float
    end_s: float
    text: str

    def to_wire(self) -> Event:
        return {
            "start_s": round(self.start_s, 2),
            "end_s": round(self.end_s, 2),
            "text": self.text,
        }


@dataclass
class _Said:
    """One item of the session, by its clock in ms."""

    start_ms: float = 0.0
    end_ms: float | None = None
    text: str = ""
    is_over: bool = False  # no more events of it come
    failed: str | None = None
    code: str = ""


@dataclass
class Transcription:
    """The events of one transcription session. `cannot`: the server's reason, if it transcribes
    nothing: its model hears sound itself."""

    cannot: str | None = None
    _items: dict[str, _Said] = field(default_factory=dict)
    _sent_ms: float = 0.0

    def receive(self, event: Event) -> None:
        kind, item_id = event["type"], event.get("item_id", "")
        if kind == "input_audio_buffer.speech_started":
            self._items[item_id] = _Said(event["audio_start_ms"])
        elif kind == "input_audio_buffer.speech_stopped" and item_id in self._items:
            self._items[item_id].end_ms = event["audio_end_ms"]
        elif kind == "input_audio_buffer.committed":
            self._items.setdefault(item_id, _Said(self._sent_ms))
        elif kind == "input_audio_buffer.cleared":
            for said in self._items.values():
                said.is_over = said.is_over or said.end_ms is None
        elif kind.startswith("conversation.item.input_audio_transcription."):
            self._transcribed(kind.rpartition(".")[2], event)

    def _transcribed(self, what: str, event: Event) -> None:
        said = self._items.get(event["item_id"])
        if said is None:
            return
        if what == "completed":
            said.text, said.is_over = event["transcript"].strip(), True
        elif what == "failed":
            error: dict[str, Any] = event.get("error") or {}
            said.is_over, said.failed = True, error.get("message") or "failed"
            said.code = str(error.get("code") or "")
            if said.code == CANNOT:
                self.cannot = said.failed

    @property
    def _busy(self) -> bool:
        return any(not said.is_over for said in self._items.values())

    @property
    def _speaking(self) -> bool:
        return self._closed < len(self._items)

    @property
    def _closed(self) -> int:
        """How many items have ended."""
        return sum(said.end_ms is not None or said.is_over for said in self._items.values())

    async def hear(self, session: ClientSession, part: Part, pcm: bytes) -> list[Line]:
        """The lines of a part, in order. Raises `AnswerFailed` for one that the server lost, or for
        sound that it refused, and what `ClientSession` raises."""
        if not pcm:
            return []
        self._items.clear()
        session.errors.clear()
        began_ms = self._sent_ms
        tail = bytes(BYTES_PER_SAMPLE * round(TAIL_S * SAMPLE_RATE_HZ))
        for sound in (pcm, tail):
            for at in range(0, len(sound), APPEND_BYTES):
                piece = sound[at : at + APPEND_BYTES]
                audio = base64.b64encode(piece).decode()
                await session.send("input_audio_buffer.append", audio=audio)
                self._sent_ms += pcm_ms(len(piece))
        await session.barrier(KIND)
        if session.errors:
            error = session.errors[0]
            code = str(error.get("code") or "")
            raise AnswerFailed(code, error.get("message") or code or "it does not say why")
        if self._speaking:
            await session.request(
                "input_audio_buffer.committed",
                lambda: self._closed + len(session.errors),
                "input_audio_buffer.commit",
            )
        await session.until(lambda: not self._busy, "what was said")
        for said in self._items.values():
            if said.failed is not None and said.code != CANNOT:
                raise AnswerFailed(said.code, said.failed)
        lines = []
        for said in self._items.values():
            if not said.text:
                continue
            start_s = part.start_s + (said.start_ms + PADDING_MS - began_ms) / 1000
            end_ms = self._sent_ms if said.end_ms is None else said.end_ms - SILENCE_MS
            end_s = part.start_s + (end_ms - began_ms) / 1000
            start_s = min(max(start_s, part.start_s), part.end_s)
            lines.append(Line(start_s, min(max(end_s, start_s), part.end_s), said.text))
        self._items.clear()
        return lines
