"""Runs the conversation: one connection, one turn per file, optionally paced like a microphone.

`talk` is the entry point, also for tests and benchmarks.

"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.client_key import NO_KEY
from headstart.talk.connection.address import realtime_url
from headstart.talk.connection.resumption import Open, ResumableConnection, Track, resumable
from headstart.talk.connection.session import ClientSession, Event, another_model
from headstart.talk.connection.websocket import open_socket
from headstart.talk.dialog import Dialog, Turn
from headstart.talk.media.playback import (
    AudioPacket,
    JpegFrame,
    MediaFile,
    pcm_ms,
    play,
    probe,
    silence,
)

DEFAULT_PACKET_MS = 40
SILENCE_MS_MIN = 1000
SILENCE_MARGIN_MS = 500
"""Longer than the server's own silence limit, so that it surely ends the turn."""
EXTRA_SILENCES = 5
"""How often more silence is sent while the server still detects speech; then the turn is committed.
"""
QUIET_WAIT_S = 180.0
"""A server that owes a reply and sends nothing for this long has failed."""
BETWEEN_FILES_MS = 1_600  # longer than the server's `revocable_ms`
EXTENSION_EVENTS = ["latency", "chunks", "hearing", "endpoint", "engine", "turn"]


@dataclass(frozen=True)
class TalkOptions:
    """How to talk. `frames` None: if the file has video. `packet_ms`: 20 to 100."""

    fast: bool = False
    frames: bool | None = None
    model: str | None = None
    packet_ms: int = DEFAULT_PACKET_MS
    api_key: str = NO_KEY
    extensions: bool = True
    """Ask for headstart's own events; if the server refuses, continue without them."""
    speak: bool = False
    """Ask for spoken answers; a server without a voice answers in text. The sound is not played,
    but a turn lasts until it would have been: speech over it would be an interruption."""
    webrtc: bool = False
    """Make a WebRTC call instead of opening a WebSocket: audio on a track, always in real time."""


class TalkObserver:
    """Is notified of what happens; the base class does nothing. See `headstart.talk.output`."""

    def event(self, event: Event, dialog: Dialog) -> None:
        """The server sent an event; `dialog` has processed it."""

    def turn_began(self, clip: MediaFile, turn: Turn) -> None:
        """A file is about to be sent."""

    def remark(self, sentence: str) -> None:
        """The file, or the server, is not as it should be, which showed on the way."""

    def progress(self, sent_ms: float) -> None:
        """This much of it has been sent."""

    def lost(self, kept_s: float | None) -> None:
        """The connection is lost and the session kept for `kept_s`; None: it is back."""

    def turn_ended(self, turn: Turn) -> None:
        """The turn is complete."""


async def talk(
    files: Sequence[Path | MediaFile],
    url: str,
    options: TalkOptions | None = None,
    observer: TalkObserver | None = None,
) -> Dialog:
    """Play `files`, probed before or now, to the server at `url` (http, https, ws or wss; with or
    without a path), one turn each. Returns the whole dialog. Raises `TalkError`s; a failed response
    does not raise: see `Turn.last_answer.status`."""
    options, observer = options or TalkOptions(), observer or TalkObserver()
    clips = [
        file if isinstance(file, MediaFile) else await asyncio.to_thread(probe, file)
        for file in files
    ]
    address = realtime_url(url, options.model)
    async with _connected(address, options, observer) as (connection, track):
        talker = _Talker(connection, track, options, observer)
        async with talker.session.listening():
            await talker.agree()
            for clip in clips:
                await talker.take_turn(clip)
    return talker.dialog


@contextlib.asynccontextmanager
async def _connected(
    url: str, options: TalkOptions, observer: TalkObserver
) -> AsyncIterator[tuple[ResumableConnection, Track | None]]:
    if options.webrtc:
        from headstart.talk.connection.webrtc import call  # aiortc takes half a second to import

        dial: Open = functools.partial(call, url, options.api_key)
    else:
        dial = functools.partial(open_socket, url, options.api_key)
    async with resumable(dial, observer.lost) as connection:
        yield connection, connection if options.webrtc else None


