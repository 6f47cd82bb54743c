"""The command: a source, a state, a terminal; until q, Ctrl-C or, with `--once`, the first look."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headstart.gateway.errors import ServerUnreachable
from headstart.gateway.runtime import tasks
from headstart.top.keyboard import keys
from headstart.top.screen import View, lines
from headstart.top.source import LiveFeed, Source
from headstart.top.state import State

REDRAW_S = 0.5
SILENT_AFTER_S = 5.0
ONCE_WAIT_S = 15.0
HINT = "q: quit"


async def once(source: Source, console: Console) -> None:
    """The first whole picture, as plain text: a server's first snapshot, a recording's end. Raises
    `GatewayError`s."""
    state = State()
    status = [""]

    async def look() -> None:
        async with contextlib.aclosing(source.messages(status.append)) as messages:
            async for message in messages:
                state.apply(message)
                if isinstance(source, LiveFeed) and state.snapshot and state.clock.is_live:
                    return

    try:
        async with asyncio.timeout(ONCE_WAIT_S if isinstance(source, LiveFeed) else None):
            await look()
    except TimeoutError as error:
        raise ServerUnreachable(
            f"no snapshot came within {ONCE_WAIT_S:.0f} s, expected one a second"
        ) from error
    colour = console.color_system is not None
    for line in lines(state, View(console.width, status=status[-1], colour=colour)):
        line.rstrip()
        console.print(line, highlight=False, soft_wrap=True)


class _Top:
    """The live screen."""

    def __init__(self, source: Source, console: Console) -> None:
        self._source = source
        self._console = console
        self._state = State()
        self._status = ""
        self._heard_s = time.monotonic()
        self._page = 0
        self._stop = asyncio.Event()
        self._redraw = asyncio.Event()

    async def run(self) -> None:
        reading = tasks.awaited(self._read(), "top reads")
        drawing = tasks.awaited(self._draw(), "top draws")
        stopping = tasks.awaited(self._stop.wait(), "top stops")
        try:
            with keys(self._pressed), self._signals():
                ends = {reading, drawing, stopping}
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if reading in done:
                    reading.result()  # a feed that fails ends it
                    # A recording that is over stays on the screen.
                    ends = {drawing, stopping}
                    done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if drawing in done:
                    drawing.result()
        finally:
            for task in (reading, drawing, stopping):
                task.cancel()
            await asyncio.gather(reading, drawing, stopping, return_exceptions=True)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        ending = (signal.SIGINT, signal.SIGTERM)
        for number in ending:
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGWINCH, self._redraw.set)
        try:
            yield
        finally:
            for number in (*ending, signal.SIGWINCH):
                loop.remove_signal_handler(number)

    def _pressed(self, key: str) -> None:
        if key in ("q", "Q"):
            self._stop.set()
        elif key == " ":
            self._page += 1
            self._redraw.set()

    async def _read(self) -> None:
        async with contextlib.aclosing(self._source.messages(self._say)) as messages:
            async for message in messages:
                self._heard_s = time.monotonic()
                self._state.apply(message)

    def _say(self, sentence: str) -> None:
        self._status = sentence
        self._heard_s = time.monotonic()
        self._redraw.set()

    async def _draw(self) -> None:
        with Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stderr=False
        ) as live:
            while True:
                live.update(self._picture(), refresh=True)
                # Not `wait_for`: Python 3.11's may swallow a cancel.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REDRAW_S):
                        await self._redraw.wait()
                self._redraw.clear()

    def _picture(self) -> Text:
        size = self._console.size
        status = self._status
        silent_s = time.monotonic() - self._heard_s
        if status == "live" and silent_s > SILENT_AFTER_S:
            status = f"connected, but nothing came for {silent_s:.0f} s"
        colour = self._console.color_system is not None
        view = View(size.width, size.height, status, self._page, colour, HINT)
        return Text("\n", no_wrap=True, end="").join(lines(self._state, view))


async def watch(source: Source, console: Console) -> None:
    """Until the person or a signal ends it. Raises `GatewayError`s."""
    await _Top(source, console).run()
