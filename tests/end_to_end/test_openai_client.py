"""The stock `openai` package, unmodified, holds conversations with a real server."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.end_to_end.conftest import Server, packets, within

pytestmark = pytest.mark.weights

BRIEFLY = "Answer in one short sentence."  # `tiny` knows its capitals then, whatever our manner is


def client(server: Server) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1")


async def events_until(connection: Any, last: str) -> list[Any]:
    """All events up to the first of type `last`; an error event fails the test."""
    seen = []
    async for event in connection:
        assert event.type != "error", event
        seen.append(event)
        if event.type == last:
            return seen
    raise AssertionError(f"the connection closed before {last}")


async def test_a_text_turn(server: Server) -> None:
    """Asked in text, it answers in text, and counts its tokens."""

    async def turn() -> list[Any]:
        async with client(server).realtime.connect(model="tiny") as connection:
            assert (await connection.recv()).type == "session.created"
            await connection.session.update(session={"type": "realtime", "instructions": BRIEFLY})
            await connection.session.update(
                session={"type": "realtime", "output_modalities": ["text"]}
            )
            await connection.conversation.item.create(
                item={
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "What is the capital of France?"}],
                }
            )
            await connection.response.create()
            return await events_until(connection, "response.done")

    events = await within(turn())
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert "Paris" in text
    response = events[-1].response
    assert response.status == "completed"
    assert response.output[0].content[0].text == text
    assert response.usage.output_tokens > 0


async def test_a_spoken_turn_under_server_vad(server: Server, capital_pcm: bytes) -> None:
    """Spoken to, it finds the end of speech by itself, says what it heard, and answers."""

    async def turn() -> list[Any]:
        async with client(server).realtime.connect(model="tiny") as connection:
            await connection.session.update(
                session={
                    "type": "realtime",
                    "instructions": BRIEFLY,
                    "audio": {"input": {"transcription": {"model": "whisper-1"}}},
                }
            )
            for packet in packets(capital_pcm):
                await connection.input_audio_buffer.append(audio=base64.b64encode(packet).decode())
            return await events_until(connection, "response.done")

    events = await within(turn())
    types = [event.type for event in events]
    order = [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "response.created",
        "response.output_text.delta",
        "response.done",
    ]
    assert [t for t in dict.fromkeys(types) if t in order] == order
    kind = "conversation.item.input_audio_transcription.completed"
    (heard,) = [e for e in events if e.type == kind]
    assert "capital of france" in heard.transcript.lower()
    assert "Paris" in events[-1].response.output[0].content[0].text
    assert not [t for t in types if t.startswith("gateway.")]


async def test_the_words_are_in_the_cache_before_the_endpoint(
    server: Server, capital_pcm: bytes
) -> None:
    """Of the prompt nothing is left to prefill when the answer is asked for: the head start."""

    async def turn() -> Any:
        async with client(server).realtime.connect(model="tiny") as connection:
            await connection.session.update(
                session={
                    "type": "realtime",
                    "audio": {"input": {"turn_detection": None}},
                }
            )
            for packet in packets(capital_pcm):
                await connection.input_audio_buffer.append(audio=base64.b64encode(packet).decode())
            await connection.input_audio_buffer.commit()
            await events_until(connection, "input_audio_buffer.committed")
            await connection.response.create()
            return (await events_until(connection, "response.done"))[-1].response

    usage = (await within(turn())).usage
    # All but the turn's suffix (its end and the assistant's beginning) and the last guessed words.
    assert usage.input_token_details.cached_tokens >= usage.input_tokens - 12
    assert usage.input_token_details.audio_tokens > 0
