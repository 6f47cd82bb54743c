"""People who talk while the engine loads, or is killed and started again: real sessions over real
sockets, and the scripted engine in a process of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from headstart.gateway.config import load
from headstart.gateway.engine_link import EngineLink, LinkState, private_endpoint
from headstart.gateway.engines.engines import Engines
from headstart.gateway.server.assemble import make_gateway, uvicorn_config
from headstart.gateway.server.http_server import GatewayServer
from headstart.gateway.server.main import bind, url_of
from tests.gateway.shell_fakes import WAIT_S, fake_engine, receive, until

SECOND = base64.b64encode(bytes(48_000)).decode()
BY_HAND = {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
COMPLETED = "conversation.item.input_audio_transcription.completed"
FAILED = "conversation.item.input_audio_transcription.failed"


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[EngineLink, str]]:
    """A gateway with real sessions and no engine yet; its link, and where sessions are."""
    settings = load(flags={"port": 0, "drain_s": 0.1})
    with private_endpoint() as endpoint, bind("127.0.0.1", 0) as sock:
        link = EngineLink(endpoint)
        gateway = make_gateway(settings, Engines.single(link))
        server = GatewayServer(uvicorn_config(settings, gateway), gateway)
        link.start()
        running = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            yield link, url_of(sock, "ws") + "/v1/realtime"
        finally:
            server.leave()
            await asyncio.wait_for(running, WAIT_S)
            link.close()


async def say(socket: ClientConnection, seconds: int) -> None:
    """So much sound as one utterance, as fast as it goes."""
    for _ in range(seconds):
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": SECOND}))
    await socket.send(json.dumps({"type": "input_audio_buffer.commit"}))


async def talking(socket: ClientConnection) -> None:
    session: dict[str, Any] = {"type": "realtime", "audio": BY_HAND}
    session["gateway"] = {"events": ["engine"]}
    await socket.send(json.dumps({"type": "session.update", "session": session}))
    await receive(socket, "session.updated")


async def test_what_is_said_when_the_engine_is_ready_is_heard() -> None:
    """After 40 s of sound at once while there was none yet, which is told as not heard; and the
    client is told when it is worth speaking."""
    async with serving() as (link, url), connect(url) as socket:
        await talking(socket)
        async with asyncio.timeout(WAIT_S / 2):
            await say(socket, 40)
            error = (await receive(socket, FAILED))["error"]
            assert error["code"] == "engine_unavailable"
            async with fake_engine(link.endpoint, "--load-ms", "500"):
                await until(lambda: link.state is LinkState.LOADING)
                await say(socket, 40)
                await receive(socket, FAILED)
                status = await receive(socket, "gateway.engine.status")
                assert status["status"] == "ready"
                await say(socket, 2)
                assert (await receive(socket, COMPLETED))["transcript"]


async def test_what_is_said_after_an_engine_was_killed_is_heard_by_the_next() -> None:
    """It had heard none of 31 s that it was told; 40 s more are said while there is none."""
    async with serving() as (link, url), connect(url) as socket:
        async with fake_engine(link.endpoint, "--chunk-ms", "100000") as process:
            await until(lambda: link.is_ready)
            await talking(socket)
            before = link.counters.commands
            for _ in range(31):
                append = {"type": "input_audio_buffer.append", "audio": SECOND}
                await socket.send(json.dumps(append))
            await until(lambda: link.counters.commands >= before + 60)
            os.kill(process.pid, signal.SIGKILL)
            await until(lambda: link.state is LinkState.LOST)
        async with asyncio.timeout(WAIT_S / 2):
            assert (await receive(socket, FAILED))["error"]["code"] == "engine_lost"
            await say(socket, 40)
            await receive(socket, FAILED)
            async with fake_engine(link.endpoint):
                await until(lambda: link.is_ready)
                await say(socket, 2)
                assert (await receive(socket, COMPLETED))["transcript"]