class _Talker:
    """The sending half of one connection, and its waits for the other half."""

    def __init__(
        self,
        connection: ResumableConnection,
        track: Track | None,
        options: TalkOptions,
        observer: TalkObserver,
    ) -> None:
        self.dialog = Dialog()
        self.session = ClientSession(
            connection,
            self._receive,
            QUIET_WAIT_S,
            lambda event: observer.event(event, self.dialog),
        )
        self._track = track
        self._options = options
        self._observer = observer
        self._extensions = options.extensions
        self._sounds_until_s = 0.0  # when the answers' sound ends, if it is played as it comes

    # --- receiving -------------------------------------------------------------------------------

    def _receive(self, event: Event) -> None:
        self.dialog.receive(event)
        if event["type"] == "response.output_audio.delta":
            now_s = asyncio.get_running_loop().time()
            lasts_s = pcm_ms(len(base64.b64decode(event["delta"]))) / 1000
            self._sounds_until_s = max(self._sounds_until_s, now_s) + lasts_s

    # --- sending ---------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Configure the session: output, transcripts, our own events if available."""
        settings: Event = {
            "type": "realtime",
            "output_modalities": ["audio" if self._options.speak else "text"],
            "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        }
        ours: Event = {"events": EXTENSION_EVENTS, "endpointing": "eager", "resume": True}
        wanted = ours if self._options.extensions else None
        self._extensions = await self.session.configure(settings, wanted)
        remark = another_model(self._options.model, self.session.settings.get("model"))
        if remark is not None:
            self._observer.remark(remark)
        self.dialog.errors.clear()  # that our extensions are not known is no fault of the talk

    async def take_turn(self, clip: MediaFile) -> None:
        turn = self.dialog.begin(str(clip.path), reports=self._extensions)
        self._observer.turn_began(clip, turn)
        frames = clip.has_video if self._options.frames is None else self._options.frames
        # A track is paced by itself.
        if len(self.dialog.turns) > 1 and self._extensions:
            # What is said sooner would continue the file before: the server takes early ends back.
            await self._send_silence(BETWEEN_FILES_MS, self._pacer(), 0.0)
        pace = self._pacer()
        parts = play(clip, self._options.packet_ms, frames)
        sent_ms = 0.0
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            sent_ms = await self._send_part(part, pace, sent_ms)
        for remark in parts.remarks:
            self._observer.remark(remark)
        await self._end_turn(turn, pace, sent_ms)
        await self.session.until(lambda: turn.settled, "the answer")
        await self._played(turn)
        self._observer.turn_ended(turn)

    async def _played(self, turn: Turn) -> None:
        """Wait until a spoken answer is over: on a call the server plays it."""
        if self._track is not None:
            await self.session.until(lambda: not turn.sounds, "the end of the answer's sound")
        else:
            now_s = asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, self._sounds_until_s - now_s))

    def _pacer(self) -> _Pacer:
        return _Pacer(enabled=self._track is None and not self._options.fast)

    async def _send_part(
        self, part: AudioPacket | JpegFrame, pace: _Pacer, sent_ms: float
    ) -> float:
        if isinstance(part, AudioPacket):
            captured_ms = await pace.until(part.end_ms)
            await self._append(part.pcm, captured_ms)
            self._observer.progress(part.end_ms)
            return part.end_ms
        await pace.until(part.start_ms)
        image = "data:image/jpeg;base64," + base64.b64encode(part.jpeg).decode()
        if self._extensions:
            await self.session.send("input_image_buffer.append", image=image)
        else:
            content = [{"type": "input_image", "image_url": image}]
            item = {"type": "message", "role": "user", "content": content}
            await self.session.send("conversation.item.create", item=item)
        return sent_ms

    async def _append(self, pcm: bytes, captured_ms: float | None) -> None:
        if self._track is not None:
            await self._track.play(pcm)
            return
        fields: dict[str, Any] = {"audio": base64.b64encode(pcm).decode()}
        if captured_ms is not None and self._extensions:
            fields["captured_at_ms"] = captured_ms
        await self.session.send("input_audio_buffer.append", **fields)

    async def _end_turn(self, turn: Turn, pace: _Pacer, sent_ms: float) -> None:
        """Send silence until the server ends the turn by itself, or commit if it does not.

        After each silence comes an empty `session.update`: its reply means that the server has
        processed everything before it, whatever its speed.

        """
        detection = self.session.settings["audio"]["input"].get("turn_detection")
        if detection is None:  # push-to-talk
            await self._commit(turn)
            await self.session.request(
                "response.created",
                lambda: len(turn.answers) + len(self.session.errors),
                "response.create",
            )
            await self._barrier()
        else:
            wait_ms = (detection.get("silence_duration_ms") or 0) + SILENCE_MARGIN_MS
            for _ in range(1 + EXTRA_SILENCES):
                sent_ms = await self._send_silence(max(SILENCE_MS_MIN, wait_ms), pace, sent_ms)
                await self._barrier()
                if not turn.speaking:
                    break
            else:
                await self._commit(turn)
        turn.all_sent = True

    async def _commit(self, turn: Turn) -> None:
        await self._drain()
        await self.session.request(
            "input_audio_buffer.committed",
            lambda: turn.committed + len(self.session.errors),
            "input_audio_buffer.commit",
        )

    async def _send_silence(self, total_ms: float, pace: _Pacer, sent_ms: float) -> float:
        end_ms = sent_ms + total_ms
        while sent_ms < end_ms:
            pcm = silence(min(self._options.packet_ms, end_ms - sent_ms))
            captured_ms = await pace.until(sent_ms + pcm_ms(len(pcm)))
            await self._append(pcm, captured_ms)
            sent_ms += pcm_ms(len(pcm))
        return sent_ms

    async def _barrier(self) -> None:
        await self._drain()
        await self.session.barrier("realtime")

    async def _drain(self) -> None:
        if self._track is not None:  # audio and events are not ordered with each other
            await self._track.drained()


class _Pacer:
    """Keeps a clip's time from passing faster than the clock, starting at the first `until`."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._start_s: float | None = None

    async def until(self, clip_ms: float) -> float | None:
        """Wait for this position of the clip. Returns the time on the monotonic clock in ms; None
        when not pacing, because audio faster than real time has no capture time."""
        if not self._enabled:
            return None
        now_s = time.monotonic()
        if self._start_s is None:
            self._start_s = now_s - clip_ms / 1000
        due_s = self._start_s + clip_ms / 1000
        if due_s > now_s:
            await asyncio.sleep(due_s - now_s)
        return due_s * 1000
