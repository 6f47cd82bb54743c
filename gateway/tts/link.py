"""The gateway's link to the TTS worker: sends clauses, receives audio, reports the voice's status.

    start ─▶ loading ─Loaded─▶ ready ─died, or STALLED_S silent with work─▶ lost ─Loaded─▶ ready
                └─ code 2, or died FIRST_TRIES times before it was ever ready ─▶ off, for good

Sessions are attached by id, as at the engine link. Clauses that a worker held when it died are
lost: every session is told, and continues in text until there is a voice again. A worker without
pending clauses (`headstart.gateway.tts.owed_clauses`) may be silent for any time. Nothing here
blocks the loop. Bound: `PIPE_BYTES_MAX` of commands that the worker has not read; beyond it, the
worker counts as stalled.

"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from headstart.gateway.errors import ChildKeepsDying, ChildRefused
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import ChildProcess, Pipes
from headstart.gateway.tts.messages import (
    ClauseDone,
    Loaded,
    Speak,
    Stop,
    SynthesisedAudio,
    Unpacker,
    VoiceCommand,
    VoiceEvent,
    pack,
)
from headstart.gateway.tts.owed_clauses import UnfinishedClauses
from headstart.gateway.tts.status import VoiceStatus

log = logging.getLogger("headstart.voice")

READ_BYTES = 1 << 18
PIPE_BYTES_MAX = 1 << 20
STALLED_S = 20.0
WATCH_S = 1.0
STOP_WAIT_S = 2.0


class VoiceListener(Protocol):
    """A session's runner, as the link sees it."""

    def voice_event(self, event: SynthesisedAudio | ClauseDone) -> None: ...
    def voice_changed(self, status: VoiceStatus) -> None: ...


class VoiceOff(Exception):
    """There will be no voice; the message says why."""


Argv = Callable[[], Awaitable[list[str]]]


class VoiceLink:
    """`argv` returns the worker's command line, and may download weights. It raises `VoiceOff`."""

    def __init__(self, argv: Argv, stalled_s: float = STALLED_S) -> None:
        self.status = VoiceStatus("off", reason="not started")
        self.tried = asyncio.Event()
        """Set once there is a voice, or was one, or is known to be none."""
        self._argv = argv
        self._stalled_s = stalled_s
        self._listeners: dict[str, VoiceListener] = {}
        self._child: ChildProcess | None = None
        self._stdin: asyncio.StreamWriter | None = None  # of a live worker
        self._task: asyncio.Task[None] | None = None
        self._owed = UnfinishedClauses()
        self._last_s = 0.0  # when it last sent anything, or got work while idle

    @property
    def restarts(self) -> int:
        """Restarts of the worker."""
        return 0 if self._child is None else self._child.restarts

    @property
    def pid(self) -> int | None:
        """The worker's process id; None: there is none."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        self._set(VoiceStatus("loading"))
        self._task = tasks.own(self._keep(), "voice", self._given_up)

    async def stop(self) -> None:
        """Stop the worker. Returns when it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def attach(self, session: str, listener: VoiceListener) -> None:
        self._listeners[session] = listener

    def detach(self, session: str) -> None:
        del self._listeners[session]
        self.send(Stop(session))

    def send(self, command: VoiceCommand) -> bool:
        """Send a command. False: there is no voice now, nothing was sent."""
        if isinstance(command, Stop):
            self._owed.stopped(command)
        stdin = self._stdin
        if not self.status.speaks or stdin is None:
            return False
        if stdin.transport.get_write_buffer_size() > PIPE_BYTES_MAX:
            self._kill("it does not read what it is told")
            return False
        if isinstance(command, Speak):
            if not self._owed:
                self._last_s = time.monotonic()
            self._owed.sent(command)
        stdin.write(pack(command))
        return True

    # --- the worker's life -----------------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            self._child = ChildProcess(
                "voice",
                await self._argv(),
                connect=lambda: contextlib.nullcontext(Pipes(PIPE, PIPE)),
                talk=self._talk,
                on_exit=self._ended,
                hangs=self._hangs,
                watch_s=min(WATCH_S, self._stalled_s / 4),
                stop_wait_s=STOP_WAIT_S,
            )
            await self._child.run()
        except ChildRefused:
            self._off("the voice cannot be loaded; see the log")
        except ChildKeepsDying as error:
            self._off(f"the voice ended {error.tries} times while loading ({error.ended})")
        except VoiceOff as off:
            self._off(str(off))

    def _off(self, reason: str) -> None:
        log.warning("answers are text: %s", reason)
        self._set(VoiceStatus("off", reason=reason))

    def _given_up(self, error: BaseException) -> None:
        self._set(VoiceStatus("off", reason=f"it cannot be kept alive: {error!r}"))

    def _ended(self, how: str) -> None:
        self._set(VoiceStatus("lost", reason=f"the voice ended: {how}"))

    async def _talk(self, process: Process) -> None:
        self._stdin = process.stdin
        try:
            await self._read(process)
        finally:
            self._stdin = None  # no more commands are sent
            self._owed.lost()

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        unpacker = Unpacker(VoiceEvent)
        while data := await process.stdout.read(READ_BYTES):
            try:
                events: list[VoiceEvent] = unpacker.feed(data)
            except ValueError as error:  # msgspec's errors are ValueErrors too
                self._kill(f"it sent what is no message: {error}")
                return
            self._last_s = time.monotonic()
            for event in events:
                self._take(event)

    def _take(self, event: VoiceEvent) -> None:
        if isinstance(event, Loaded):
            log.info("the voice %s is ready, loaded in %.1f s", event.voice, event.load_s)
            assert self._child is not None
            self._child.healthy()
            self._set(VoiceStatus("ready", event.voice))
            return
        listener = self._listeners.get(event.session)
        if self._owed.takes(event) and listener is not None:
            listener.voice_event(event)

    def _hangs(self) -> str | None:
        if self._owed and time.monotonic() - self._last_s > self._stalled_s:
            return f"it has said nothing for {self._stalled_s:.0f} s"
        return None

    def _kill(self, reason: str) -> None:
        if self._child is not None:
            self._child.kill(reason)

    def _set(self, status: VoiceStatus) -> None:
        self.status = status
        if status.state != "loading":
            self.tried.set()
        for listener in list(self._listeners.values()):
            listener.voice_changed(status)


def worker_argv(voice: str, folder: Path | None) -> list[str]:
    """The command line of the worker process."""
    argv = [sys.executable, "-P", "-m", "headstart.gateway.tts.worker", voice]
    return argv if folder is None else [*argv, str(folder)]
