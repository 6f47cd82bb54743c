"""The clients of `headstart bench gateway`, in a process of their own and cheap, so that many fit.

Commands come as lines on stdin (`add N`, `flood KIND`, `calm`, `report`); each is answered by one
JSON line. A WebSocket client is a socket with frames encoded in advance; a call is aiortc with Opus
packets encoded in advance. Each client speaks for a few seconds and then sends room noise while the
answer comes, in real time, each at another point of that turn.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np
import uvloop

from headstart.benchmarks.gateway.floods import FLOODS
from headstart.benchmarks.harness.packets import PACKET_BYTES, PACKET_MS, clip_packets
from headstart.benchmarks.harness.websocket_frames import (
    CLOSE,
    PING,
    PONG,
    frame,
    frames,
    handshake,
    text_frame,
)

PAUSE_PACKETS = 6000 // PACKET_MS
HISS_RMS = 30  # of full scale 32768: about -61 dBFS, a quiet room
SLOTS = 8  # per packet time, so that not all packets are sent at once


def turn_pcm() -> list[bytes]:
    """A question and the pause for its answer, in packets of 24 kHz s16."""
    noise = np.random.default_rng(0).normal(0, HISS_RMS, PACKET_BYTES // 2 * PAUSE_PACKETS)
    hiss = noise.astype(np.int16).tobytes()
    pause = [hiss[i : i + PACKET_BYTES] for i in range(0, len(hiss), PACKET_BYTES)]
    return clip_packets("capital.wav") + pause


def append_frames(packets: list[bytes]) -> list[bytes]:
    """The packets as `input_audio_buffer.append` events, framed for a socket."""
    events = (
        {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
        for pcm in packets
    )
    return [text_frame(json.dumps(event)) for event in events]


class Client(asyncio.Protocol):
    """One WebSocket session that counts two event types in what it reads and keeps nothing."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.transport: asyncio.Transport | None = None
        self.at = 0
        self.answers = 0
        self.errors = 0
        self.closed_with = ""
        self._carry = b""
        self.is_open = False
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(handshake(self.host))

    def data_received(self, data: bytes) -> None:
        data = self._carry + data
        at = 0
        if not self.is_open:  # data sent before the end of the handshake would be lost
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self._carry = data
                return
            self.is_open = True
        for opcode, payload, end in frames(data, at):
            at = end
            if opcode == PING and self.transport is not None:
                self.transport.write(frame(PONG, payload))
            elif opcode == CLOSE:
                self.closed_with = payload.decode(errors="replace")
            self.answers += b'"type":"response.done"' in payload
            self.errors += payload.startswith(b'{"type":"error"')
        self._carry = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost, self.is_open = True, False


class Fleet:
    """A growing set of WebSocket clients in real time."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._frames = append_frames(turn_pcm())
        self.clients: list[Client] = []
        self.late_ms_max = 0.0

    async def add(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        host, port = self._parts.hostname, self._parts.port
        assert host is not None
        assert port is not None
        for _ in range(count):
            _, client = await loop.create_connection(lambda: Client(self._parts.netloc), host, port)
            client.at = len(self.clients) * 37 % len(self._frames)
            self.clients.append(client)
            await asyncio.sleep(0.01)

    async def speak(self) -> None:
        """Send all clients' packets until cancelled."""
        loop = asyncio.get_running_loop()
        step_s, due_s, slot = PACKET_MS / 1000 / SLOTS, loop.time(), 0
        while True:
            due_s += step_s
            await asyncio.sleep(due_s - loop.time())
            self.late_ms_max = max(self.late_ms_max, (loop.time() - due_s) * 1000)
            slot = (slot + 1) % SLOTS
            for client in self.clients[slot::SLOTS]:
                if client.transport is not None and client.is_open:
                    client.transport.write(self._frames[client.at])
                    client.at = (client.at + 1) % len(self._frames)

    def report(self) -> dict[str, Any]:
        late, self.late_ms_max = self.late_ms_max, 0.0
        return {
            "sessions": len(self.clients),
            "lost": sum(client.is_lost for client in self.clients),
            "closed_with": sorted({client.closed_with for client in self.clients} - {""}),
            "answers": sum(client.answers for client in self.clients),
            "errors": sum(client.errors for client in self.clients),
            "clients_late_ms_max": round(late, 1),
            "clients_cpu_s": round(sum(os.times()[:2]), 2),
        }


async def _main(kind: str, url: str) -> None:
    if kind == "webrtc":
        from headstart.benchmarks.gateway.calls import CallFleet

        fleet: Any = CallFleet(url)
    else:
        fleet = Fleet(url)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    speaking = asyncio.create_task(fleet.speak())
    flood: asyncio.Task[int] | None = None
    while line := (await lines.readline()).decode().split():
        answer: dict[str, Any] = {}
        match line:
            case ["add", count]:
                await fleet.add(int(count))
            case ["flood", name]:
                flood = asyncio.create_task(FLOODS[name](url))
            case ["calm"] if flood is not None:
                flood.cancel()
                answer = {"flooded": (await asyncio.gather(flood, return_exceptions=True))[0]}
                answer = {"flooded": repr(answer["flooded"])}
        if speaking.done():
            speaking.result()
        print(json.dumps(answer | fleet.report()), flush=True)
    speaking.cancel()
    os._exit(0)  # closing a thousand sockets in order would take long


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2]))
