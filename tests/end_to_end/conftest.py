"""One real server with the real `tiny` model for all tests of this folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headstart.engine.weights import resolve_model

READY_WAIT_S = 150
PACKET_BYTES = 4_800  # 100 ms of s16 at 24 kHz


@dataclass(frozen=True)
class Server:
    """A running `headstart serve`; `log` holds its last lines."""

    url: str
    pid: int
    log: deque[str]

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/status", timeout=60) as response:
            body: dict[str, Any] = json.load(response)
        return body

    def wait_ready(self) -> None:
        """Until the engine takes sessions."""
        deadline_s = time.monotonic() + READY_WAIT_S
        while self.status()["engine"]["state"] != "ready":
            assert time.monotonic() < deadline_s, "\n".join(self.log)
            time.sleep(0.2)


@contextlib.contextmanager
def serving(model: str, *settings: str) -> Iterator[Server]:
    """`headstart serve --model MODEL` with further NAME=VALUE `settings`, ready."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    argv += ["--model", model, "--set", "voice=none"]
    argv += [word for setting in settings for word in ("--set", setting)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        log: deque[str] = deque(maxlen=200)
        reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
        reader.start()
        announced = json.loads(process.stdout.readline())
        running = Server(announced["url"], announced["pid"], log)
        try:
            running.wait_ready()
            yield running
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    resolve_model("tiny")
    with serving("tiny") as running:
        yield running


@pytest.fixture(scope="session")
def capital_pcm() -> bytes:
    """ "What is the capital of France?" as s16 mono 24 kHz, with a second of silence behind it."""
    import wave

    path = Path(__file__).parents[2] / "headstart" / "clips" / "capital.wav"
    with wave.open(str(path)) as file:
        return bytes(file.readframes(file.getnframes())) + bytes(48_000)


def packets(pcm: bytes) -> Iterator[bytes]:
    for start in range(0, len(pcm), PACKET_BYTES):
        yield pcm[start : start + PACKET_BYTES]


async def within(awaitable: Any, seconds: float = 120.0) -> Any:
    """A hang is a failure with a name, not a stuck suite."""
    return await asyncio.wait_for(awaitable, seconds)
