"""`headstart talk --webrtc`: the same conversation as from a browser, with audio on a track and
events on a data channel."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)

from headstart.gateway.audio.clock import ms_to_client_samples
from headstart.gateway.errors import ConnectionLost, ResumeRefused, ServerRefused, ServerUnreachable
from headstart.gateway.protocol.headers import RESUME_HEADER, RESUME_LAST_EVENT
from headstart.gateway.runtime import tasks
from headstart.gateway.transport.webrtc import aiortc_hooks, codecs
from headstart.gateway.transport.webrtc.audio_sender import AudioSender
from headstart.gateway.transport.webrtc.channel import LABEL
from headstart.talk.connection.refusals import UNAUTHORISED, error_message, refused_key
from headstart.talk.connection.resumption import ResumeTicket

CONNECT_WAIT_S = 20.0
LEAD_SAMPLES = ms_to_client_samples(200)
"""Audio that may be queued on the track: enough never to run empty within a word."""
DRAIN_POLL_S = 0.02
HEARTBEAT_S = 1.0
HANGUP_WAIT_S = 2.0


class RtcConnection:
    """An open call. Iterate over its events; `play` sends audio in real time."""

    def __init__(self, peer: RTCPeerConnection, channel: RTCDataChannel) -> None:
        self._peer = peer
        self._channel = channel
        self._track = AudioSender()
        self._events: deque[str] = deque()
        self._changed = asyncio.Event()
        self._vanished = False
        peer.addTrack(self._track)
        (self._transceiver,) = peer.getTransceivers()
        self._transceiver.setCodecPreferences(codecs.preferences())
        peer.on("track", self._on_track)
        peer.on("connectionstatechange", self._changed.set)
        channel.on("open", self._changed.set)
        channel.on("close", self._changed.set)
        channel.on("message", self._on_message)

    @property
    def is_over(self) -> bool:
        return (
            self._vanished
            or self._peer.connectionState in ("closed", "failed")
            or self._channel.readyState == "closed"
        )

    def agreed(self) -> None:
        """The answer has arrived: use the audio codec it selects."""
        self._track.codec = codecs.spoken(aiortc_hooks.codecs(self._transceiver))

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
        """Send one event."""
        if self.is_over or self._channel.readyState != "open":
            raise ConnectionLost("the call is over")
        self._channel.send(text)

    async def play(self, pcm24k: bytes) -> None:
        """Queue audio on the track; returns when at most `LEAD_SAMPLES` of it are waiting."""
        self._track.put(pcm24k)
        while self._track.queued_samples > LEAD_SAMPLES and not self.is_over:
            await asyncio.sleep(DRAIN_POLL_S)

    async def drained(self) -> None:
        """Wait until all audio is sent."""
        while self._track.queued_samples and not self.is_over:
            await asyncio.sleep(DRAIN_POLL_S)

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self.is_over:  # a data channel gives no reason
                raise ConnectionLost("the call is over")
            self._changed.clear()
            await self._changed.wait()

    async def heartbeat(self) -> None:
        """Notice within 5 s that the peer no longer responds; the connection itself would take half
        a minute."""
        while await aiortc_hooks.answers(self._peer):
            await asyncio.sleep(HEARTBEAT_S)
        self.vanished()

    def vanished(self, _: BaseException | None = None) -> None:
        """The peer no longer responds, or the check for it has failed."""
        self._vanished = True
        self._changed.set()

    def _on_message(self, data: str | bytes) -> None:
        if isinstance(data, str):
            self._events.append(data)
            self._changed.set()

    def _on_track(self, track: MediaStreamTrack) -> None:
        """Ignore the server's audio."""
        (receiver,) = (r for r in self._peer.getReceivers() if r.track is track)
        aiortc_hooks.ignore(receiver)


@contextlib.asynccontextmanager
async def call(
    realtime_url: str, api_key: str, ticket: ResumeTicket | None = None
) -> AsyncIterator[RtcConnection]:
    """Make a call to the server of a `client.realtime_url`, or resume the ticket's session. Raises
    `TalkError`s. It is hung up at the end, unless it is already over."""
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    headers = {"Authorization": f"Bearer {api_key}"}
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(peer.close)
        http = await stack.enter_async_context(httpx.AsyncClient(headers=headers))
        line = RtcConnection(peer, peer.createDataChannel(LABEL))
        await peer.setLocalDescription(await peer.createOffer())
        url = calls_url(realtime_url)
        response = await _answer(http, url, peer.localDescription.sdp, ticket)
        try:
            await peer.setRemoteDescription(RTCSessionDescription(response.text, "answer"))
        except ValueError as error:
            raise ServerRefused(f"the server's answer is no SDP: {error}") from error
        line.agreed()
        await line.connected()
        beating = tasks.own(line.heartbeat(), "heartbeat", line.vanished)
        stack.callback(beating.cancel)
        try:
            yield line
        finally:
            if not line.is_over and "Location" in response.headers:  # else the server waits
                with contextlib.suppress(httpx.HTTPError):
                    address = urljoin(url, response.headers["Location"])
                    await http.post(f"{address}/hangup", timeout=HANGUP_WAIT_S)


def calls_url(realtime_url: str) -> str:
    """The URL for calls at the server of a WebSocket URL."""
    parts = urlsplit(realtime_url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    return urlunsplit((scheme, parts.netloc, f"{parts.path}/calls", parts.query, ""))


async def _answer(
    http: httpx.AsyncClient, url: str, offer: str, ticket: ResumeTicket | None
) -> httpx.Response:
    headers = {"Content-Type": "application/sdp"}
    query = {}
    if ticket is not None:
        headers[RESUME_HEADER], query[RESUME_LAST_EVENT] = ticket.token, ticket.last_event_id
    try:
        target = httpx.URL(url).copy_merge_params(query)
        response = await http.post(target, content=offer, headers=headers, timeout=CONNECT_WAIT_S)
    except httpx.RemoteProtocolError as error:
        told = f"{url} broke off its answer, or speaks no HTTP: {error}"
        raise ServerUnreachable(told) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServerUnreachable(f"nobody answers at {url} ({error or type(error)})") from error
    if response.status_code == 201:
        return response
    if response.status_code == UNAUTHORISED:
        raise refused_key(url)
    said = error_message(response.content)
    if ticket is not None and response.status_code in (404, 409):
        code = "resume_in_use" if response.status_code == 409 else "resume_token_unknown"
        raise ResumeRefused(code, said)
    raise ServerRefused(f"{url} answered {response.status_code} instead of taking the call: {said}")
