"""The gateway's end of the voice worker: keeps it alive and passes clauses and sound.

    start ─▶ loading ─Loaded─▶ ready ─died, or STALLED_S silent with work─▶ lost ─Loaded─▶ ready
                └─ code 2, or died FIRST_TRIES times before it was ever ready ─▶ off, for good

Sessions are attached by id, as at the engine's link. What a worker held when it died is lost: every
session is told, and goes on in text until a voice is there again. A worker that owes nothing
(`headstart.gateway.tts.owed_clauses`) may be silent for ever. Nothing here blocks the loop.
Bound: `PIPE_BYTES_MAX` of commands that the worker has not read; it is then taken for stalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import (
    EXIT_REFUSED,
    Backoff,
    describe_exit,
    die_with_parent,
)
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
from headstart.gateway.tts.owed_clauses import Owed
from headstart.gateway.tts.status import VoiceStatus

log = logging.getLogger("headstart.voice")

READ_BYTES = 1 << 18
PIPE_BYTES_MAX = 1 << 20
STALLED_S = 20.0
WATCH_S = 1.0
FIRST_TRIES = 3
STOP_WAIT_S = 2.0


class VoiceListener(Protocol):
    """A session's runner, as the link sees it."""

    def voice_event(self, event: SynthesisedAudio | ClauseDone) -> None: ...
    def voice_changed(self, status: VoiceStatus) -> None: ...


class VoiceOff(Exception):
    """There will be no voice; the message says why."""


Argv = Callable[[], Awaitable[list[str]]]


class VoiceLink:
    """`argv` makes the worker's command line, and may fetch weights for it. Raises `VoiceOff`."""

    def __init__(self, argv: Argv, stalled_s: float = STALLED_S) -> None:
        self.status = VoiceStatus("off", reason="not started")
        self.restarts = 0
        self.pid: int | None = None
        self._argv = argv
        self._stalled_s = stalled_s
        self._listeners: dict[str, VoiceListener] = {}
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._owed = Owed()
        self._last_s = 0.0  # when it last said anything, or got work while it had none

    def start(self) -> None:
        self._set(VoiceStatus("loading"))
        self._task = tasks.own(self._keep_alive(), "voice", self._given_up)

    async def stop(self) -> None:
        """End the worker. Returns when it is gone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def attach(self, session: str, listener: VoiceListener) -> None:
        self._listeners[session] = listener

    def detach(self, session: str) -> None:
        del self._listeners[session]
        self.tell(Stop(session))

    def tell(self, command: VoiceCommand) -> bool:
        """False: there is no voice now, nothing was sent."""
        if isinstance(command, Stop):
            self._owed.stopped(command)
        process = self._process
        if not self.status.speaks or process is None or process.stdin is None:
            return False
        if process.stdin.transport.get_write_buffer_size() > PIPE_BYTES_MAX:
            self._kill("it does not read what it is told")
            return False
        if isinstance(command, Speak):
            if not self._owed:
                self._last_s = time.monotonic()
            self._owed.asked(command)
        process.stdin.write(pack(command))
        return True

    # --- the worker's life -----------------------------------------------------------------------

    async def _keep_alive(self) -> None:
        backoff = Backoff()
        ever_ready = False
        try:
            argv = await self._argv()
            while True:
                ended = await self._run_once(argv)
                was_ready = self.status.speaks
                ever_ready |= was_ready
                if was_ready:
                    backoff.reset()
                how = describe_exit(ended)
                if ended == EXIT_REFUSED:
                    raise VoiceOff("the voice cannot be loaded; see the log")
                if not ever_ready and self.restarts + 1 >= FIRST_TRIES:
                    raise VoiceOff(f"the voice ended {FIRST_TRIES} times while loading ({how})")
                self.restarts += 1
                wait_s = backoff.next_s()
                log.error("the voice ended (%s); starting it again in %.1f s", how, wait_s)
                self._set(VoiceStatus("lost", reason=f"the voice ended: {how}"))
                await asyncio.sleep(wait_s)
        except VoiceOff as off:
            log.warning("answers are text: %s", off)
            self._set(VoiceStatus("off", reason=str(off)))

    def _given_up(self, error: BaseException) -> None:
        self._set(VoiceStatus("off", reason=f"it cannot be kept alive: {error!r}"))

    async def _run_once(self, argv: list[str]) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            *die_with_parent(argv), stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        self.pid = process.pid
        unwatched = lambda error: self._kill(f"nobody watches it: {error!r}")  # noqa: E731
        watching = tasks.own(self._watch(), "voice watchdog", unwatched)
        try:
            await self._read(process)
            return await process.wait()
        finally:
            watching.cancel()
            self.pid = self._process = None  # nobody is told anything any more
            self._owed.lost()
            await _end(process)

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
            self._set(VoiceStatus("ready", event.voice))
            return
        listener = self._listeners.get(event.session)
        if self._owed.takes(event) and listener is not None:
            listener.voice_event(event)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(WATCH_S, self._stalled_s / 4))
            if self._owed and time.monotonic() - self._last_s > self._stalled_s:
                self._kill(f"it has said nothing for {self._stalled_s:.0f} s")

    def _kill(self, reason: str) -> None:
        if self._process is not None and self._process.returncode is None:
            log.error("killing the voice: %s", reason)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _set(self, status: VoiceStatus) -> None:
        self.status = status
        for listener in list(self._listeners.values()):
            listener.voice_changed(status)


async def _end(process: Process) -> None:
    """Its stdin closes, which ends it; SIGKILL if it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), STOP_WAIT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def worker_argv(voice: str, folder: Path | None) -> list[str]:
    """The command line of the worker's process."""
    argv = [sys.executable, "-P", "-m", "headstart.gateway.tts.worker", voice]
    return argv if folder is None else [*argv, str(folder)]
