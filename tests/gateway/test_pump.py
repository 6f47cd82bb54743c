import asyncio
import json

from engine import api
from gateway.actions import Hangup
from gateway.outbound import Bounds
from gateway.pump import Pump
from tests.gateway.shell_fakes import EchoSession

READY = api.Ready("engine 1", api.ModelInfo("fake", 8192, 1024, 1 << 28, 0, 0.0))


class ListChannel:
    """Keeps what is sent; nothing comes until `gone`."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.gone = asyncio.Event()

    async def receive(self) -> None:
        await self.gone.wait()

    async def send(self, text: str) -> bool:
        self.sent.append(json.loads(text)["type"])
        return True

    async def close(self, hangup: Hangup) -> None:
        self.gone.set()


async def types_sent(*before_start: str) -> list[str]:
    """What a session sends when these happen between its seat and its start."""
    channel = ListChannel()
    pump = Pump("s", channel, EchoSession("s", True, "m"), lambda _: True, Bounds())
    for event in before_start:
        if event == "ready":
            pump.engine_ready(READY)
        else:
            pump.engine_lost()
    running = asyncio.create_task(pump.run())
    await asyncio.sleep(0.05)
    channel.gone.set()
    await running
    return [kind for kind in channel.sent if kind != "lost"]


async def test_an_engine_that_comes_before_the_session_begins() -> None:
    """A call takes its seat before it has begun: the engine is told of the session once, after
    `session.created`, and not at all if it is lost again."""
    assert await types_sent("ready") == ["session.created", "ready"]
    assert await types_sent("ready", "lost") == ["session.created"]
    assert await types_sent() == ["session.created"]
