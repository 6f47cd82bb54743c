"""A real WebRTC client of the gateway, made of aiortc, for tests and for the benchmark's loss."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av
import httpx
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)

from tests.gateway.transport.webrtc.sound import Samples

WAIT_S = 60.0
RATE_HZ = 48_000
FRAME_SAMPLES = 960


class Microphone(MediaStreamTrack):
    """Plays mono int16 at 48 kHz in real time, and silence behind it."""

    kind = "audio"

    def __init__(self, sound: Samples | None = None) -> None:
        super().__init__()
        self.sound = np.zeros(0, np.int16) if sound is None else sound
        self.frames_sent = 0
        self._began_s: float | None = None

    async def recv(self) -> av.AudioFrame:
        now_s = asyncio.get_running_loop().time()
        self._began_s = now_s if self._began_s is None else self._began_s
        await asyncio.sleep(max(0, self._began_s + self.frames_sent * 0.02 - now_s))
        at = self.frames_sent * FRAME_SAMPLES
        part = np.zeros(FRAME_SAMPLES, np.int16)
        given = self.sound[at : at + FRAME_SAMPLES]
        part[: len(given)] = given
        frame = av.AudioFrame.from_ndarray(part[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, at, Fraction(1, RATE_HZ)
        self.frames_sent += 1
        return frame


class Camera(MediaStreamTrack):
    """One colour, ten times a second."""

    kind = "video"

    def __init__(self, rgb: tuple[int, int, int] = (200, 30, 30), size: int = 320) -> None:
        super().__init__()
        self._picture = np.full((size * 3 // 4, size, 3), rgb, np.uint8)
        self.frames_sent = 0

    async def recv(self) -> av.VideoFrame:
        await asyncio.sleep(0.1)
        frame = av.VideoFrame.from_ndarray(self._picture, format="rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = self.frames_sent * 9000, Fraction(1, 90_000)
        self.frames_sent += 1
        return frame


@dataclass
class Peer:
    """A connected client: what it sent and what came."""

    pc: RTCPeerConnection
    channel: RTCDataChannel | None
    location: str = ""
    answer: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    tracks: list[MediaStreamTrack] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _read: int = 0

    def take(self, message: str) -> None:
        self.events.append(json.loads(message))
        self._arrived.set()

    def send(self, kind: str, **fields: Any) -> None:
        assert self.channel is not None
        self.channel.send(json.dumps({"type": kind, **fields}))

    async def event(self, kind: str, wait_s: float = WAIT_S) -> dict[str, Any]:
        """The next event of a type; what comes before it is passed over."""
        async with asyncio.timeout(wait_s):
            while True:
                while self._read < len(self.events):
                    self._read += 1
                    if self.events[self._read - 1]["type"] == kind:
                        return self.events[self._read - 1]
                self._arrived.clear()
                await self._arrived.wait()

    def vanish(self) -> None:
        """From now on nothing of it reaches the network, and nothing is said about that."""
        for connection in ice_connections(self.pc):
            for protocol in connection._protocols:
                protocol.transport.abort()


def ice_connections(pc: RTCPeerConnection) -> set[Any]:
    transports = {t.receiver.transport for t in pc.getTransceivers()}
    if pc.sctp is not None:
        transports.add(pc.sctp.transport)
    return {t.transport._connection for t in transports}


def delay(pc: RTCPeerConnection, delay_s: float) -> None:
    """From now on all it sends, of any kind, takes that long."""
    loop = asyncio.get_running_loop()
    for connection in ice_connections(pc):
        for protocol in connection._protocols:
            at_once = protocol.transport

            class Slow:
                """A datagram transport that is in no end_now."""

                def __init__(self, transport: Any) -> None:
                    self._transport = transport

                def sendto(self, data: bytes, address: Any = None) -> None:
                    if not self._transport.is_closing():
                        loop.call_later(delay_s, self._transport.sendto, data, address)

                def __getattr__(self, name: str) -> Any:
                    return getattr(self._transport, name)

            protocol.transport = Slow(at_once)


def lose(pc: RTCPeerConnection, share: float, seed: int) -> None:
    """Drop that share of the RTP packets on their way out; RTCP passes."""
    rng = random.Random(seed)
    change_packets(pc, lambda data: data if rng.random() >= share else None)


def garble(pc: RTCPeerConnection, seed: int) -> None:
    """Of the audio packets one in four has a random payload, one none, and one a payload type that
    nobody agreed on; the fourth passes as it is."""
    rng = random.Random(seed)

    def garbled(data: bytes) -> bytes:
        head = head_bytes(data)
        match rng.randrange(4):
            case 0:
                return data[:head] + rng.randbytes(rng.randrange(1, 200))
            case 1:
                return data[:head]
            case 2:
                return data[:1] + bytes([data[1] & 0x80 | 77]) + data[2:]
            case _:
                return data

    change_packets(pc, garbled)


def change_packets(pc: RTCPeerConnection, change: Callable[[bytes], bytes | None]) -> None:
    """What becomes of each RTP packet on its way out, before it is encrypted; None: it is lost."""
    transport: Any = pc.getTransceivers()[0].sender.transport
    send: Callable[[bytes], Any] = transport._send_rtp

    async def changed(data: bytes) -> None:
        if not 192 <= data[1] <= 223:  # RTCP, RFC 5761 §4
            new = change(data)
            if new is None:
                return
            data = new
        await send(data)

    transport._send_rtp = changed


def head_bytes(data: bytes) -> int:
    """The length of an RTP packet's header, with its extension (RFC 3550 §5.3.1)."""
    head = 12 + 4 * (data[0] & 15)
    if data[0] & 0x10:
        head += 4 + 4 * int.from_bytes(data[head + 2 : head + 4], "big")
    return head


