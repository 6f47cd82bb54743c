"""One real server with a fake engine for all tests of the folder."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headstart.talk.local_server import until_ready

CLIPS = Path(__file__).parents[3] / "headstart" / "clips"
SILENCE_MS = 300


@pytest.fixture(scope="session")
def fake_server_url() -> Iterator[str]:
    yield from _served("none")


@pytest.fixture(scope="session")
def speaking_server_url() -> Iterator[str]:
    """The same with a voice that needs no weights."""
    yield from _served("espeak")


def _served(voice: str) -> Iterator[str]:
    argv = [
        sys.executable,
        "-m",
        "headstart",
        "serve",
        "--port",
        "0",
        "--announce",
        "--set",
        f"voice={voice}",
    ]
    argv += ["--engine", "fake", "--set", f"silence_ms={SILENCE_MS}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        yield ready_url(process)
        process.terminate()


@pytest.fixture(scope="session")
def spoken() -> Path:
    """2.3 s, one question."""
    return CLIPS / "capital.wav"


def ready_url(process: subprocess.Popen[str]) -> str:
    """Of a server that announces itself, when its engine, another process, takes sessions too."""
    assert process.stdout is not None
    url: str = json.loads(process.stdout.readline())["url"]
    asyncio.run(until_ready(url, lambda _: None, speak=True))
    return url
