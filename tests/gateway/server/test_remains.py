"""What a session held is given back when it ends, not when the collector, which counts objects and
not bytes, looks again. So nobody fills the memory by coming and going."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator

import pytest

from headstart.engine import api
from headstart.gateway.connection.runner import SessionRunner
from headstart.gateway.session.conversation import Conversation, ConversationItem
from tests.gateway.server.test_accept import UPGRADE, masked, opened
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until

MIB = 1 << 20
VISITS = 6


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def half_a_message(running: RunningGateway) -> None:
    """Eight MiB of nine."""
    async with opened(running) as (reader, writer):
        writer.write(UPGRADE)
        await reader.readuntil(b"session.created")
        writer.write(bytes((0x81, 0xFF)) + (9 * MIB).to_bytes(8) + bytes(4) + b"x" * (8 * MIB))
        await writer.drain()
        await asyncio.sleep(0.2)


async def what_nobody_reads(running: RunningGateway) -> None:
    """Megabytes are waiting for it when it drops."""
    async with opened(running) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(UPGRADE + masked(b"flood 500") * 20)
        await until(lambda: any(runner.waiting_bytes > 4 * MIB for runner in runners(running)))
        writer.transport.abort()


async def what_could_come_again(running: RunningGateway) -> None:
    """A log of two MiB for who might come back, and then the time is over."""
    async with opened(running) as (reader, writer):
        writer.write(UPGRADE + masked(b"keep") + masked(b"flood 500") * 4)
        async with asyncio.timeout(60):
            await reader.readexactly(1_900_000)


def runners(running: RunningGateway) -> list[SessionRunner]:
    return list(running.gateway.runners.values())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("visit", [half_a_message, what_nobody_reads, what_could_come_again])
async def test_who_comes_and_goes_leaves_nothing_large(
    visit: Callable[[RunningGateway], Awaitable[None]],
) -> None:
    """After the first, which makes what is made once, each of them leaves less than half a MiB."""
    async with running_gateway(resume_s=0.1, outbound_events=100_000) as running:
        await visit(running)
        await until(lambda: not running.gateway.runners)
        tracemalloc.start()
        try:
            for _ in range(VISITS):
                await visit(running)
                await until(lambda: not running.gateway.runners)
                await until(lambda: not running.server.server_state.connections)
            left_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert left_bytes < VISITS * MIB // 2


def test_a_conversation_that_is_over_holds_no_pictures() -> None:
    """Its items are gone, whoever still knows it."""
    talk = Conversation()
    talk.insert(
        ConversationItem({"id": "a", "type": "message"}, api.Item("a", api.Role.USER, ())), None
    )
    talk.clear()
    assert len(talk) == 0
    assert "a" not in talk
