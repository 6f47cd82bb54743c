"""`headstart talk --webrtc`: the same conversation as a browser holds it: sound on a track, events
on a data channel."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import httpx
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)

from gateway.errors import ServerFailed, ServerRefused, ServerUnreachable
from gateway.media.timebase import wire_samples
from gateway.rtc import aiortc_hooks
from gateway.rtc.channel import LABEL
from gateway.rtc.outgoing import OutgoingAudio

CONNECT_WAIT_S = 20.0
LEAD_SAMPLES = wire_samples(200)
"""Sound that may wait on the track: it must never run dry in mid-word."""
DRAIN_POLL_S = 0.02


class RtcLine:
    """A call that is up. Iterate over its events; `play` sound at real time."""

    def __init__(self, peer: RTCPeerConnection, channel: RTCDataChannel) -> None:
        self._peer = peer
        self._channel = channel
        self._track = OutgoingAudio()
        self._events: deque[str] = deque()
        self._changed = asyncio.Event()
        peer.addTrack(self._track)
        peer.on("track", self._on_track)
        peer.on("connectionstatechange", self._changed.set)
        channel.on("open", self._changed.set)
        channel.on("close", self._changed.set)
        channel.on("message", self._on_message)

    @property
    def is_over(self) -> bool:
        return self._peer.connectionState in ("closed", "failed") or (
            self._channel.readyState == "closed"
        )

    async def connected(self) -> None:
        """Wait for the channel. Raises `ServerUnreachable`."""
        try:
            async with asyncio.timeout(CONNECT_WAIT_S):
                while self._channel.readyState != "open":
                    if self.is_over:
                        raise ServerUnreachable("the call was answered, but ended at once")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise ServerUnreachable(
                "the call was answered, but no packet gets through; is UDP blocked?"
            ) from error

    async def send(self, text: str) -> None:
        """One event. Raises `ServerFailed` once the call is over."""
        if self._channel.readyState != "open":
            raise ServerFailed("the server ended the call")
        self._channel.send(text)

    async def play(self, pcm24k: bytes) -> None:
        """Sound for the track; returns when no more than `LEAD_SAMPLES` of it wait."""
        self._track.put(pcm24k)
        while self._track.queued_samples > LEAD_SAMPLES and not self.is_over:
            await asyncio.sleep(DRAIN_POLL_S)

    async def drained(self) -> None:
        """Until all sound is on its way."""
        while self._track.queued_samples and not self.is_over:
            await asyncio.sleep(DRAIN_POLL_S)

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self.is_over:
                return
            self._changed.clear()
            await self._changed.wait()

    def _on_message(self, data: str | bytes) -> None:
        if isinstance(data, str):
            self._events.append(data)
            self._changed.set()

    def _on_track(self, track: MediaStreamTrack) -> None:
        """Nobody listens here to what is spoken."""
        (receiver,) = (r for r in self._peer.getReceivers() if r.track is track)
        aiortc_hooks.ignore(receiver)


@contextlib.asynccontextmanager
async def call(realtime_url: str, api_key: str) -> AsyncIterator[RtcLine]:
    """A call to the server behind a `client.realtime_url`. Raises `TalkError`s."""
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    try:
        line = RtcLine(peer, peer.createDataChannel(LABEL))
        await peer.setLocalDescription(await peer.createOffer())
        answer = await _answer(calls_url(realtime_url), peer.localDescription.sdp, api_key)
        try:
            await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        except ValueError as error:
            raise ServerRefused(f"the server's answer is no SDP: {error}") from error
        await line.connected()
        yield line
    finally:
        await peer.close()


def calls_url(realtime_url: str) -> str:
    """Where calls are made at the server of a WebSocket address."""
    parts = urlsplit(realtime_url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    return urlunsplit((scheme, parts.netloc, f"{parts.path}/calls", parts.query, ""))


async def _answer(url: str, offer: str, api_key: str) -> str:
    headers = {"Content-Type": "application/sdp", "Authorization": f"Bearer {api_key}"}
    try:
        async with httpx.AsyncClient(timeout=CONNECT_WAIT_S) as http:
            response = await http.post(url, content=offer, headers=headers)
    except httpx.HTTPError as error:
        raise ServerUnreachable(f"nobody answers at {url} ({error or type(error)})") from error
    if response.status_code != 201:
        raise ServerRefused(
            f"{url} answered {response.status_code} instead of taking the call: "
            f"{response.text[:200]}"
        )
    return response.text
