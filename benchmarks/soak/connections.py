"""One client's connection, as a WebSocket or a call, with the faults that networks have.

Everything received is checked by the canaries first. Bound: `EVENTS_KEPT` unread events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Protocol

import av
import httpx
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headstart.benchmarks.soak.canary import Canaries, Secret
from headstart.benchmarks.soak.sounds import PACKET_MS, Packet
from headstart.benchmarks.soak.tally import Tally
from headstart.gateway.transport.webrtc import aiortc_hooks
from headstart.gateway.transport.webrtc.channel import LABEL
from headstart.talk.connection.address import realtime_url
from headstart.talk.connection.webrtc import calls_url
from headstart.talk.media.audio import SAMPLE_RATE_HZ

Event = dict[str, Any]
Wanted = Callable[[Event], bool]

EVENTS_KEPT = 256
CONNECT_WAIT_S = 60.0
MESSAGE_BYTES_MAX = 64 << 20
FRAME_MS = 20
FRAME_BYTES = SAMPLE_RATE_HZ * FRAME_MS // 1000 * 2


class ConnectionLost(Exception):
    """The server or the network ended the connection. `code`: a WebSocket's, else 0."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class Connection(Protocol):
    """The connection of a visit."""

    inbox: Inbox

    async def send(self, event: Event | str | bytes) -> None: ...
    async def play(self, packets: Sequence[Packet]) -> None: ...
    async def rest(self, seconds: float) -> None: ...
    async def goodbye(self) -> None: ...
    async def drop(self) -> None: ...


class Inbox:
    """The events received, and the waiters for them."""

    def __init__(self, secret: Secret, canaries: Canaries, tally: Tally) -> None:
        self.answering: set[str] = set()
        """Ids of responses that have started and are not done."""
        self.token = ""
        """Token for resuming the session; "" if the server has offered none."""
        self.last_event_id = ""
        self._secret, self._canaries, self._tally = secret, canaries, tally
        self._kept: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._waiting: list[tuple[Wanted, asyncio.Future[Event]]] = []
        self._over: ConnectionLost | None = None

    def take(self, text: str) -> None:
        """Handle one message of the server."""
        event: Event = json.loads(text)
        kind = event["type"]
        self._canaries.watch(self._secret, text, event["delta"] if _is_text(kind) else "")
        self._tally.saw[kind] += 1
        self.last_event_id = event["event_id"]
        if kind == "gateway.session.resumable":
            self.token = event["token"]
        elif kind == "response.created":
            self.answering.add(event["response"]["id"])
        elif kind == "response.done":
            self.answering.discard(event["response"]["id"])
            self._judge(event["response"])
        elif kind == "error" and not (event["error"]["code"] and event["error"]["message"]):
            self._tally.complain(f"an error without a name: {text[:300]}", always=True)
        for wanted, future in self._waiting:
            if not future.done() and wanted(event):
                future.set_result(event)

    def _judge(self, response: Event) -> None:
        self._tally.saw[f"response {response['status']}"] += 1
        error = (response.get("status_details") or {}).get("error") or {}
        if response["status"] == "failed":
            self._tally.saw[f"response failed: {error.get('code')}"] += 1
        if response["status"] == "failed" and not error.get("code"):
            self._tally.complain(f"it failed without a reason: {response}", always=True)

    def over(self, code: int) -> None:
        """Record the end of the connection."""
        self._over = self._over or ConnectionLost(code)
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(self._over)

    @property
    def closed(self) -> ConnectionLost | None:
        return self._over

    @contextlib.asynccontextmanager
    async def expecting(self, wanted: Wanted) -> Any:
        """Yield a future of the first matching event from now on; await it with a timeout."""
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        if self._over is not None:
            raise self._over
        entry = (wanted, future)
        self._waiting.append(entry)
        try:
            yield future
        finally:
            self._waiting.remove(entry)
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()  # marks it as retrieved


def _is_text(kind: str) -> bool:
    return kind in ("response.output_text.delta", "response.output_audio_transcript.delta")


# --- WebSocket ----------------------------------------------------------------------------------


