"""The stock `openai` package is answered aloud: a real voice behind a scripted engine."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI

from headstart.engine.weights import ensure
from tests.end_to_end.conftest import within
from tests.gateway.transport.webrtc.peer import Microphone, calling

pytestmark = pytest.mark.weights

ANSWER = "This is an answer that comes word by word."
VOICE_WAIT_S = 60


@pytest.fixture(scope="module")
def speaking_url() -> Iterator[str]:
    """A server with the fake engine and the voice joe, both ready."""
    ensure("joe")
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    argv += ["--engine", "fake", "--set", "voice=joe"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        end_s = time.monotonic() + VOICE_WAIT_S
        while True:
            with urllib.request.urlopen(f"{url}/status", timeout=60) as response:
                status = json.load(response)
            if status["voice"]["state"] == "ready" and status["engine"]["state"] == "ready":
                break
            assert time.monotonic() < end_s, status
            time.sleep(0.1)
        yield url
        process.terminate()


async def ask(connection: Any) -> list[Any]:
    """All events of one answer; an error event fails the test."""
    await connection.conversation.item.create(
        item={
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Go on."}],
        }
    )
    await connection.response.create()
    events = []
    async for event in connection:
        assert event.type != "error", event
        events.append(event)
        if event.type == "response.done":
            break
    return events


def sound_of(events: list[Any]) -> bytes:
    deltas = [e.delta for e in events if e.type == "response.output_audio.delta"]
    return b"".join(base64.b64decode(delta) for delta in deltas)


async def test_an_answer_is_spoken(speaking_url: str) -> None:
    """Sound and transcript in the API's order, as many seconds as that sentence takes."""

    async def turn() -> list[Any]:
        client = AsyncOpenAI(api_key="unused", base_url=f"{speaking_url}/v1")
        async with client.realtime.connect(model="any") as connection:
            created: Any = await connection.recv()
            assert created.session.output_modalities == ["audio"]
            return await ask(connection)

    events = await within(turn())
    order = [kind for kind, _ in itertools.groupby(event.type for event in events)]
    assert order[-6:] == [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    said = [e.delta for e in events if e.type == "response.output_audio_transcript.delta"]
    assert "".join(said).strip() == ANSWER
    content = events[-1].response.output[0].content[0]
    assert (content.type, content.transcript.strip()) == ("output_audio", ANSWER)
    sound = np.frombuffer(sound_of(events), np.int16)
    assert 1.5 < len(sound) / 24_000 < 5.0
    assert np.abs(sound.astype(int)).max() > 3_000


async def test_what_was_not_heard_is_not_kept(speaking_url: str) -> None:
    """Cancelled and cut: the transcript of the item ends where the person stopped listening."""

    async def turn() -> Any:
        client = AsyncOpenAI(api_key="unused", base_url=f"{speaking_url}/v1")
        async with client.realtime.connect(model="any") as connection:
            events = await ask(connection)
            item_id = events[-1].response.output[0].id
            await connection.conversation.item.truncate(
                item_id=item_id, content_index=0, audio_end_ms=700
            )
            await connection.conversation.item.retrieve(item_id=item_id)
            async for event in connection:
                assert event.type != "error", event
                if event.type == "conversation.item.retrieved":
                    return event.item
            raise AssertionError("the connection closed")

    heard = (await within(turn())).content[0].transcript
    assert heard
    assert ANSWER.startswith(heard)
    assert len(heard) < len(ANSWER)


async def test_over_webrtc_it_is_on_the_track(speaking_url: str) -> None:
    """Sound comes as Opus and not as events; when it is cleared, the server itself cuts the item at
    what it had played, and silence follows."""

    async def loudest(track: Any, frames: int) -> int:
        sounds = [(await track.recv()).to_ndarray() for _ in range(frames)]
        return max(int(np.abs(sound.astype(int)).max()) for sound in sounds)

    async def turn() -> None:
        async with calling(speaking_url, Microphone()) as peer:
            await peer.event("session.created")
            content = [{"type": "input_text", "text": "Go on."}]
            item = {"type": "message", "role": "user", "content": content}
            peer.send("conversation.item.create", item=item)
            peer.send("response.create")
            started = await peer.event("output_audio_buffer.started")
            assert await loudest(peer.tracks[0], 40) > 3_000
            peer.send("output_audio_buffer.clear")
            cut = await peer.event("conversation.item.truncated")
            cleared = await peer.event("output_audio_buffer.cleared")
            assert cleared["response_id"] == started["response_id"]
            assert 400 < cut["audio_end_ms"] < 2_500
            if not any(e["type"] == "response.done" for e in peer.events):
                await peer.event("response.done")  # until then its text grows, and is not cut
            peer.send("conversation.item.retrieve", item_id=cut["item_id"])
            item = (await peer.event("conversation.item.retrieved"))["item"]
            heard = item["content"][0]["transcript"]
            assert heard
            assert ANSWER.startswith(heard)
            assert len(heard) < len(ANSWER)
            assert not [e for e in peer.events if e["type"] == "response.output_audio.delta"]

    await within(turn())
