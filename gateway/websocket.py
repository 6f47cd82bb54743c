"""The pump between one WebSocket and one session core.

    socket ──reader──▶ Session ──actions──▶ Tell: engine link (never blocks)
    engine link ─────▶ Session              Send: outbound queue ──writer──▶ socket
    timer, TICK_S ───▶ Session              Hangup: behind all that is queued

All calls into the session happen on the loop, one after the other; none awaits. Bounds:

- outbound: `outbound_events` and `outbound_bytes` that the peer has not read yet. When full, this
  reader is shed: close 1013. What was queued is thrown away, for a stream with holes is worse.
- inbound: uvicorn reads one message ahead. A peer that sends audio faster than real time is read
  no further while the engine is more than `AUDIO_BEHIND_SAMPLES` of it behind; TCP holds it back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from engine import api
from gateway.actions import Action, Hangup, Send, Tell

log = logging.getLogger("headstart.websocket")

TICK_S = 0.1
AUDIO_BEHIND_SAMPLES = 30 * api.SAMPLE_RATE_HZ
AUDIO_BEHIND_WAIT_S = 10.0
"""Longest pause of the reader: pongs are read with the messages, and pings time out."""
CLOSE_WAIT_S = 2.0
"""How long a close frame may take to be written; then the connection is cut."""
CLOSE_INTERNAL_ERROR = 1011
CLOSE_SERVICE_RESTART = 1012
CLOSE_TRY_AGAIN_LATER = 1013
CLOSE_REASON_BYTES_MAX = 123  # RFC 6455 §5.5: a control frame holds 125, the code takes 2
ABORT_EXTENSION = "headstart.abort"


class SessionCore(Protocol):
    """What the pump needs of `gateway.session.Session`."""

    def start(self, now_ns: int) -> list[Action]: ...
    def receive_text(self, text: str, now_ns: int) -> list[Action]: ...
    def receive_binary(self, size: int, now_ns: int) -> list[Action]: ...
    def receive_engine(self, event: api.Event, now_ns: int) -> list[Action]: ...
    def engine_lost(self, now_ns: int) -> list[Action]: ...
    def engine_ready(self, ready: api.Ready, now_ns: int) -> list[Action]: ...
    def tick(self, now_ns: int) -> list[Action]: ...
    def sent(self, action: Send, now_ns: int) -> list[Action]: ...
    def close(self, now_ns: int) -> list[Action]: ...


class RealtimeProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, plus a way for the application to cut the connection: a peer
    that has stopped reading never lets a close frame through."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ABORT_EXTENSION] = self.transport.abort


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait for one reader."""

    events: int = 512
    bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Queued:
    text: str
    size_bytes: int
    action: Send


