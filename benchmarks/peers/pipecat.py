"""Pipecat's pipeline as a system of the bench: `pipecat_bot.py` in its environment, and the client
that speaks to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from headstart.benchmarks.peers import llama, settings
from headstart.benchmarks.peers.child import child, free_port
from headstart.benchmarks.peers.clips import Clip
from headstart.benchmarks.peers.environments import Environments
from headstart.benchmarks.peers.feeding import (
    AT_LEAST_S,
    LONGEST_S,
    OPEN_WAIT_S,
    QUIET_S,
    ConversationFailed,
    feed,
    stream_of,
)
from headstart.benchmarks.peers.playback import Playback
from headstart.benchmarks.peers.score import Answer, Conversation
from headstart.engine.weights import ensure

HERE = Path(__file__).parent
IN_HZ, OUT_HZ = 16_000, 24_000
COMPUTE_TYPE = "int8"
"""Of faster-whisper: what its documentation advises on a CPU."""
VOICE_FILE = "en_US-joe-medium.onnx"
TTFB = ("WhisperSTTService", "OpenAILLMService", "PiperTTSService")


@dataclass
class Log:
    """What the pipeline printed and sent, in the order of time. No I/O."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    sound: list[tuple[float, bytes]] = field(default_factory=list)
    cleared_at_s: list[float] = field(default_factory=list)

    def conversation(self, clip: Clip, speech_end_at_s: float) -> Conversation:
        """What came of it: each request to the language model is an answer, to which the tokens
        and the sound until the next one belong."""
        lines = sorted(self.lines, key=lambda line: float(line["at_s"]))
        requests = [line for line in lines if line["kind"] == "request"]
        answers = []
        begun_s = [float(request["at_s"]) for request in requests]
        over_s = [*begun_s[1:], float("inf")]
        for request, first_s, end_s in zip(requests, begun_s, over_s, strict=False):
            answers.append(self._answer(request, first_s, end_s, speech_end_at_s))
        return Conversation(
            clip.plan,
            speech_end_at_s,
            heard=[line["text"].strip() for line in lines if line["kind"] == "heard"],
            answers=answers,
            own_ms=_own_ms(lines),
            timeline=self._timeline(lines),
        )

    def _answer(
        self, request: dict[str, Any], begun_s: float, over_s: float, speech_end_at_s: float
    ) -> Answer:
        tokens = [
            line
            for line in self.lines
            if line["kind"] == "token" and begun_s <= line["at_s"] < over_s and line["text"]
        ]
        playback = Playback(OUT_HZ)
        pieces = [(at_s, pcm) for at_s, pcm in self.sound if begun_s <= at_s < over_s]
        stops = [at_s for at_s in self.cleared_at_s if begun_s <= at_s < over_s]
        for at_s, pcm in pieces:
            if stops and stops[0] <= at_s:
                break
            playback.add(at_s, np.frombuffer(pcm, np.int16))
        if stops:
            playback.stop(stops[0])
        return Answer(
            read=[(message["role"], _text(message)) for message in request["messages"]],
            first_token_at_s=tokens[0]["at_s"] if tokens else None,
            first_sound_at_s=playback.first_audible_at_s,
            heard_before_end_s=playback.heard_s(speech_end_at_s),
            text="".join(line["text"] for line in tokens),
        )

    def _timeline(self, lines: list[dict[str, Any]]) -> list[tuple[float, str]]:
        told = [(line["at_s"], _words(line)) for line in lines if line["kind"] != "ttfb"]
        told += [(at_s, "cleared") for at_s in self.cleared_at_s]
        told += [(at_s, "sound") for at_s, _ in self.sound[:1]]
        return sorted(told)

    def settled(self, now_s: float) -> bool:
        """The newest request was answered aloud, and nothing has come for a while."""
        requests = [line["at_s"] for line in self.lines if line["kind"] == "request"]
        if not requests or not self.sound:
            return False
        newest_s = self.sound[-1][0]
        return newest_s >= max(requests) and now_s - newest_s > QUIET_S


def _words(line: dict[str, Any]) -> str:
    """A line of the timeline."""
    more = [str(line[key]) for key in ("text", "complete", "probability") if key in line]
    return " ".join([line["kind"], *more])


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)


def _own_ms(lines: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Pipecat's metrics: time to first byte of each service, and from the end of speech, as its
    VAD has it, to the bot's first sound."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if line["kind"] == "ttfb":
            for service in TTFB:
                if line["processor"].startswith(service):
                    found.setdefault(f"ttfb_{service}", []).append(round(line["value_ms"], 1))
        elif line["kind"] == "user_bot_latency":
            found.setdefault("first_sound", []).append(round(line["value_ms"], 1))
        elif line["kind"] == "smart_turn":
            found.setdefault("smart_turn", []).append(round(line["probability"], 3))
    return found


@contextlib.asynccontextmanager
async def running(
    environments: Environments, logs: Path
) -> AsyncIterator[Callable[[Clip], Awaitable[Conversation]]]:
    """llama.cpp's server and the pipeline, ready; gives what speaks a clip to it. Raises
    `PeerFailed`."""
    python = await asyncio.to_thread(environments.python, "pipecat")
    async with llama.serving(environments, logs) as llm:
        port, heard = free_port(), _Listeners()
        options = {
            "port": port,
            "llm_url": llm.url,
            "whisper": str(ensure(settings.EARS)),
            "voice": str(ensure(settings.VOICE) / VOICE_FILE),
            "compute_type": COMPUTE_TYPE,
            "instructions": settings.INSTRUCTIONS,
            "max_tokens": settings.MAX_TOKENS,
            "log_level": "INFO",
        }
        argv = [str(python), "-P", str(HERE / "pipecat_bot.py"), json.dumps(options)]
        async with child(
            "pipecat", argv, logs / "pipecat.log", heard.line, settings.PEER_ENVIRONMENT
        ) as process:
            await process.until(lambda: heard.ready, "the transport's server")

            async def speak(clip: Clip) -> Conversation:
                process.check()
                log = Log()
                heard.log = log
                return await _converse(f"ws://127.0.0.1:{port}", clip, log)

            yield speak


class _Listeners:
    """Hands the pipeline's lines to the log of the clip that is spoken."""

    def __init__(self) -> None:
        self.ready = False
        self.log: Log | None = None

    def line(self, text: str) -> None:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            return
        if not isinstance(line, dict) or "kind" not in line:
            return
        if line["kind"] == "ready":
            self.ready = True
        elif self.log is not None:
            self.log.lines.append(line)


async def _converse(url: str, clip: Clip, log: Log) -> Conversation:
    try:
        socket = await connect(url, compression=None, max_size=None, open_timeout=OPEN_WAIT_S)
    except OSError as error:  # TimeoutError is one
        raise ConversationFailed(f"{clip.plan.name}: {error}") from error
    async with socket:
        listening = asyncio.create_task(_listen(socket, log))
        try:

            def enough(since_s: float) -> bool:
                over = since_s > AT_LEAST_S and log.settled(time.monotonic())
                return over or since_s > LONGEST_S - 1

            speech_end_at_s = await feed(stream_of(clip, IN_HZ), socket.send, enough)
        except ConnectionClosed as error:
            raise ConversationFailed(f"{clip.plan.name}: {error}") from error
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    return log.conversation(clip, speech_end_at_s)


async def _listen(socket: ClientConnection, log: Log) -> None:
    try:
        async for message in socket:
            now_s = time.monotonic()
            if isinstance(message, bytes):
                log.sound.append((now_s, message))
            elif message == "clear":
                log.cleared_at_s.append(now_s)
    except ConnectionClosed:
        return
