"""Runs the conversation: one connection, one turn per file, optionally paced like a microphone.

`talk` is the entry point, also for tests and benchmarks.

"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from headstart.client_key import NO_KEY
from headstart.gateway.errors import ServerFailed, ServerRefused, ServerUnreachable
from headstart.gateway.runtime import tasks
from headstart.talk.comeback import ResumingConnection, Track, lasting
from headstart.talk.dialog import Dialog, Event, Turn
from headstart.talk.media import AudioPacket, JpegFrame, MediaFile, pcm_ms, play, probe, silence
from headstart.talk.socket import open_socket

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

    def progress(self, sent_ms: float) -> None:
        """This much of it has been sent."""

    def lost(self, kept_s: float | None) -> None:
        """The connection is lost and the session kept for `kept_s`; None: it is back."""

    def turn_ended(self, turn: Turn) -> None:
        """The turn is complete."""


async def talk(
    files: Sequence[Path],
    url: str,
    options: TalkOptions | None = None,
    watcher: TalkObserver | None = None,
) -> Dialog:
    """Play `files` to the server at `url` (http, https, ws or wss; with or without a path), one
    turn each. Returns the whole dialog. Raises `TalkError`s; a failed response does not raise: see
    `Turn.last_answer.status`."""
    options, watcher = options or TalkOptions(), watcher or TalkObserver()
    clips = [await asyncio.to_thread(probe, path) for path in files]
    async with _connected(realtime_url(url, options.model), options, watcher) as (line, track):
        talker = _Talker(line, track, options, watcher)
        async with talker.listening():
            await talker.agree()
            for clip in clips:
                await talker.take_turn(clip)
    return talker.dialog


def realtime_url(url: str, model: str | None) -> str:
    """The WebSocket URL for what the user typed. Raises `ServerUnreachable`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ServerUnreachable(f"{url!r} is no server's address: expected http://HOST:PORT")
    path = parts.path.rstrip("/")
    if not path.endswith("/realtime"):
        path += "/realtime" if path.endswith("/v1") else "/v1/realtime"
    query = parts.query or f"model={quote(model or 'default')}"
    return urlunsplit((scheme, parts.netloc, path, query, ""))


@contextlib.asynccontextmanager
async def _connected(
    url: str, options: TalkOptions, watcher: TalkObserver
) -> AsyncIterator[tuple[ResumingConnection, Track | None]]:
    if options.webrtc:
        from headstart.talk.webrtc import call  # aiortc takes half a second to import

        async with lasting(lambda ticket: call(url, options.api_key, ticket), watcher.lost) as line:
            yield line, line
    else:
        dial = functools.partial(open_socket, url, options.api_key)
        async with lasting(dial, watcher.lost) as line:
            yield line, None