class Outbound:
    """The bounded queue between session and writer. Single consumer."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.waiting_bytes = 0
        self.hangup: Hangup | None = None
        self._queue: deque[_Queued] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, action: Send) -> bool:
        """False: full, nothing was queued."""
        encoded = msgspec.json.encode(action.event)
        full = (
            len(self._queue) >= self.bounds.events
            or self.waiting_bytes + len(encoded) > self.bounds.bytes
        )
        if full:
            return False
        self._queue.append(_Queued(encoded.decode(), len(encoded), action))
        self.waiting_bytes += len(encoded)
        self._filled.set()
        return True

    def end(self, hangup: Hangup, discard: bool) -> None:
        """No more after this. The first hangup wins. `discard` throws away what waits."""
        if discard:
            self._queue.clear()
            self.waiting_bytes = 0
        if self.hangup is None:
            self.hangup = hangup
        self._filled.set()

    async def get(self) -> _Queued | None:
        """The next one; None after the last, when there is a hangup."""
        while not self._queue:
            if self.hangup is not None:
                return None
            self._filled.clear()
            await self._filled.wait()
        item = self._queue.popleft()
        self.waiting_bytes -= item.size_bytes
        return item


class AudioFlow:
    """How far the engine is behind the audio it was told, in samples of the open utterance."""

    def __init__(self) -> None:
        self._told_sample = 0
        self._done_sample = 0
        self._caught_up = asyncio.Event()
        self._caught_up.set()

    @property
    def behind_samples(self) -> int:
        return max(0, self._told_sample - self._done_sample)

    def told(self, command: api.Command) -> None:
        match command:
            case api.Audio():
                self._told_sample = command.start_sample + command.samples
            case api.BeginSpeech():
                self._done_sample = max(self._done_sample, command.start_sample)
            case api.DropSpeech():
                self.forget()
            case _:
                return
        self._update()

    def heard(self, event: api.Event) -> None:
        match event:
            case api.Chunk():
                self._done_sample = max(self._done_sample, event.start_sample + event.samples)
                self._update()
            case api.Heard():
                self.forget()

    def forget(self) -> None:
        """Nothing is outstanding any more."""
        self._done_sample = self._told_sample
        self._update()

    def _update(self) -> None:
        if self.behind_samples <= AUDIO_BEHIND_SAMPLES:
            self._caught_up.set()
        else:
            self._caught_up.clear()

    async def wait(self) -> None:
        if not self._caught_up.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._caught_up.wait(), AUDIO_BEHIND_WAIT_S)


class Pump:
    """Runs one accepted socket. The engine link calls `engine_*`; `hangup` ends it from outside."""

    def __init__(
        self,
        session_id: str,
        socket: WebSocket,
        session: SessionCore,
        tell: Callable[[api.Command], bool],
        bounds: Bounds,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.session_id = session_id
        self.answering = 0
        """Responses begun and not yet done: what a graceful end waits for."""
        self.shed = False
        self._socket = socket
        self._session = session
        self._tell = tell
        self._now_ns = now_ns
        self._outbound = Outbound(bounds)
        self._audio = AudioFlow()
        self._closed = False
        self._writer: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until either side closes. Never raises for what the peer did."""
        loop = asyncio.get_running_loop()
        self._call(self._session.start)
        reader = loop.create_task(self._read())
        self._writer = loop.create_task(self._write())
        ticker = loop.create_task(self._tick())
        tasks = (reader, self._writer, ticker)
        try:
            await asyncio.wait({reader, self._writer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._closed = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._guarded(self._session.close)
        if self._outbound.hangup is not None:
            await self._close(self._outbound.hangup)

    def hangup(self, code: int, reason: str) -> None:
        self._outbound.end(Hangup(code, reason), discard=False)

    # --- the engine's side -----------------------------------------------------------------------

    def engine_event(self, event: api.Event) -> None:
        self._audio.heard(event)
        self._call(self._session.receive_engine, event)

    def engine_lost(self) -> None:
        self._audio.forget()
        self._call(self._session.engine_lost)

    def engine_ready(self, ready: api.Ready) -> None:
        self._call(self._session.engine_ready, ready)

    # --- calls into the session ------------------------------------------------------------------

    def _call(self, method: Callable[..., list[Action]], *arguments: object) -> None:
        if not self._closed and self._outbound.hangup is None:
            self._guarded(method, *arguments)

    def _guarded(self, method: Callable[..., list[Action]], *arguments: object) -> None:
        try:
            self._carry_out(method(*arguments, self._now_ns()))
        except Exception:
            # Ours to mend, and one session's end must not be another's.
            log.exception("session %s: internal error", self.session_id)
            self._outbound.end(Hangup(CLOSE_INTERNAL_ERROR, "internal error"), discard=False)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self._send(action)
                case Tell():
                    self._audio.told(action.command)
                    self._tell(action.command)
                case Hangup():
                    self._outbound.end(action, discard=False)

    def _send(self, action: Send) -> None:
        if self._closed or self._outbound.hangup is not None:
            return
        kind = action.event["type"]
        if kind == "response.created":
            self.answering += 1
        elif kind == "response.done":
            self.answering -= 1
        if not self._outbound.put(action):
            self.shed = True
            reason = (
                f"slow reader: more than {self._outbound.bounds.events} events or "
                f"{self._outbound.bounds.bytes} bytes were waiting"
            )
            log.warning("session %s: shed, %s", self.session_id, reason)
            self._outbound.end(Hangup(CLOSE_TRY_AGAIN_LATER, reason), discard=True)
            if self._writer is not None:
                self._writer.cancel()  # it waits for a peer that does not read

    # --- tasks -----------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            await self._audio.wait()
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is not None:
                self._call(self._session.receive_text, text)
            else:
                self._call(self._session.receive_binary, len(message.get("bytes") or b""))

    async def _write(self) -> None:
        while (item := await self._outbound.get()) is not None:
            if not await self._write_one(item):
                return

    async def _write_one(self, item: _Queued) -> bool:
        """False: the peer is gone, or is being shed."""
        try:
            await self._socket.send_text(item.text)
        except (WebSocketDisconnect, RuntimeError):
            # RuntimeError: starlette's word for "after the close".
            return False
        if item.action.wants_sent_stamp:
            self._call(self._session.sent, item.action)
        return True

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._call(self._session.tick)

    async def _close(self, hangup: Hangup) -> None:
        reason = hangup.reason.encode()[:CLOSE_REASON_BYTES_MAX].decode(errors="ignore")
        try:
            await asyncio.wait_for(self._socket.close(hangup.code, reason), CLOSE_WAIT_S)
        except TimeoutError:
            abort = self._socket.scope.get("extensions", {}).get(ABORT_EXTENSION)
            log.info("session %s: cut, it reads nothing any more", self.session_id)
            if abort is not None:
                abort()
        except (WebSocketDisconnect, RuntimeError):
            log.debug("session %s: gone before its close frame", self.session_id)