class SocketConnection:
    """`live`: audio is sent in real time; else as fast as the server takes it."""

    def __init__(self, socket: ClientConnection, address: str, inbox: Inbox, *, live: bool) -> None:
        self.inbox = inbox
        self._socket = socket
        self._address = address
        self._live = live
        self._reading = asyncio.create_task(self._read())

    async def send(self, event: Event | str | bytes) -> None:
        """Raises `ConnectionLost`."""
        try:
            await self._socket.send(json.dumps(event) if isinstance(event, dict) else event)
        except ConnectionClosed as error:
            self.inbox.over(_code(error))
            raise ConnectionLost(_code(error)) from error

    async def play(self, packets: Sequence[Packet]) -> None:
        began_s = asyncio.get_running_loop().time()
        for number, packet in enumerate(packets):
            await self.send(packet.event)
            due_s = began_s + (number + 1) * PACKET_MS / 1000
            await asyncio.sleep(due_s - asyncio.get_running_loop().time() if self._live else 0)

    async def rest(self, seconds: float) -> None:
        """Send nothing."""
        await asyncio.sleep(seconds)

    async def deaf(self, seconds: float) -> None:
        """Read nothing for that time; what the server sends stays in the network's buffers."""
        await _end(self._reading)
        await asyncio.sleep(seconds)
        self._reading = asyncio.create_task(self._read())

    async def come_back(self, after_s: float) -> None:
        """Drop the connection and resume over another one. Raises `ConnectionLost` if refused."""
        await _end(self._reading)
        self._socket.transport.abort()
        await self._socket.wait_closed()
        await asyncio.sleep(after_s)
        address = f"{self._address}&last_event_id={self.inbox.last_event_id}"
        self._socket = await _open(address, {"Headstart-Resume": self.inbox.token})
        self._reading = asyncio.create_task(self._read())

    async def goodbye(self) -> None:
        await self._socket.close()
        await _end(self._reading)

    async def drop(self) -> None:
        """Reset the connection at once."""
        self._socket.transport.abort()
        await self._socket.wait_closed()
        await _end(self._reading)

    async def _read(self) -> None:
        try:
            while True:
                text = await self._socket.recv()
                assert isinstance(text, str)
                self.inbox.take(text)
        except ConnectionClosed as error:
            self.inbox.over(_code(error))


def _code(error: ConnectionClosed) -> int:
    return error.rcvd.code if error.rcvd is not None else 1006


async def open_socket(url: str, model: str, inbox: Inbox, *, live: bool) -> SocketConnection:
    """Raises `ConnectionLost` with the HTTP status if the server refuses."""
    address = realtime_url(url, model)
    return SocketConnection(await _open(address, {}), address, inbox, live=live)


async def _open(address: str, headers: dict[str, str]) -> ClientConnection:
    try:
        return await connect(
            address,
            additional_headers={"Authorization": "Bearer none-needed"} | headers,
            compression=None,
            max_size=MESSAGE_BYTES_MAX,
            open_timeout=CONNECT_WAIT_S,
            ping_interval=None,
        )
    except InvalidStatus as error:
        raise ConnectionLost(error.response.status_code) from error


# --- WebRTC -------------------------------------------------------------------------------------


