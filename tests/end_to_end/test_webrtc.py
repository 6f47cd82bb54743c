"""A spoken question over WebRTC, set up with the stock `openai` package, to a real model."""

from __future__ import annotations

import numpy as np
import pytest
from openai import AsyncOpenAI

from headstart.gateway.audio.resample import StreamResampler
from tests.end_to_end.conftest import Server, within
from tests.gateway.transport.webrtc.peer import (
    Camera,
    Microphone,
    connect,
    lose,
    offer_of,
    prepared,
)

pytestmark = pytest.mark.weights

HEARD = "conversation.item.input_audio_transcription.completed"


@pytest.mark.parametrize("loss", [0.0, 0.05])
async def test_a_spoken_turn(server: Server, capital_pcm: bytes, loss: float) -> None:
    """Sound through Opus on a track, with and without loss, no client event: the words are heard,
    the answer comes over the data channel, and hanging up ends the call."""
    openai = AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1")
    sound = StreamResampler(24_000, 48_000).feed(np.frombuffer(capital_pcm, np.int16))

    async def turn() -> None:
        async with prepared(Microphone(sound), Camera()) as peer:
            response = await openai.realtime.calls.with_raw_response.create(
                sdp=await offer_of(peer.pc),
                session={
                    "type": "realtime",
                    "audio": {"input": {"transcription": {"model": "whisper-1"}}},
                },
            )
            lose(peer.pc, loss, seed=11)
            location = response.headers["location"]
            await connect(peer, location, response.text)
            heard = await peer.event(HEARD, 100)
            assert "capital of france" in heard["transcript"].lower()
            done = (await peer.event("response.done", 100))["response"]
            assert done["status"] == "completed"
            assert "Paris" in done["output"][0]["content"][0]["text"]
            await openai.realtime.calls.hangup(location.rsplit("/", 1)[1])

    await within(turn(), 150)
    assert server.status()["sessions"]["now"] == 0
