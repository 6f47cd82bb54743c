import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from engine import api
from gateway.actions import Action, Decode, Hangup
from gateway.media.pictures import Outcome
from gateway.outbound import Bounds
from gateway.ports import TakeAtOnce
from gateway.pump import Pump
from tests.gateway.shell_fakes import EchoSession, until

READY = api.Ready("engine 1", api.ModelInfo("fake", 8192, 1024, 1 << 28, 0, 0.0))


class ListChannel:
    """Keeps what is sent; after `messages` nothing comes until `gone`."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)
        self.sent: list[str] = []
        self.gone = asyncio.Event()

    async def receive(self, at_once: TakeAtOnce | None = None) -> str | None:
        if self.messages:
            return self.messages.pop(0)
        await self.gone.wait()
        return None

    async def send(self, text: str) -> bool:
        self.sent.append(json.loads(text)["type"])
        return True

    unread_since_ns: int | None = None

    def send_at_once(self, data: bytes) -> bool:
        return False

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
    for _ in range(50):  # until nobody has anything left to do
        await asyncio.sleep(0)
    channel.gone.set()
    await running
    return [kind for kind in channel.sent if kind != "lost"]


async def test_an_engine_that_comes_before_the_session_begins() -> None:
    """A call takes its seat before it has begun: the engine is told of the session once, after
    `session.created`, and not at all if it is lost again."""
    assert await types_sent("ready") == ["session.created", "ready"]
    assert await types_sent("ready", "lost") == ["session.created"]
    assert await types_sent() == ["session.created"]


class PicturedSession(EchoSession):
    """The first message brings pictures; once they are decoded there are two pieces of work."""

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        if text == "pictures":
            return [Decode(1, (), ordered=True)]
        return super().receive_text(text, now_ns)

    def decoded(self, ticket: int, outcome: Outcome, now_ns: int) -> list[Action]:
        return super().receive_text("pieces 2", now_ns)


async def test_what_follows_from_pictures_is_done_before_the_next_message() -> None:
    """All pieces of it, too."""
    channel = ListChannel("pictures", "next")
    pump = Pump("s", channel, PicturedSession("s", True, "m"), lambda _: True, Bounds())
    running = asyncio.create_task(pump.run())
    await until(lambda: "echo" in channel.sent)
    channel.gone.set()
    await running
    assert channel.sent == ["session.created", "piece", "piece", "echo"]


class OfferingChannel(ListChannel):
    """Offers what is put into `offered` to whoever waits."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: TakeAtOnce | None = None
        self.refused = asyncio.Queue[str]()

    async def receive(self, at_once: TakeAtOnce | None = None) -> str | None:
        self.at_once = at_once
        return await self.refused.get() or None

    def offer(self, text: str) -> bool:
        assert self.at_once is not None
        return self.at_once(text)


class HearingSession(EchoSession):
    """Sound is what begins with "sound"; "sound N" tells the engine of N ms of it."""

    def receive_sound(self, text: str, now_ns: int) -> list[Action] | None:
        word, _, rest = text.partition(" ")
        if word != "sound":
            return None
        return self.receive_text(rest, now_ns)


@contextlib.asynccontextmanager
async def hearing() -> AsyncIterator[OfferingChannel]:
    """A pump that waits for its client."""
    channel = OfferingChannel()
    pump = Pump("s", channel, HearingSession("s", True, "m"), lambda _: True, Bounds())
    running = asyncio.create_task(pump.run())
    await until(lambda: channel.at_once)
    yield channel
    channel.refused.put_nowait("")
    await running


async def test_sound_is_taken_at_once() -> None:
    """While the reader waits; all else is read."""
    async with hearing() as channel:
        assert channel.offer("sound a packet")
        assert not channel.offer("bye")
        await until(lambda: "echo" in channel.sent)
        assert channel.sent == ["session.created", "echo"]


async def test_who_has_had_more_than_its_share_is_read_no_further() -> None:
    """The reader gets the next packet, and stands back behind it."""
    async with hearing() as channel:
        assert channel.offer("sound work 80")
        assert not channel.offer("sound work 80")


async def test_sound_that_the_engine_is_behind_of_is_not_taken_at_once() -> None:
    """The reader is woken, and waits."""
    async with hearing() as channel:
        assert channel.offer("sound hear 31000")
        assert not channel.offer("sound hear 40")


async def test_a_bug_in_hearing_ends_its_session_only() -> None:
    """Nothing reaches the socket that the sound came from; the session is hung up, and takes no
    more."""
    async with hearing() as channel:
        assert channel.offer("sound bug")
        assert not channel.offer("sound a packet")
        await until(channel.gone.is_set)