async def offer_of(pc: RTCPeerConnection) -> str:
    await pc.setLocalDescription(await pc.createOffer())
    return str(pc.localDescription.sdp)


@contextlib.asynccontextmanager
async def prepared(
    microphone: MediaStreamTrack | None = None,
    camera: MediaStreamTrack | None = None,
    data: bool = True,
    codecs: tuple[str, ...] = (),
    configuration: RTCConfiguration | None = None,
) -> AsyncIterator[Peer]:
    """A client that has not called yet. `codecs`: the audio types that it offers, all if none."""
    pc = RTCPeerConnection(configuration or RTCConfiguration(iceServers=[]))
    for track in (microphone, camera):
        if track is not None:
            pc.addTrack(track)
    if codecs:
        known = RTCRtpSender.getCapabilities("audio").codecs
        wanted = [each for name in codecs for each in known if each.mimeType == name]
        pc.getTransceivers()[0].setCodecPreferences(wanted)
    peer = Peer(pc, pc.createDataChannel("oai-events") if data else None)
    if peer.channel is not None:
        peer.channel.on("message", peer.take)
    pc.on("track", peer.tracks.append)
    try:
        yield peer
    finally:
        await pc.close()


def _as_it_is(sdp: str) -> str:
    return sdp


async def post_offer(
    peer: Peer,
    url: str,
    headers: dict[str, str] | None = None,
    last_event_id: str = "",
    edit: Callable[[str], str] = _as_it_is,
) -> httpx.Response:
    """Call the server; the answer is not applied yet. `edit`: what the server gets of the offer."""
    async with httpx.AsyncClient(timeout=WAIT_S) as http:
        return await http.post(
            f"{url}/v1/realtime/calls",
            params={"last_event_id": last_event_id} if last_event_id else {},
            content=edit(await offer_of(peer.pc)),
            headers={"Content-Type": "application/sdp"} | (headers or {}),
        )


@contextlib.asynccontextmanager
async def calling(
    url: str,
    microphone: MediaStreamTrack | None = None,
    camera: MediaStreamTrack | None = None,
    data: bool = True,
    codecs: tuple[str, ...] = (),
    edit: Callable[[str], str] = _as_it_is,
) -> AsyncIterator[Peer]:
    """A client that has called the server at `url` and is connected."""
    async with prepared(microphone, camera, data, codecs) as peer:
        response = await post_offer(peer, url, edit=edit)
        assert response.status_code == 201, response.text
        await connect(peer, response.headers["Location"], response.text)
        yield peer


async def connect(peer: Peer, location: str, answer: str) -> None:
    """Apply the answer and wait for the connection."""
    peer.location, peer.answer = location, answer
    await peer.pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    async with asyncio.timeout(WAIT_S):
        while peer.pc.connectionState != "connected" or (
            peer.channel is not None and peer.channel.readyState != "open"
        ):
            await asyncio.sleep(0.01)
