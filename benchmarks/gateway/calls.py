"""The WebRTC clients of `headstart bench gateway`: aiortc connects them, and Opus packets that were
encoded in advance are sent past its tasks."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
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

from headstart.benchmarks.harness.packets import PACKET_MS, clip_packets
from headstart.gateway.transport.webrtc import aiortc_hooks, media_path
from headstart.gateway.transport.webrtc.channel import LABEL

RATE_HZ = 48_000
FRAME_MS = 20
FRAME_SAMPLES = RATE_HZ * FRAME_MS // 1000
PAUSE_PACKETS = 6000 // PACKET_MS
HISS_RMS = 30
CALL_WAIT_S = 20.0
STOPPED_S = 1.0
SLOTS = 8  # per packet time, so that not all packets are sent at once


def opus_turn() -> list[bytes]:
    """A question and a pause, as Opus packets of 20 ms."""
    noise = np.random.default_rng(0).normal(0, HISS_RMS, 24 * PACKET_MS * PAUSE_PACKETS)
    pcm = np.frombuffer(b"".join(clip_packets("capital.wav")), np.int16)
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


class SilentTrack(MediaStreamTrack):
    """Sends nothing: packets go past aiortc's tasks, which would cost more than the gateway."""

    kind = "audio"

    async def recv(self) -> Any:
        await asyncio.Event().wait()


@dataclass(slots=True)
class _Caller:
    """One call, and where it is in the packets."""

    peer: RTCPeerConnection
    sender: media_path.PacketSender
    at: int
    sent: int = 0


class CallFleet:
    """A growing set of calls in real time."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/realtime/calls"
        self._packets = opus_turn()
        self._callers: list[_Caller] = []
        self._late_ms_max = 0.0
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
        peer.addTrack(SilentTrack())

        def ignore(track: MediaStreamTrack) -> None:
            (receiver,) = (r for r in peer.getReceivers() if r.track is track)
            aiortc_hooks.ignore(receiver)

        peer.on("track", ignore)
        await peer.setLocalDescription(await peer.createOffer())
        headers = {"Content-Type": "application/sdp"}
        answer = await http.post(self._url, content=peer.localDescription.sdp, headers=headers)
        answer.raise_for_status()
        await peer.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        async with asyncio.timeout(CALL_WAIT_S):
            while peer.connectionState != "connected":
                await asyncio.sleep(0.01)
        (transceiver,) = peer.getTransceivers()
        at = len(self._callers) * 37 % len(self._packets)
        self._callers.append(_Caller(peer, media_path.PacketSender(transceiver), at))

    def _on_message(self, data: str | bytes) -> None:
        text = data if isinstance(data, str) else ""
        self._answers += '"response.done"' in text
        self._errors += '"type":"error"' in text

    async def speak(self) -> None:
        """Send all calls' packets until cancelled: each call in its slot of a packet's time."""
        loop = asyncio.get_running_loop()
        step_s, due_s, slot = FRAME_MS / 1000 / SLOTS, loop.time(), 0
        while True:
            due_s += step_s
            await asyncio.sleep(due_s - loop.time())
            late_s = loop.time() - due_s
            self._late_ms_max = max(self._late_ms_max, late_s * 1000)
            if late_s > STOPPED_S:  # this process stood still: go on from here
                due_s = loop.time()
            slot = (slot + 1) % SLOTS
            for caller in self._callers[slot::SLOTS]:
                if caller.peer.connectionState == "connected":
                    caller.sender.send(self._packets[caller.at], caller.sent * FRAME_SAMPLES)
                    caller.at = (caller.at + 1) % len(self._packets)
                    caller.sent += 1

    def report(self) -> dict[str, Any]:
        late, self._late_ms_max = self._late_ms_max, 0.0
        lost = sum(caller.peer.connectionState in ("failed", "closed") for caller in self._callers)
        return {
            "sessions": len(self._callers),
            "lost": lost,
            "answers": self._answers,
            "errors": self._errors,
            "packets": sum(caller.sent for caller in self._callers),
            "clients_late_ms_max": round(late, 1),
            "clients_cpu_s": round(sum(os.times()[:2]), 2),
        }
