"""Three kinds of a misbehaving session, as hard as possible: the floods of `bench gateway`.

Each runs until cancelled, discards what it receives, and reconnects when it is disconnected.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from urllib.parse import urlsplit

from headstart.benchmarks.harness.websocket_frames import handshake, text_frame

APPENDS_PER_S = 10_000
BIG_AUDIO_BYTES = 15 * 1024 * 1024
MALFORMED = 100_000
RECONNECT_S = 0.5


async def _send_all(url: str, frames: Iterator[bytes], per_s: float | None) -> int:
    """Write frames, at a rate or as fast as the peer takes them; returns the number sent."""
    parts, sent = urlsplit(url), 0
    loop = asyncio.get_running_loop()
    while True:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(handshake(parts.netloc))
        await reader.readuntil(b"\r\n\r\n")
        draining = asyncio.create_task(_read_all(reader))
        began_s, here = loop.time(), 0
        try:
            for frame in frames:
                writer.write(frame)
                sent, here = sent + 1, here + 1
                await writer.drain()
                if here % 50 == 0:
                    due_s = began_s + here / per_s if per_s else 0.0
                    await asyncio.sleep(max(due_s - loop.time(), 0))
            return sent
        except (OSError, RuntimeError):  # uvloop raises RuntimeError for a closed socket
            await asyncio.sleep(RECONNECT_S)
        finally:
            draining.cancel()
            writer.close()


async def _read_all(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(1 << 16):
            pass


def _append(size_bytes: int) -> bytes:
    audio = base64.b64encode(bytes(size_bytes)).decode()
    return text_frame(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))


def _for_ever(frame: bytes) -> Iterator[bytes]:
    while True:
        yield frame


async def appends(url: str) -> int:
    """Ten thousand small appends a second."""
    return await _send_all(url, _for_ever(_append(960)), APPENDS_PER_S)


async def big(url: str) -> int:
    """Appends of 15 MiB, one after the other."""
    return await _send_all(url, _for_ever(_append(BIG_AUDIO_BYTES)), None)


SEEDS = (
    {"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}},
    {"type": "input_audio_buffer.append", "audio": "AAAA"},
    {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": []},
    },
    {"type": "response.create", "response": {"output_modalities": ["text"]}},
    {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 1},
)


def _mutants(count: int) -> Iterator[bytes]:
    """Real events with letters changed, removed and doubled."""
    chance = random.Random(1)
    for _ in range(count):
        text = list(json.dumps(chance.choice(SEEDS)))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(text))
            text[at] = chance.choice(['"', "{", "[", "}", "\\", "9", "é", "", text[at] * 2])
        yield text_frame("".join(text))


async def malformed(url: str) -> int:
    """A hundred thousand mutants of real events."""
    return await _send_all(url, _mutants(MALFORMED), None)


FLOODS: dict[str, Callable[[str], Coroutine[None, None, int]]] = {
    "appends": appends,
    "big": big,
    "malformed": malformed,
}
