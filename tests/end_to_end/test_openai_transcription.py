"""The stock `openai` package, unmodified, has speech put into words."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from openai import AsyncOpenAI

from headstart.gateway.audio import g711
from tests.end_to_end.conftest import Server, packets, within
from tests.end_to_end.test_openai_client import client, events_until

pytestmark = pytest.mark.weights

COMPLETED = "conversation.item.input_audio_transcription.completed"
PCMU_PACKET_BYTES = 160  # 20 ms at 8 kHz: what telephone bridges forward, one message a packet


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def test_a_transcription_session(server: Server, capital_pcm: bytes) -> None:
    """By its intent: the turn's events and its words, in pieces and whole, and no response."""

    async def listen() -> list[Any]:
        intent = {"intent": "transcription"}
        async with client(server).realtime.connect(
            model="gpt-4o-transcribe", extra_query=intent
        ) as connection:
            created: Any = await connection.recv()
            assert created.session.type == "transcription"
            await connection.session.update(
                session={
                    "type": "transcription",
                    "audio": {
                        "input": {
                            "format": {"type": "audio/pcm", "rate": 24000},
                            "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
                            "turn_detection": {"type": "server_vad", "silence_duration_ms": 500},
                        }
                    },
                }
            )
            for packet in packets(capital_pcm):
                await connection.input_audio_buffer.append(audio=b64(packet))
            return await events_until(connection, COMPLETED)

    events = await within(listen())
    assert "capital of france" in events[-1].transcript.lower()
    deltas = [e.delta for e in events if e.type.endswith("transcription.delta")]
    assert "".join(deltas).strip() == events[-1].transcript
    assert not [e.type for e in events if e.type.startswith("response.")]


async def test_a_secret_opens_a_transcription_session(server: Server, capital_pcm: bytes) -> None:
    """As a browser would: the session's type and settings come with its key, and no address says
    so; by hand, and a response is refused without a code."""

    async def listen() -> tuple[Any, list[Any]]:
        wanted: Any = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
        secret = await client(server).realtime.client_secrets.create(session=wanted)
        assert secret.session.type == "transcription"
        browser = AsyncOpenAI(api_key=secret.value, base_url=f"{server.url}/v1")
        async with browser.realtime.connect(model="tiny") as connection:
            for packet in packets(capital_pcm):
                await connection.input_audio_buffer.append(audio=b64(packet))
            await connection.input_audio_buffer.commit()
            events = await events_until(connection, COMPLETED)
            await connection.response.create()
            return await connection.recv(), events

    refused, events = await within(listen())
    assert "capital of france" in events[-1].transcript.lower()
    assert (refused.type, refused.error.code) == ("error", None)


async def test_sound_inside_an_item(server: Server, capital_pcm: bytes) -> None:
    """A user's message that holds the question as sound is heard, put into words, and answered;
    what the conversation held before is taken as the client gives it back."""
    said: list[Any] = [
        {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "input_audio", "transcript": "Hello."}]},
        {"role": "assistant", "content": [{"type": "output_audio", "transcript": "Hello!"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Thanks."}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "You are welcome."}]},
        {"role": "user", "content": [{"type": "input_audio", "audio": b64(capital_pcm)}]},
    ]

    history: list[Any] = [{"type": "message", **item} for item in said]

    async def turn() -> list[Any]:
        async with client(server).realtime.connect(model="tiny") as connection:
            transcribed: Any = {"input": {"transcription": {"model": "whisper-1"}}}
            await connection.session.update(session={"type": "realtime", "audio": transcribed})
            for item in history:
                await connection.conversation.item.create(item=item)
            await connection.response.create()
            return await events_until(connection, "response.done")

    events = await within(turn())
    (heard,) = [e for e in events if e.type == COMPLETED]
    assert "capital of france" in heard.transcript.lower()
    assert "Paris" in events[-1].response.output[0].content[0].text
    assert events[-1].response.usage.input_token_details.audio_tokens > 0


async def test_a_telephone_bridge(server: Server, capital_pcm: bytes) -> None:
    """20 ms of 8 kHz mu-law a message, as they come off a call: heard and answered."""
    telephone = g711.Encoder("audio/pcmu").feed(capital_pcm)

    async def turn() -> list[Any]:
        async with client(server).realtime.connect(model="tiny") as connection:
            pcmu: Any = {"format": {"type": "audio/pcmu"}}
            transcribed = pcmu | {"transcription": {"model": "whisper-1"}}
            audio: Any = {"input": transcribed, "output": pcmu}
            await connection.session.update(session={"type": "realtime", "audio": audio})
            for start in range(0, len(telephone), PCMU_PACKET_BYTES):
                packet = telephone[start : start + PCMU_PACKET_BYTES]
                await connection.input_audio_buffer.append(audio=b64(packet))
            return await events_until(connection, "response.done")

    events = await within(turn())
    (heard,) = [e for e in events if e.type == COMPLETED]
    assert "capital" in heard.transcript.lower()
    assert events[-1].response.status == "completed"
