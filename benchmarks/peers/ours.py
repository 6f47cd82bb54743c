"""Headstart itself, with `small` and the voice `joe`, over a WebSocket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from headstart.benchmarks.peers import settings
from headstart.benchmarks.peers.clips import Clip
from headstart.benchmarks.peers.realtime import converse
from headstart.benchmarks.peers.score import Conversation
from headstart.talk.connection.address import realtime_url
from headstart.talk.local_server import local_server, until_ready

TURN_DETECTION: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "ours": {"type": "server_vad"},
        "ours_eager": {"type": "semantic_vad"},
    }
)
"""Rows of ours, by what a client asks for; the first is the API's default."""


@contextlib.asynccontextmanager
async def running(name: str) -> AsyncIterator[Callable[[Clip], Awaitable[Conversation]]]:
    """A server that is ready; gives what speaks a clip to it."""
    arguments = ["--model", settings.MODEL, "--set", f"voice={settings.VOICE}"]
    async with local_server(arguments) as server:
        await until_ready(server.url, lambda _: None, server.check)
        url = realtime_url(server.url, settings.MODEL)

        async def speak(clip: Clip) -> Conversation:
            server.check()
            return await converse(url, clip, _session(TURN_DETECTION[name]))

        yield speak


def _session(turn_detection: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "realtime",
        "instructions": settings.INSTRUCTIONS,
        "output_modalities": ["audio"],
        "max_output_tokens": settings.MAX_TOKENS,
        "audio": {
            "input": {
                "turn_detection": dict(turn_detection),
                "transcription": {"model": "whisper-1"},
            }
        },
        "gateway": {"events": ["latency"]},
    }
