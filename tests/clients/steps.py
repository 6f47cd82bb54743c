"""What the clients' scripts share: sound to speak, steps with names, a hang that is a failure.

Runs in each client's own environment, so it needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
import traceback
import wave
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLIP = ROOT / "headstart" / "clips" / "capital.wav"
CAT = ROOT / "tests" / "data" / "photos" / "chelsea.jpg"
PACKET_MS = 40
BYTES_PER_MS = 48  # s16 mono at 24 kHz
STEP_LIMIT_S = 90.0

FAKE_URL = os.environ.get("HEADSTART_FAKE_URL", "")
TINY_URL = os.environ.get("HEADSTART_TINY_URL", "")

# What the fake engine says (tests/clients/servers.py).
ANSWER_BEGINS = "The first thing to say"
HEARD = "the quick brown fox"

Step = Callable[[], Coroutine[Any, Any, str]]


def spoken_question(silence_ms: int = 1_500) -> bytes:
    """ "What is the capital of France?", s16 mono at 24 kHz, and silence behind it."""
    with wave.open(str(CLIP)) as file:
        frames: bytes = file.readframes(file.getnframes())
    return frames + bytes(silence_ms * BYTES_PER_MS)


def hesitant_question(pause_ms: int = 900) -> bytes:
    """A question with a pause inside, long enough for an answer to begin, and silence behind it."""
    question = spoken_question(0)
    cut = 900 * BYTES_PER_MS
    return question[:cut] + bytes(pause_ms * BYTES_PER_MS) + question[cut:] + bytes(9_000 * 48)


def cat_photo() -> str:
    """A photograph as a data URI."""
    return "data:image/jpeg;base64," + base64.b64encode(CAT.read_bytes()).decode()


async def live(pcm: bytes) -> AsyncIterator[bytes]:
    """Packets at the pace at which a microphone gives them."""
    began_s = time.monotonic()
    size = PACKET_MS * BYTES_PER_MS
    for start in range(0, len(pcm), size):
        due_s = began_s + start / BYTES_PER_MS / 1000
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        yield pcm[start : start + size]


def scripted_words(text: str) -> str:
    """What the scripted recogniser says that it heard."""
    assert text.startswith(HEARD), text
    return repr(text)


def question_words(text: str) -> str:
    """The bundled question, by a real recogniser."""
    assert "capital of france" in text.lower(), text
    return repr(text)


def run(client: str, steps: dict[str, Step]) -> None:
    """All steps, one line each; exits with 1 if one failed. A step returns what it saw."""
    failed = False
    for name, step in steps.items():
        began_s = time.monotonic()
        try:
            saw = asyncio.run(asyncio.wait_for(step(), STEP_LIMIT_S))
            outcome = f"ok      {name}: {saw}"
        except Exception as error:
            failed = True
            traceback.print_exc()
            outcome = f"FAILED  {name}: {error or type(error).__name__}"
        print(f"{client}: {outcome} ({time.monotonic() - began_s:.1f} s)", flush=True)
    sys.exit(failed)