class Microphone(MediaStreamTrack):
    """Plays queued audio, then silence, in real time; sends nothing while `muted`."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.muted = False
        self._pcm = bytearray()
        self._frames = 0
        self._began_s: float | None = None

    @property
    def queued_s(self) -> float:
        return len(self._pcm) / 2 / SAMPLE_RATE_HZ

    def put(self, pcm24k: bytes) -> None:
        self._pcm += pcm24k

    async def recv(self) -> av.AudioFrame:
        loop = asyncio.get_running_loop()
        self._began_s = loop.time() if self._began_s is None else self._began_s
        while True:
            due_s = self._began_s + self._frames * FRAME_MS / 1000
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if not self.muted:
                break
            self._frames += 1  # time passes while muted
        pcm = bytes(self._pcm[:FRAME_BYTES]).ljust(FRAME_BYTES, b"\0")
        del self._pcm[:FRAME_BYTES]
        samples = np.frombuffer(pcm, np.int16)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate, frame.time_base = SAMPLE_RATE_HZ, Fraction(1, SAMPLE_RATE_HZ)
        frame.pts = self._frames * FRAME_BYTES // 2
        self._frames += 1
        return frame


class CallConnection:
    """An established call. Calls are always in real time, whatever was asked."""

    def __init__(
        self, peer: RTCPeerConnection, channel: RTCDataChannel, microphone: Microphone, inbox: Inbox
    ) -> None:
        self.inbox = inbox
        self.location = ""
        self._peer, self._channel, self._microphone = peer, channel, microphone
        channel.on("message", self._take)
        channel.on("close", lambda: inbox.over(0))
        peer.on("connectionstatechange", self._changed)
        peer.on("track", self._ignore)

    def _take(self, message: str | bytes) -> None:
        assert isinstance(message, str)
        self.inbox.take(message)

    def _changed(self) -> None:
        if self._peer.connectionState in ("closed", "failed"):
            self.inbox.over(0)

    def _ignore(self, track: MediaStreamTrack) -> None:
        (receiver,) = (r for r in self._peer.getReceivers() if r.track is track)
        aiortc_hooks.ignore(receiver)

    @property
    def is_up(self) -> bool:
        return self._peer.connectionState == "connected" and self._channel.readyState == "open"

    async def send(self, event: Event | str | bytes) -> None:
        """Raises `ConnectionLost`."""
        if self._channel.readyState != "open":
            raise ConnectionLost(0)
        self._channel.send(json.dumps(event) if isinstance(event, dict) else event)
        await asyncio.sleep(0)

    async def play(self, packets: Sequence[Packet]) -> None:
        for packet in packets:
            self._microphone.put(packet.pcm)
        while self._microphone.queued_s > 0:
            if self.inbox.closed is not None:
                raise self.inbox.closed
            await asyncio.sleep(FRAME_MS / 1000)

    async def rest(self, seconds: float) -> None:
        """Send no audio packets for that time."""
        self._microphone.muted = True
        await asyncio.sleep(seconds)
        self._microphone.muted = False

    async def hang_up(self, url: str) -> None:
        """End the call over HTTP, as a client's application does."""
        async with httpx.AsyncClient(timeout=CONNECT_WAIT_S) as http:
            await http.post(f"{url}{self.location}/hangup")

    async def goodbye(self) -> None:
        await self._peer.close()

    async def drop(self) -> None:
        """Drop all packets from now on, as a lost network does."""
        if self._peer.connectionState == "connected":
            for protocol in _udp_protocols(self._peer):
                protocol.send_data, protocol.send_stun = _into_the_void, _nothing
        await self._peer.close()


async def _into_the_void(*_: object) -> None:
    """Replaces the packet sender of a lost network."""


def _nothing(*_: object) -> None:
    """Replaces the STUN requests of a lost network."""


def _udp_protocols(peer: RTCPeerConnection) -> list[Any]:
    """aioice's protocols, one per local address; it has no public access to them."""
    transports = {t.receiver.transport for t in peer.getTransceivers()}
    connections = {t.transport._connection for t in transports}
    return [protocol for connection in connections for protocol in connection._protocols]


async def open_call(url: str, model: str, inbox: Inbox) -> CallConnection:
    """Raises `ConnectionLost` with the HTTP status, or 0 if no packet gets through."""
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    microphone = Microphone()
    peer.addTrack(microphone)
    line = CallConnection(peer, peer.createDataChannel(LABEL), microphone, inbox)
    try:
        await peer.setLocalDescription(await peer.createOffer())
        headers = {"Content-Type": "application/sdp"}
        async with httpx.AsyncClient(timeout=CONNECT_WAIT_S) as http:
            address = calls_url(realtime_url(url, model))
            response = await http.post(address, content=peer.localDescription.sdp, headers=headers)
        if response.status_code != 201:
            raise ConnectionLost(response.status_code)
        line.location = response.headers["Location"]
        await peer.setRemoteDescription(RTCSessionDescription(response.text, "answer"))
        async with asyncio.timeout(CONNECT_WAIT_S):
            while not line.is_up:
                if inbox.closed is not None:
                    raise inbox.closed
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        await peer.close()
        raise ConnectionLost(0) from error
    except BaseException:
        await peer.close()
        raise
    return line


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
