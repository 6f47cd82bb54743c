"""A loudspeaker beside the microphone: the answer comes back, and does not interrupt itself.

A real server, recogniser and voice; over a socket and over a call. The client plays what it gets in
real time and sends it back 20 dB weaker and 150 ms later.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from aiortc import MediaStreamTrack
from websockets.asyncio.client import ClientConnection, connect

from headstart.engine.weights import resolve_model
from tests.end_to_end.conftest import Server, serving, within
from tests.gateway.transport.webrtc.peer import RATE_HZ, Microphone, Peer, calling

pytestmark = pytest.mark.weights

ECHO, LATE_S, TICK_S = 0.1, 0.15, 0.02
SAMPLES_PER_S = 24_000
BEHIND_S = 2.0  # of silence, in which a turn would begin
LEAST_S = 1.5  # of answer
QUESTION = "Tell me a long story about a ship on the sea."
SESSION = {
    "type": "realtime",
    "audio": {"input": {"transcription": {"model": "whisper-1"}}},
    "gateway": {"events": ["chunks", "interruption", "latency"]},
}


@pytest.fixture(scope="module")
def speaking() -> Iterator[Server]:
    resolve_model("tiny")
    with serving("tiny", "voice=espeak") as running:
        yield running


def item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def check(events: list[dict[str, Any]]) -> None:
    """One answer, whole; its echo was taken for speech by the voice detector and heard by the
    recogniser, and nothing came of it."""
    kinds = [event["type"] for event in events]
    assert "error" not in kinds
    done = [event["response"] for event in events if event["type"] == "response.done"]
    assert [response["status"] for response in done] == ["completed"]
    assert "gateway.chunk.report" in kinds, "the echo was never heard"
    assert "input_audio_buffer.speech_started" not in kinds
    assert "gateway.interruption" not in kinds
    assert "conversation.item.truncated" not in kinds


class Room:
    """What a client plays by itself, and what its microphone hears of that, by the clock."""

    def __init__(self) -> None:
        self.began_s = asyncio.get_running_loop().time()
        self.played = np.zeros(0, np.int16)  # from `began_s` on
        self.sent = 0
        self.lasts_s = 0.0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() - self.began_s

    def play(self, pcm: bytes) -> None:
        """Behind what is still to be played."""
        at = max(len(self.played), round(self.now_s() * SAMPLES_PER_S))
        silence = np.zeros(at - len(self.played), np.int16)
        self.played = np.concatenate([self.played, silence, np.frombuffer(pcm, np.int16)])
        self.lasts_s += len(pcm) / 2 / SAMPLES_PER_S

    def left_s(self) -> float:
        return len(self.played) / SAMPLES_PER_S - self.now_s()

    def heard(self) -> bytes:
        """What the microphone has recorded since it was asked last."""
        until = round(self.now_s() * SAMPLES_PER_S)
        at = np.arange(self.sent, until) - round(LATE_S * SAMPLES_PER_S)
        self.sent = until
        known = (at >= 0) & (at < len(self.played))
        sound = np.zeros(len(at))
        sound[known] = self.played[at[known]] * ECHO
        return sound.astype(np.int16).tobytes()


async def test_over_a_socket(speaking: Server) -> None:
    """The client plays by itself: the server knows what it sent, not when it is heard."""
    events: list[dict[str, Any]] = []
    room = Room()

    async def listen(line: ClientConnection) -> None:
        async for message in line:
            event = json.loads(message)
            events.append(event)
            if event["type"] == "response.output_audio.delta":
                room.play(base64.b64decode(event["delta"]))

    async def talk() -> None:
        url = speaking.url.replace("http", "ws", 1) + "/v1/realtime?model=tiny"
        async with connect(url, max_size=None) as line:
            listening = asyncio.create_task(listen(line))
            for event in (
                {"type": "session.update", "session": SESSION},
                {"type": "conversation.item.create", "item": item(QUESTION)},
                {"type": "response.create"},
            ):
                await line.send(json.dumps(event))
            over_s = 0.0
            while over_s < BEHIND_S:
                await asyncio.sleep(TICK_S)
                audio = base64.b64encode(room.heard()).decode()
                await line.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
                done = any(event["type"] == "response.done" for event in events)
                over_s = -room.left_s() if done else 0.0
            listening.cancel()

    await within(talk())
    check(events)
    assert room.lasts_s > LEAST_S


def playing(events: list[dict[str, Any]]) -> bool:
    """Whether the server's playout was started and not stopped since."""
    kinds = [event["type"] for event in events]
    played = [kind for kind in kinds if kind.startswith("output_audio_buffer.")]
    return bool(played) and played[-1] == "output_audio_buffer.started"


class EchoingMicrophone(Microphone):
    """Records what a track plays, each frame at its own time: what comes later is not played."""

    def __init__(self) -> None:
        super().__init__(np.zeros(120 * RATE_HZ, np.int16))
        self.heard_s = 0.0

    async def stand_beside(self, track: MediaStreamTrack) -> None:
        first_at: int | None = None
        while True:
            frame: Any = await track.recv()
            part = frame.to_ndarray().reshape(-1)[:: len(frame.layout.channels)]
            if first_at is None:
                now_s = asyncio.get_running_loop().time() - (self._began_s or 0.0)
                first_at = round((now_s + LATE_S) * RATE_HZ) - frame.pts
            at = first_at + frame.pts
            self.sound[at : at + len(part)] = (part * ECHO).astype(np.int16)
            if np.abs(part).max() > 1000:
                self.heard_s += len(part) / RATE_HZ


async def test_over_a_call(speaking: Server) -> None:
    """The server plays; the sound goes through Opus both ways."""
    microphone = EchoingMicrophone()
    peers: list[Peer] = []

    async def talk() -> None:
        async with calling(speaking.url, microphone) as peer:
            peers.append(peer)
            await peer.event("session.created")
            peer.send("session.update", session=SESSION)
            beside = asyncio.create_task(microphone.stand_beside(peer.tracks[0]))
            peer.send("conversation.item.create", item=item(QUESTION))
            peer.send("response.create")
            await peer.event("response.done")
            while playing(peer.events):  # a slow engine lets the playout run empty in between
                await peer.event("output_audio_buffer.stopped")
            await asyncio.sleep(BEHIND_S)  # in which it must stay quiet
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside

    await within(talk())
    check(peers[0].events)
    assert microphone.heard_s > LEAST_S / 2
    budget = next(e for e in peers[0].events if e["type"] == "gateway.latency.report")["budget"]
    assert budget["stages_ms"]["voice"] is not None
