"""The connections of people who converse: cheap WebSocket clients, and one timer for all.

The frames of sound are encoded in advance and written without a library; what comes is parsed only
as far as a `Person` looks at it. A session that is refused is asked for again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from headstart.benchmarks.harness.packets import PACKET_MS
from headstart.benchmarks.harness.websocket_frames import (
    CLOSE,
    PING,
    PONG,
    frame,
    frames,
    handshake,
    text_frame,
)
from headstart.benchmarks.server.conversing import Person, Tally

SLOTS = 8  # of a packet's time: not all packets are sent at once
RETRY_S = 5.0
EVENTS = ["latency", "chunks", "hearing"]


def session_update() -> bytes:
    """The first frame of each session: the server's defaults, and the reports that are measured."""
    session: dict[str, Any] = {
        "type": "realtime",
        "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        "gateway": {"events": EVENTS},
    }
    return text_frame(json.dumps({"type": "session.update", "session": session}))


class Client(asyncio.Protocol):
    """One person's session."""

    def __init__(self, person: Person, tally: Tally, host: str, model: str) -> None:
        self.person = person
        self.is_open, self.is_lost = False, False
        self._tally, self._hello = tally, handshake(host, model)
        self._transport: asyncio.Transport | None = None
        self._carry = b""
        self._said_why = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        now_s = asyncio.get_running_loop().time()
        data, at = self._carry + data, 0
        if not self.is_open:
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self._carry = data
                return
            if not data.startswith(b"HTTP/1.1 101"):
                self._refused(data.split(b" ", 2)[1].decode())
                self.close()
                return
            self.is_open = True
            self.write(session_update())
            self.person.connected(now_s)
        for opcode, payload, end in frames(data, at):
            at = end
            match opcode:
                case _ if opcode == PING:
                    self.write(frame(PONG, payload))
                case _ if opcode == CLOSE:
                    self._refused(re.split(r"\W", payload[2:].decode(errors="replace"))[0])
                case _:
                    self.write(self.person.take(payload, now_s))
        self._carry = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost, self.is_open = True, False
        if not self._said_why:
            self._refused("connection lost")

    def tick(self, now_s: float) -> None:
        """One packet's time has passed."""
        if self.is_open:
            self.write(self.person.tick(now_s))

    def write(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._said_why = True
        if self._transport is not None:
            self._transport.close()

    def _refused(self, why: str) -> None:
        self._said_why = True
        self._tally.refused[why or "unnamed"] += 1


class Room:
    """All people's sessions, opened one after another over `spread_s`."""

    def __init__(
        self, url: str, model: str, people: Sequence[Person], tally: Tally, spread_s: float
    ) -> None:
        self.late_ms_max = 0.0
        self._parts, self._model, self._tally = urlsplit(url), model, tally
        self._people = people
        self._spread_s = spread_s
        self._clients: list[Client | None] = [None] * len(people)
        self._opens_s = [0.0] * len(people)

    async def talk(self) -> None:
        """Have everybody talk, until cancelled. Raises `OSError` if there is no server."""
        loop = asyncio.get_running_loop()
        step_s, due_s, slot = PACKET_MS / 1000 / SLOTS, loop.time(), 0
        count = len(self._people)
        self._opens_s = [due_s + self._spread_s * at / count for at in range(count)]
        try:
            while True:
                due_s += step_s
                await asyncio.sleep(due_s - loop.time())
                now_s = loop.time()
                self.late_ms_max = max(self.late_ms_max, (now_s - due_s) * 1000)
                slot = (slot + 1) % SLOTS
                for number in range(slot, count, SLOTS):
                    await self._tick(number, now_s)
        finally:
            for client in self._clients:
                if client is not None:
                    client.close()

    async def _tick(self, number: int, now_s: float) -> None:
        client = self._clients[number]
        if client is not None and client.is_lost:
            client = self._clients[number] = None
            self._opens_s[number] = now_s + RETRY_S
        if client is not None:
            client.tick(now_s)
        elif now_s >= self._opens_s[number]:
            await self._open(number)

    async def _open(self, number: int) -> None:
        parts = self._parts
        assert parts.hostname is not None
        assert parts.port is not None

        def made() -> Client:
            return Client(self._people[number], self._tally, parts.netloc, self._model)

        loop = asyncio.get_running_loop()
        _, self._clients[number] = await loop.create_connection(made, parts.hostname, parts.port)
