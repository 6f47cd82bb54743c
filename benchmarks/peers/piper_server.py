"""Piper behind an OpenAI-compatible `/v1/audio/speech`, in Pipecat's environment (piper, aiohttp).

    python piper_server.py VOICE.onnx PORT

Answers with raw s16 PCM at 16 kHz, a sentence at a time as Piper makes them: the rate of
speech-to-speech's pipeline, whose own filter takes many seconds for a sentence at 22,050 Hz. Prints
that rate when it listens; ends with its standard input. Imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import soxr
from aiohttp import web
from piper import PiperVoice

RATE_HZ = 16_000


def main(path: str, port: int) -> None:
    """Serve until standard input ends."""
    asyncio.run(_serve(PiperVoice.load(path), port))


async def _serve(voice: PiperVoice, port: int) -> None:
    async def speak(request: web.Request) -> web.StreamResponse:
        text = (await request.json())["input"]
        response = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
        await response.prepare(request)
        pieces = _pieces(voice, text)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await response.write(piece)
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/v1/audio/speech", speak)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(RATE_HZ, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


def _pieces(voice: PiperVoice, text: str) -> Iterator[bytes]:
    for chunk in voice.synthesize(text):
        sound = soxr.resample(chunk.audio_int16_array, voice.config.sample_rate, RATE_HZ)
        yield bytes(sound.tobytes())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
