"""A question with a pause inside, to the real `tiny`: answered early, and read as one message."""

from __future__ import annotations

import asyncio
import base64
import json
import wave
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from headstart.engine.weights import resolve_model
from headstart.gateway.audio.resample import StreamResampler
from tests.end_to_end.conftest import Server, serving, within
from tests.gateway.transport.webrtc.peer import FRAME_SAMPLES, Microphone, calling

pytestmark = pytest.mark.weights

CLIPS = Path(__file__).parents[2] / "headstart" / "clips"
COMPLETED = "conversation.item.input_audio_transcription.completed"
CUT_MS = 1_420  # of the clip, between "capital" and "of France?"
PACKET_MS = 40
SESSION = {
    "type": "realtime",
    "instructions": "You are brief.",
    "output_modalities": ["text"],
    "audio": {
        "input": {
            "transcription": {"model": "any"},
            "turn_detection": {"type": "semantic_vad", "eagerness": "high"},
        }
    },
    "gateway": {"events": ["turn", "latency"]},
}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def patient() -> Iterator[Server]:
    """A server whose windows are long, so that a slow machine's answer still lies within them."""
    resolve_model("tiny")
    with serving("tiny", "revocable_ms=8000", "false_interruption_ms=20000") as running:
        yield running


def parts() -> tuple[bytes, bytes]:
    """ "What is the capital" and "of France?", s16 mono at 24 kHz."""
    with wave.open(str(CLIPS / "capital.wav")) as file:
        pcm = file.readframes(file.getnframes())
    return pcm[: 48 * CUT_MS], pcm[48 * CUT_MS :]


class Seen:
    """All events of a session; `until` waits for the next that is wanted."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self._more = asyncio.Condition()

    async def take(self, event: Json) -> None:
        assert event["type"] != "error", event
        async with self._more:
            self.events.append(event)
            self._more.notify_all()

    def of(self, *types: str) -> list[Json]:
        return [event for event in self.events if event["type"] in types]

    async def until(self, type_: str, count: int = 1) -> Json:
        async with self._more:
            await self._more.wait_for(lambda: len(self.of(type_)) >= count)
        return self.of(type_)[count - 1]

    def items(self) -> list[Json]:
        """The conversation as these events leave it."""
        items: dict[str, Json] = {}
        for event in self.events:
            if event["type"] in ("conversation.item.added", "conversation.item.done"):
                items[event["item"]["id"]] = event["item"]
            elif event["type"] == "conversation.item.deleted":
                del items[event["item_id"]]
            elif event["type"] == COMPLETED and event["item_id"] in items:
                items[event["item_id"]]["content"][0]["transcript"] = event["transcript"]
        return list(items.values())


async def hesitate(say: Callable[[bytes], Awaitable[None]], seen: Seen) -> None:
    """The first part, silence until it is answered, the second part, and silence until that is."""
    first, rest = parts()
    quiet = bytes(48 * PACKET_MS)
    await say(first)
    while not seen.of("response.output_text.delta"):
        await say(quiet)
    await say(rest)
    while not is_answered(seen):
        await say(quiet)


def is_answered(seen: Seen) -> bool:
    """Whether the whole question is. The answer to its first part may be over, too."""
    taken_back = {event["response_id"] for event in seen.of("gateway.turn.continued")}
    done = (event["response"] for event in seen.of("response.done"))
    return bool(taken_back) and any(
        response["status"] == "completed" and response["id"] not in taken_back for response in done
    )


def is_one_message(seen: Seen) -> str:
    """Asserts what a client knows in the end; returns the whole question."""
    (continued,) = seen.of("gateway.turn.continued")
    early, whole = seen.of("response.done")
    assert early["response"]["id"] == continued["response_id"]
    assert early["response"]["status"] in ("cancelled", "completed")
    question, answer = seen.items()
    assert question["id"] == continued["item_id"]
    assert (question["role"], answer["role"]) == ("user", "assistant")
    assert whole["response"]["output"][0]["id"] == answer["id"]
    heard: str = question["content"][0]["transcript"]
    assert "capital of france" in heard.lower()
    return heard


async def prompt_tokens(url: str, text: str) -> int:
    """Input tokens of an answer to that text as a user's only message."""
    async with connect(f"{url.replace('http', 'ws', 1)}/v1/realtime") as socket:
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        for event in (
            {"type": "session.update", "session": SESSION},
            {"type": "conversation.item.create", "item": item},
            {"type": "response.create"},
        ):
            await socket.send(json.dumps(event))
        async for message in socket:
            event = json.loads(message)
            assert event["type"] != "error", event
            if event["type"] == "response.done":
                tokens: int = event["response"]["usage"]["input_tokens"]
                return tokens
    raise AssertionError("the connection closed")


async def live(pcm: bytes) -> AsyncIterator[bytes]:
    """Packets at the pace of a microphone."""
    for start in range(0, len(pcm), 48 * PACKET_MS):
        await asyncio.sleep(PACKET_MS / 1000)
        yield pcm[start : start + 48 * PACKET_MS]


async def read(socket: ClientConnection, seen: Seen) -> None:
    async for message in socket:
        await seen.take(json.loads(message))


async def test_over_a_websocket(patient: Server) -> None:
    """One item in the end, and the model has read exactly that one message: the answer's prompt
    has as many tokens as with the same words typed."""

    async def turn() -> None:
        seen = Seen()
        url = f"{patient.url.replace('http', 'ws', 1)}/v1/realtime"
        async with connect(url) as socket:
            reading = asyncio.create_task(read(socket, seen))
            await socket.send(json.dumps({"type": "session.update", "session": SESSION}))

            async def say(pcm: bytes) -> None:
                async for packet in live(pcm):
                    audio = base64.b64encode(packet).decode()
                    append = {"type": "input_audio_buffer.append", "audio": audio}
                    await socket.send(json.dumps(append))

            await hesitate(say, seen)
            reading.cancel()
        question = is_one_message(seen)
        usage = seen.of("response.done")[-1]["response"]["usage"]
        assert usage["input_tokens"] == await prompt_tokens(patient.url, question)

    await within(turn(), 150)


async def test_over_webrtc(patient: Server) -> None:
    """The same by a track, and events over the data channel."""

    async def turn() -> None:
        seen, microphone = Seen(), Microphone()
        async with calling(patient.url, microphone) as peer:
            await peer.event("session.created")
            peer.send("session.update", session=SESSION)
            await peer.event("session.updated")

            async def say(pcm: bytes) -> None:
                sound = StreamResampler(24_000, 48_000).feed(np.frombuffer(pcm, np.int16))
                passed = np.zeros((microphone.frames_sent + 1) * FRAME_SAMPLES, np.int16)
                microphone.sound = np.concatenate((passed, sound))
                await asyncio.sleep(len(pcm) / 48_000)

            async def watch() -> None:
                told = 0
                while True:
                    for event in peer.events[told:]:
                        await seen.take(event)
                        told += 1
                    await asyncio.sleep(0.02)

            watching = asyncio.create_task(watch())
            await hesitate(say, seen)
            watching.cancel()
        question = is_one_message(seen)
        usage = seen.of("response.done")[-1]["response"]["usage"]
        assert usage["input_tokens"] == await prompt_tokens(patient.url, question)

    await within(turn(), 150)
