"""Connections that never become a session: half a handshake, half a frame, an idle call."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import httpx
from aiortc import RTCConfiguration, RTCPeerConnection

from headstart.benchmarks.soak.tally import Tally
from headstart.gateway.connection.pending import HEAD_S
from headstart.gateway.transport.webrtc.channel import LABEL

WAIT_S = 60.0
HANG_S = 2.0
SLACK_S = 15
"""Allows for an event loop that is busy with other clients."""
UPGRADE = (
    "GET /v1/realtime?model=tiny HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
)
HALF_A_FRAME = bytes((0x81, 0xFE)) + struct.pack("!H", 5000) + bytes(4) + b'{"type": "resp'
NO_UTF8 = bytes((0x81, 0x84)) + bytes(4) + b"\xff\xfe\xff\xfe"
UNMASKED = bytes((0x81, 0x02)) + b"{}"
RESERVED = bytes((0xFF, 0x80)) + bytes(4)
FRAMES = (HALF_A_FRAME, NO_UTF8, UNMASKED, RESERVED)
BAD_OFFERS = ("", "v=0", "v=0\r\nm=audio 9 X 0\r\n", "v=0\r\n" * 9000, "{}", "\x00" * 100)


async def open_one(url: str, rng: random.Random, tally: Tally) -> None:
    """Open one such connection, drawn at random."""
    kinds: dict[str, Callable[[], Awaitable[None]]] = {
        "half a handshake": lambda: _raw(url, UPGRADE.encode()[: rng.randrange(10, 120)], rng),
        "half a frame": lambda: _raw(url, UPGRADE.encode() + rng.choice(FRAMES), rng),
        "a byte a second": lambda: _slow(url, tally),
        "a bad offer": lambda: _bad_offer(url, rng, tally),
        "a call nobody makes": lambda: _call_and_go(url, tally),
    }
    name = rng.choice(list(kinds))
    tally.did[f"half connection: {name}"] += 1
    await kinds[name]()


async def _raw(url: str, data: bytes, rng: random.Random) -> None:
    parts = urlsplit(url)
    with contextlib.suppress(ConnectionError):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write(data)
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANG_S):
                    await reader.read(1 << 16)
            if rng.random() < 0.5:  # a reset rather than a normal close
                linger = struct.pack("ii", 1, 0)
                connection: socket.socket = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        finally:
            writer.close()
            await writer.wait_closed()


async def _slow(url: str, tally: Tally) -> None:
    """A request sent byte by byte must not be waited for."""
    parts, since_s = urlsplit(url), time.monotonic()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    ending = asyncio.create_task(reader.read())
    try:
        for byte in UPGRADE.encode()[: round(HEAD_S) + SLACK_S]:
            writer.write(bytes((byte,)))
            await asyncio.wait({ending}, timeout=1.0)
            if ending.done():
                tally.saw["slow request cut"] += 1
                return
        tally.complain("a request by single bytes was waited for", since_s)
    except ConnectionError:
        tally.saw["slow request cut"] += 1
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()


async def _bad_offer(url: str, rng: random.Random, tally: Tally) -> None:
    offer = rng.choice(BAD_OFFERS)
    response = await _post(url, offer)
    if response.status_code != 400 or not response.json()["error"]["code"]:
        tally.complain(f"an offer {offer[:40]!r} was answered by {response.status_code}")


async def _call_and_go(url: str, tally: Tally) -> None:
    """Make an offer and disappear after the answer; the server must give up after 20 s."""
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    try:
        peer.createDataChannel(LABEL)
        await peer.setLocalDescription(await peer.createOffer())
        response = await _post(url, peer.localDescription.sdp)
        if response.status_code not in (201, 503):
            tally.complain(f"an offer was answered by {response.status_code}")
    finally:
        await peer.close()


async def _post(url: str, offer: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=WAIT_S) as http:
        headers = {"Content-Type": "application/sdp"}
        return await http.post(f"{url}/v1/realtime/calls", content=offer, headers=headers)