class _Talker:
    """The sending half of one connection, and its waits for the other half."""

    def __init__(
        self,
        line: ResumingConnection,
        track: Track | None,
        options: TalkOptions,
        watcher: TalkObserver,
    ) -> None:
        self.dialog = Dialog()
        self._line = line
        self._track = track
        self._options = options
        self._watcher = watcher
        self._changed = asyncio.Condition()
        self._ended: Exception | None = None
        self._last_kind = ""  # of the server's last event
        self._extensions = options.extensions
        self._sounds_until_s = 0.0  # when the answers' sound ends, if it is played as it comes

    # --- receiving -------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        task = tasks.awaited(self._listen(), "listen")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen(self) -> None:
        """Process events. If this ends, the talk ends at once: otherwise an unprocessed response
        would look like a missing one."""
        try:
            async for message in self._line:
                event = self._take_in(message)
                self._watcher.event(event, self.dialog)
                async with self._changed:
                    self._changed.notify_all()
        except Exception as error:
            self._ended = error
            self._line.end(error)
        async with self._changed:
            self._changed.notify_all()

    def _take_in(self, message: str | bytes) -> Event:
        try:
            event: Event = json.loads(message)
            self.dialog.receive(event)
            self._last_kind = event["type"]
            if event["type"] == "response.output_audio.delta":
                now_s = asyncio.get_running_loop().time()
                lasts_s = pcm_ms(len(base64.b64decode(event["delta"]))) / 1000
                self._sounds_until_s = max(self._sounds_until_s, now_s) + lasts_s
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ServerFailed(f"the server broke the protocol: {error!r}") from error
        return event

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for `condition` while events arrive; `QUIET_WAIT_S` without any is a failure."""
        async with self._changed:
            while not condition():
                if self._ended is not None:
                    raise self._ended
                try:
                    await asyncio.wait_for(self._changed.wait(), QUIET_WAIT_S)
                except TimeoutError as error:
                    raise ServerFailed(
                        f"the server sent nothing for {QUIET_WAIT_S:.0f} s; still owed: {what}; "
                        f"the last that came: {self._last_kind or 'nothing'}"
                    ) from error

    # --- sending ---------------------------------------------------------------------------------

    async def _send(self, kind: str, **fields: Any) -> int:
        """Send one event; returns what `ResumingConnection.send` returns."""
        return await self._line.send(json.dumps({"type": kind, **fields}))

    async def _ask(self, what: str, came: Callable[[], int], kind: str, **fields: Any) -> None:
        """Send an event until its reply, `what`, has arrived: until `came` counts more.

        A request sent just before a connection is lost may be lost with it. A server replies to
        each of these at once, and a resumed client gets all missed events before `resumed`. So if
        the reply is not there by then, the server never got the request.
        """
        before = came()
        while came() == before:
            sent_over = await self._send(kind, **fields)
            await self._until(self._more_or_lost(came, before, sent_over), what)

    def _more_or_lost(
        self, came: Callable[[], int], before: int, sent_over: int
    ) -> Callable[[], bool]:
        return lambda: came() > before or self.dialog.comebacks > sent_over

    async def agree(self) -> None:
        """Configure the session: output, transcripts, our own events if available."""
        await self._until(lambda: bool(self.dialog.session), "session.created")
        await self._configure()
        if self.dialog.errors and self._extensions:
            # A server that does not know our key has refused the whole update.
            self.dialog.errors.clear()
            self._extensions = False
            await self._configure()
        if self.dialog.errors:
            raise ServerRefused(
                f"the server refuses the session's settings: {self.dialog.errors[0]['message']}"
            )

    async def _configure(self) -> None:
        session: dict[str, Any] = {
            "type": "realtime",
            "output_modalities": ["audio" if self._options.speak else "text"],
            "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        }
        if self._extensions:
            session["gateway"] = {
                "events": EXTENSION_EVENTS,
                "endpointing": "eager",
                "resume": True,
            }
        await self._ask(
            "session.updated",
            lambda: self.dialog.barriers + len(self.dialog.errors),
            "session.update",
            session=session,
        )

    async def take_turn(self, clip: MediaFile) -> None:
        turn = self.dialog.begin(str(clip.path), reports=self._extensions)
        self._watcher.turn_began(clip, turn)
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
        await self._end_turn(turn, pace, sent_ms)
        await self._until(lambda: turn.settled, "the answer")
        await self._played(turn)
        self._watcher.turn_ended(turn)

    async def _played(self, turn: Turn) -> None:
        """Wait until a spoken answer is over: on a call the server plays it."""
        if self._track is not None:
            await self._until(lambda: not turn.sounds, "the end of the answer's sound")
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
            self._watcher.progress(part.end_ms)
            return part.end_ms
        await pace.until(part.start_ms)
        image = "data:image/jpeg;base64," + base64.b64encode(part.jpeg).decode()
        if self._extensions:
            await self._send("input_image_buffer.append", image=image)
        else:
            content = [{"type": "input_image", "image_url": image}]
            item = {"type": "message", "role": "user", "content": content}
            await self._send("conversation.item.create", item=item)
        return sent_ms

    async def _append(self, pcm: bytes, captured_ms: float | None) -> None:
        if self._track is not None:
            await self._track.play(pcm)
            return
        fields: dict[str, Any] = {"audio": base64.b64encode(pcm).decode()}
        if captured_ms is not None and self._extensions:
            fields["captured_at_ms"] = captured_ms
        await self._send("input_audio_buffer.append", **fields)

    async def _end_turn(self, turn: Turn, pace: _Pacer, sent_ms: float) -> None:
        """Send silence until the server ends the turn by itself, or commit if it does not.

        After each silence comes an empty `session.update`: its reply means that the server has
        processed everything before it, whatever its speed.

        """
        detection = self.dialog.session["audio"]["input"].get("turn_detection")
        if detection is None:  # push-to-talk
            await self._commit(turn)
            await self._ask(
                "response.created",
                lambda: len(turn.answers) + len(self.dialog.errors),
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
        if self._track is not None:  # audio and events are not ordered with each other
            await self._track.drained()
        await self._ask(
            "input_audio_buffer.committed",
            lambda: turn.committed + len(self.dialog.errors),
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
        if self._track is not None:  # audio and events are not ordered with each other
            await self._track.drained()
        await self._ask(
            "session.updated",
            lambda: self.dialog.barriers,
            "session.update",
            session={"type": "realtime"},
        )


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
