"""Speech with an offset, or clipped, by every way that a client's own samples come in."""

from __future__ import annotations

import base64
from urllib.parse import urlsplit

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.end_to_end.conftest import Server, packets
from tests.end_to_end.test_bad_input import say, until

pytestmark = pytest.mark.weights

QUESTION = "What is the capital of France?"
ODD = ("offset", "clipped")


def odd(kind: str, pcm: bytes) -> bytes:
    """An offset of half of full scale, or 20 dB too loud."""
    sound = np.frombuffer(pcm, np.int16).astype(np.int32)
    sound = sound + 16_384 if kind == "offset" else sound * 15
    return np.clip(sound, -32768, 32767).astype("<i2").tobytes()


async def settle(socket: ClientConnection) -> None:
    detection = {"type": "server_vad", "create_response": False}
    heard = {"transcription": {"model": "whisper-1"}, "turn_detection": detection}
    await say(socket, "session.update", session={"type": "realtime", "audio": {"input": heard}})
    await until(socket, "session.updated")


@pytest.mark.parametrize("kind", ODD)
async def test_odd_speech_is_heard_right(server: Server, capital_pcm: bytes, kind: str) -> None:
    """Appended, and as the sound of an item: the question, word for word."""
    address = f"ws://{urlsplit(server.url).netloc}/v1/realtime?model=tiny"
    done = "conversation.item.input_audio_transcription.completed"
    sent = odd(kind, capital_pcm)
    async with connect(address) as socket:
        await settle(socket)
        for packet in packets(sent):
            audio = base64.b64encode(packet).decode()
            await say(socket, "input_audio_buffer.append", audio=audio)
        assert (await until(socket, done))["transcript"].strip() == QUESTION
        content = [{"type": "input_audio", "audio": base64.b64encode(sent).decode()}]
        item = {"type": "message", "role": "user", "content": content}
        await say(socket, "conversation.item.create", item=item)
        assert (await until(socket, done))["transcript"].strip() == QUESTION
