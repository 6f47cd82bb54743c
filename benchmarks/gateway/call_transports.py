"""WebRTC libraries that receive calls and do nothing else: processor time for each packet of sound.

Run as `python -m headstart.benchmarks.gateway.call_transports --calls 32 --python PYTHON`: one
server process after the other, in turns, each fed by the clients of `headstart bench gateway`. A
server decrypts packets and hands each one to a Python function, which counts it; there is no Opus
and no session. PYTHON is an interpreter with `libdatachannel-py` (peers/requirements; it has no
wheel for Python 3.11); without it that library is left out.

    aiortc          packets by aiortc's own way, with `aiortc_hooks.tap_packets`
    media_path      the same connections, packets by `media_path.receive`
    libdatachannel  libdatachannel (C++) by libdatachannel-py

Keys: calls, us_per_packet (each library: one number for each turn), median (of these).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

SETTLE_S = 3.0
LIBRARIES = ("aiortc", "media_path", "libdatachannel")


class Aiortc:
    """Calls by aiortc; `past`: their sound past its tasks."""

    def __init__(self, *, past: bool) -> None:
        self.packets = 0
        self._past = past
        self._peers: list[Any] = []

    def _count(self, _: Any) -> None:
        self.packets += 1

    async def answer(self, offer: str) -> str:
        from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

        from headstart.gateway.runtime.fairness import LoopTimeBudget
        from headstart.gateway.transport.webrtc import aiortc_hooks, media_path

        peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._peers.append(peer)
        found: list[Any] = []

        def on_track(track: Any) -> None:
            (receiver,) = (r for r in peer.getReceivers() if r.track is track)
            aiortc_hooks.tap_packets(receiver, self._count)
            found.append(receiver)

        peer.on("track", on_track)
        await peer.setRemoteDescription(RTCSessionDescription(offer, "offer"))
        await peer.setLocalDescription(await peer.createAnswer())
        if self._past:
            share = LoopTimeBudget(time.perf_counter())
            media_path.receive(found[0], self._count, share, lambda: None)
        return str(peer.localDescription.sdp)


class Libdatachannel:
    """Calls by libdatachannel, whose threads call Python."""

    def __init__(self) -> None:
        self.packets = 0
        self._held: list[Any] = []

    def _count(self, _: Any) -> None:
        self.packets += 1

    async def answer(self, offer: str) -> str:
        import libdatachannel as lib  # type: ignore[import-not-found]

        peer = lib.PeerConnection(lib.Configuration())
        self._held.append(peer)

        def on_track(track: Any) -> None:
            track.on_message(self._count)
            self._held.append(track)

        peer.on_track(on_track)
        peer.set_remote_description(lib.Description(offer, lib.Description.Type.Offer))
        while peer.gathering_state() != lib.PeerConnection.GatheringState.Complete:
            await asyncio.sleep(0.01)
        return str(peer.local_description())


async def serve(library: str) -> None:
    """Answer offers over HTTP until stdin ends; each line of it is answered with the count."""
    calls: Any = Libdatachannel() if library == "libdatachannel" else None
    calls = calls or Aiortc(past=library == "media_path")

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            offer = (await reader.readexactly(length)).decode()
            answer = (await calls.answer(offer)).encode()
            kind = b"HTTP/1.1 201 Created\r\nContent-Type: application/sdp\r\n"
            writer.write(kind + b"Content-Length: %d\r\n\r\n" % len(answer) + answer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        spent_s = sum(os.times()[:2])
        print(json.dumps({"packets": calls.packets, "cpu_s": spent_s}), flush=True)
    os._exit(0)


async def _turn(library: str, python: str, calls: int, seconds: float) -> float:
    """us of processor time for each packet."""
    pipe = asyncio.subprocess.PIPE
    argv = (python, str(Path(__file__).resolve()), "--serve", library)
    server = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    try:
        assert server.stdin is not None
        assert server.stdout is not None
        url = json.loads(await server.stdout.readline())["url"]
        clients = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headstart.benchmarks.gateway.clients", "webrtc", url),
            stdin=pipe,
            stdout=pipe,
        )
        try:
            assert clients.stdin is not None
            assert clients.stdout is not None
            clients.stdin.write(f"add {calls}\n".encode())
            await clients.stdout.readline()
            await asyncio.sleep(SETTLE_S)
            seen = []
            for wait_s in (seconds, 0.0):
                server.stdin.write(b"\n")
                seen.append(json.loads(await server.stdout.readline()))
                await asyncio.sleep(wait_s)
        finally:
            clients.kill()
            await clients.wait()
    finally:
        server.kill()
        await server.wait()
    packets = seen[1]["packets"] - seen[0]["packets"]
    if not packets:
        raise RuntimeError(f"{library} received nothing")
    return float(1e6 * (seen[1]["cpu_s"] - seen[0]["cpu_s"]) / packets)


async def _compare(calls: int, seconds: float, turns: int, python: str) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for _ in range(turns):
        for library in LIBRARIES:
            if library == "libdatachannel" and not python:
                continue
            interpreter = python if library == "libdatachannel" else sys.executable
            took = await _turn(library, interpreter, calls, seconds)
            found.setdefault(library, []).append(round(took, 1))
            print(library, found[library][-1], file=sys.stderr)
    medians = {library: statistics.median(took) for library, took in found.items()}
    return {"calls": calls, "us_per_packet": found, "median": medians}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", choices=LIBRARIES)
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--python", default="")
    given = parser.parse_args()
    if given.serve == "libdatachannel":
        asyncio.run(serve(given.serve))
    elif given.serve:
        import uvloop

        uvloop.run(serve(given.serve))
    else:
        compared = _compare(given.calls, given.seconds, given.turns, given.python)
        print(json.dumps(asyncio.run(compared)))


if __name__ == "__main__":
    main()
