"""One watcher's socket: the ring, then all that happens. A watcher may say one thing, `watch`.

A socket that is read slowly loses the oldest messages (`watcher`), never holds anybody up, and is
told how many. What it says is read `READS_PER_S` times a second at most; TCP holds back the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

from headstart.gateway.dashboard.dashboard import WATCHERS_MAX, Dashboard
from headstart.gateway.dashboard.messages import Message
from headstart.gateway.dashboard.watcher import Watcher
from headstart.gateway.runtime import tasks

READS_PER_S = 10
WATCH_CHARS_MAX = 256
RING_AT_ONCE = 16
"""Messages of the ring that are encoded and sent before others have their turn of the loop."""
CLOSE_NORMAL = 1000
CLOSE_POLICY = 1008
CLOSE_TRY_AGAIN_LATER = 1013


class Socket(Protocol):
    """An accepted WebSocket (`gateway.transport.websocket.channel`)."""

    async def receive(self) -> str | int | None:
        """The next text; of a binary message its size; None when the peer is gone."""

    async def send(self, text: str) -> bool:
        """Returns once it is on its way; False: the peer is gone."""

    def try_send(self, data: bytes) -> bool:
        """The same of UTF-8, if there is nothing to wait for. False: nothing was sent."""


class _Watch(msgspec.Struct, forbid_unknown_fields=True):
    """All that a watcher may say. `chunks`: whether it wants each chunk of everybody's."""

    type: Literal["watch"]
    chunks: bool = False


_watch = msgspec.json.Decoder(_Watch)
Goodbye = tuple[int, str]
"""A close code and its reason."""
TOO_MANY = {
    "type": "error",
    "error": {
        "code": "too_many_watchers",
        "message": f"{WATCHERS_MAX} watch this server already: close one of them.",
    },
}
"""Said before the close, as a wrong key is: pages see no more of a socket than its messages."""


async def feed(dashboard: Dashboard, socket: Socket) -> Goodbye:
    """Until the watcher goes, says what it may not, or is sent away; how to close the socket."""
    if dashboard.is_full:
        await socket.send(msgspec.json.encode(TOO_MANY).decode())
        return CLOSE_TRY_AGAIN_LATER, "too_many_watchers"
    watcher = Watcher()
    greeting = dashboard.watch(watcher)
    halves = [
        tasks.awaited(_read(socket, watcher), "watcher reads"),
        tasks.awaited(_write(socket, watcher, greeting), "watcher writes"),
    ]
    try:
        done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        dashboard.hub.unwatch(watcher)
        for half in halves:
            half.cancel()
        await asyncio.gather(*halves, return_exceptions=True)


async def _read(socket: Socket, watcher: Watcher) -> Goodbye:
    while (said := await socket.receive()) is not None:
        if isinstance(said, int):
            return CLOSE_POLICY, f"a text message was expected, got {said} bytes of binary"
        if len(said) > WATCH_CHARS_MAX:
            return CLOSE_POLICY, f"at most {WATCH_CHARS_MAX} characters were expected, got more"
        try:
            watcher.wants_chunks = _watch.decode(said).chunks
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return CLOSE_POLICY, 'nothing was expected but {"type":"watch","chunks":true or false}'
        await asyncio.sleep(1 / READS_PER_S)
    return CLOSE_NORMAL, ""


async def _write(socket: Socket, watcher: Watcher, greeting: Iterable[Message]) -> Goodbye:
    for number, message in enumerate(greeting):
        if not await _send(socket, message.line()):
            return CLOSE_NORMAL, ""
        if number % RING_AT_ONCE == 0:
            await asyncio.sleep(0)
    while True:
        await watcher.wait()
        line = watcher.take()
        if line is None:
            assert watcher.goodbye is not None
            return watcher.goodbye
        if not await _send(socket, line):
            return CLOSE_NORMAL, ""


async def _send(socket: Socket, line: bytes) -> bool:
    """False: the peer is gone."""
    return socket.try_send(line) or await socket.send(line.decode())
