"""Clients that send valid and nearly valid events in random order, against a real gateway.

The engine is one without a model, so that the order of events is what is tested; that the model
reads what the client was told is checked in `tests/gateway/session/test_whole.py`.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect

from headstart.benchmarks.soak.server_state import UNHANDLED, at_rest
from tests.end_to_end.conftest import Server, serving
from tests.end_to_end.random_client import RandomClient
from tests.end_to_end.test_bad_input import ask

CLIENTS = 6
STEPS = 70
SCRIPT = 'engine_args=--delta-ms 20 --end-probability 0.6 --call f {"q":1}'


async def walk(server: Server, seed: int, speech: bytes) -> None:
    address = f"ws://{urlsplit(server.url).netloc}/v1/realtime?model=fake"
    async with connect(address, max_size=None) as socket:
        client = RandomClient(socket, seed, speech)
        try:
            await client.walk(STEPS)
            await client.settle()
        finally:
            await client.close()


async def watch(server: Server, walks: asyncio.Task[object]) -> list[object]:
    """Somebody else's answers meanwhile."""
    answers: list[object] = []
    address = f"ws://{urlsplit(server.url).netloc}/v1/realtime?model=fake"
    async with connect(address) as socket:
        while not walks.done() or len(answers) < 2:
            answers.append((await ask(socket))["output"][0]["content"])
    return answers


@pytest.mark.timeout(400)
async def test_random_clients_are_answered_and_leave_nothing(capital_pcm: bytes) -> None:
    """Each event has its answer or a named error, what a client is told is consistent, nobody else
    notices, and the server ends where it began."""
    with serving("tiny", "engine=fake", SCRIPT) as server:
        before = await at_rest(server.url)
        walks = asyncio.gather(*(walk(server, seed, capital_pcm) for seed in range(CLIENTS)))
        walking: asyncio.Task[object] = asyncio.ensure_future(_awaited(walks))
        answers = await watch(server, walking)
        await walking
        assert all(answer == answers[0] for answer in answers)
        after = await at_rest(server.url)
        assert after.sessions == after.engine_sessions == after.kv_blocks_used == 0
        delta = after.minus(before)
        assert delta["tasks_delta"] == delta["fds_delta"] == 0, delta
        assert not [line for line in server.log if UNHANDLED.search(line)]


async def _awaited(walks: asyncio.Future[list[None]]) -> object:
    return await walks
