"""The WebRTC clients of `headstart bench gateway`: aiortc with Opus packets encoded in advance."""

from __future__ import annotations

import asyncio
import fractions
import os
from typing import Any

import av
import httpx
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCSessionDescription,
)
from av.audio.codeccontext import AudioCodecContext

from headstart.benchmarks.live import PACKET_MS, _packets
from headstart.gateway.transport.webrtc import aiortc_hooks
from headstart.gateway.transport.webrtc.channel import LABEL

RATE_HZ = 48_000
FRAME_MS = 20
FRAME_SAMPLES = RATE_HZ * FRAME_MS // 1000
PAUSE_PACKETS = 6000 // PACKET_MS
HISS_RMS = 30
CALL_WAIT_S = 20.0


def opus_turn() -> list[bytes]:
    """A question and a pause, as Opus packets of 20 ms."""
    noise = np.random.default_rng(0).normal(0, HISS_RMS, 24 * PACKET_MS * PAUSE_PACKETS)
    pcm = np.frombuffer(b"".join(_packets("capital.wav")), np.int16)
    sound = np.repeat(np.concatenate((pcm, noise.astype(np.int16))), 2)  # 24 to 48 kHz, crudely
    encoder = av.CodecContext.create("libopus", "w")
    assert isinstance(encoder, AudioCodecContext)
    encoder.sample_rate, encoder.format, encoder.layout = RATE_HZ, "s16", "mono"
    packets = []
    for at in range(0, len(sound) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        frame = av.AudioFrame.from_ndarray(sound[None, at : at + FRAME_SAMPLES], "s16", "mono")
        frame.sample_rate, frame.pts = RATE_HZ, at
        packets += [bytes(packet) for packet in encoder.encode(frame)]
    return packets


class OpusTrack(MediaStreamTrack):
    """Plays packets in a loop, each at its time."""

    kind = "audio"

    def __init__(self, packets: list[bytes], start: int) -> None:
        super().__init__()
        self._packets = packets
        self._start = start
        self._sent = 0
        self._began_s: float | None = None

    async def recv(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._began_s is None:
            self._began_s = loop.time()
        await asyncio.sleep(self._began_s + self._sent * FRAME_MS / 1000 - loop.time())
        packet = av.Packet(self._packets[(self._start + self._sent) % len(self._packets)])
        packet.pts, packet.time_base = self._sent * FRAME_SAMPLES, fractions.Fraction(1, RATE_HZ)
        self._sent += 1
        return packet


class CallFleet:
    """A growing set of calls in real time."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/realtime/calls"
        self._packets = opus_turn()
        self._peers: list[RTCPeerConnection] = []
        self._answers = 0
        self._errors = 0

    async def add(self, count: int) -> None:
        async with httpx.AsyncClient(timeout=CALL_WAIT_S) as http:
            for _ in range(count):
                await self._call(http)

    async def _call(self, http: httpx.AsyncClient) -> None:
        peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        channel = peer.createDataChannel(LABEL)
        channel.on("message", self._on_message)
        peer.addTrack(OpusTrack(self._packets, len(self._peers) * 37 % len(self._packets)))

        def ignore(track: MediaStreamTrack) -> None:
            (receiver,) = (r for r in peer.getReceivers() if r.track is track)
            aiortc_hooks.ignore(receiver)

        peer.on("track", ignore)
        await peer.setLocalDescription(await peer.createOffer())
        headers = {"Content-Type": "application/sdp"}
        answer = await http.post(self._url, content=peer.localDescription.sdp, headers=headers)
        answer.raise_for_status()
        await peer.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        self._peers.append(peer)

    def _on_message(self, data: str | bytes) -> None:
        text = data if isinstance(data, str) else ""
        self._answers += '"response.done"' in text
        self._errors += '"type":"error"' in text

    async def speak(self) -> None:
        """Nothing to do: tracks send by themselves."""
        await asyncio.Event().wait()

    def report(self) -> dict[str, Any]:
        lost = sum(peer.connectionState in ("failed", "closed") for peer in self._peers)
        return {
            "sessions": len(self._peers),
            "lost": lost,
            "answers": self._answers,
            "errors": self._errors,
            "clients_cpu_s": round(sum(os.times()[:2]), 2),
        }
