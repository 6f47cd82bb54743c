from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.gateway.connection import resume as line_module
from headstart.gateway.connection.interfaces import TryInline
from headstart.gateway.connection.resume import EventLog, ResumableChannel, SessionOver
from headstart.gateway.session.actions import Hangup


class FakeLink:
    """A link that a test breaks. `alive`: whether its peer answers when asked."""

    def __init__(self, alive: bool = True) -> None:
        self.alive = alive
        self.finished = False
        self.sent: list[str] = []
        self.is_quick = True
        self.closed: list[Hangup] = []
        self._inbound: asyncio.Queue[str | None] = asyncio.Queue()

    def say(self, text: str) -> None:
        self._inbound.put_nowait(text)

    def cut(self) -> None:
        self.alive = False
        self._inbound.put_nowait(None)

    async def receive(self, try_inline: TryInline | None = None) -> str | None:
        return await self._inbound.get()

    async def send(self, text: str) -> bool:
        if self.alive:
            self.sent.append(json.loads(text)["event_id"])
        return self.alive

    unread_since_ns: int | None = None

    def try_send(self, data: bytes) -> bool:
        if self.alive and self.is_quick:
            self.sent.append(json.loads(data)["event_id"])
        return self.alive and self.is_quick

    async def close(self, hangup: Hangup) -> None:
        self.closed.append(hangup)

    async def answers(self, wait_s: float) -> bool:
        return self.alive


def event(number: int) -> str:
    return json.dumps({"type": "x", "event_id": f"e{number}"})


async def broken(channel: ResumableChannel, link: FakeLink) -> asyncio.Task[str | int | None]:
    """Break the link; the reader, which waits for the next one."""
    link.cut()
    reading = asyncio.create_task(channel.receive())
    while not channel.is_detached and not channel.is_over:
        await asyncio.sleep(0)
    return reading


async def test_what_is_sent_at_once_is_sent_in_order_and_again() -> None:
    """Nothing goes at once while there is no link, or it cannot, or the last link's events are
    still to be sent again; what went at once over the last link comes again with the others."""
    first, second = FakeLink(), FakeLink()
    channel = ResumableChannel(first, lambda: True, 5.0)
    assert await channel.send(event(1))
    assert channel.try_send(event(2).encode())
    first.is_quick = False
    assert not channel.try_send(event(3).encode())
    reading = await broken(channel, first)
    assert not channel.try_send(event(3).encode())
    assert await channel.claim()
    assert channel.attach(second, "e1") == 1
    assert not channel.try_send(event(3).encode())
    assert await channel.send(event(3))
    assert channel.try_send(event(4).encode())
    assert (first.sent, second.sent) == (["e1", "e2"], ["e2", "e3", "e4"])
    reading.cancel()
    channel.give_up()
    assert not channel.try_send(event(5).encode())


async def test_a_line_goes_on_over_the_next_link() -> None:
    """What comes and goes after the change is what would have come and gone over the first."""
    first, second = FakeLink(), FakeLink()
    channel = ResumableChannel(first, lambda: True, 60)
    carrying = asyncio.create_task(channel.carry(first))
    assert await channel.send(event(1))
    assert await channel.send(event(2))
    reading = await broken(channel, first)
    await carrying
    sending = asyncio.create_task(channel.send(event(3)))
    await asyncio.sleep(0)
    assert not sending.done()
    assert await channel.claim()
    assert channel.attach(second, "e1") == 1
    second.say("hello again")
    assert await reading == "hello again"
    assert await sending
    assert second.sent == ["e2", "e3"]


async def test_a_goodbye_is_one_although_the_sender_trips_over_it_first() -> None:
    """Between the client's close and the reader's news of it, sending fails already: the session is
    over all the same, and not kept for somebody who has left."""
    link = FakeLink()
    channel = ResumableChannel(link, lambda: True, 60)
    link.alive = False
    sending = asyncio.create_task(channel.send(event(1)))
    await asyncio.sleep(0.01)
    assert not channel.is_detached
    link.finished = True
    link.cut()
    assert await channel.receive() is None
    assert not await sending
    assert channel.is_over


async def test_a_line_that_nobody_asked_to_keep_ends_with_its_link() -> None:
    """So does one whose client said goodbye."""
    for keeps, finished in ((False, False), (True, True)):
        link = FakeLink()
        channel = ResumableChannel(link, lambda keeps=keeps: keeps, 60)  # type: ignore[misc]
        link.finished = finished
        assert await (await broken(channel, link)) is None
        assert channel.is_over
        assert not await channel.send(event(1))
        assert not await channel.claim()


async def test_a_client_that_does_not_come_back() -> None:
    """After its time the line is over, whoever waits on it is told, and it is counted."""
    link, expired = FakeLink(), asyncio.Event()
    channel = ResumableChannel(link, lambda: True, 0.05, expired.set)
    sending = await broken(channel, link)
    async with asyncio.timeout(60):
        assert await sending is None
        await expired.wait()
    assert not await channel.claim()


async def test_a_link_that_lives_is_not_taken_away() -> None:
    """Who claims its session is refused, and it goes on; one that does not answer is cut."""
    link = FakeLink()
    channel = ResumableChannel(link, lambda: True, 60)
    assert not await channel.claim()
    assert await channel.send(event(1))
    link.alive = False
    assert await channel.claim()
    assert not await channel.claim(), "a second claim while the first is being served"
    newcomer = FakeLink()
    channel.attach(newcomer, None)
    assert await channel.send(event(2))
    assert newcomer.sent == ["e2"]


async def test_a_claim_that_comes_to_nothing_gives_the_wait_back() -> None:
    """The client may try again, for as long as before."""
    link = FakeLink()
    channel = ResumableChannel(link, lambda: True, 1.0)
    reading = await broken(channel, link)
    assert await channel.claim()
    await asyncio.sleep(1.2)
    assert not channel.is_over, "nobody is thrown out while coming in"
    channel.release()
    async with asyncio.timeout(60):
        assert await reading is None


async def test_a_link_that_breaks_while_it_is_sent_the_past() -> None:
    """The next one gets all of it."""
    first, second, third = FakeLink(), FakeLink(), FakeLink()
    channel = ResumableChannel(first, lambda: True, 60)
    for number in range(4):
        assert await channel.send(event(number))
    reading = await broken(channel, first)
    assert await channel.claim()
    assert channel.attach(second, "e0") == 3
    second.cut()
    sending = asyncio.create_task(channel.send(event(4)))
    while not channel.is_detached:
        await asyncio.sleep(0)
    assert await channel.claim()
    assert channel.attach(third, "e0") is None, "what was confirmed is not kept"
    assert await sending
    assert third.sent == ["e4"]
    reading.cancel()


async def test_a_close_reaches_the_link_that_there_is() -> None:
    """And the line is over."""
    link = FakeLink()
    channel = ResumableChannel(link, lambda: True, 60)
    await channel.close(Hangup(1000, "enough"))
    assert link.closed == [Hangup(1000, "enough")]
    assert channel.is_over


def test_the_log_is_bounded_and_searched_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by size; an id that fell out is not found, and then all is forgotten."""
    monkeypatch.setattr(line_module, "LOG_EVENTS", 3)
    monkeypatch.setattr(line_module, "LOG_BYTES", 200)
    log = EventLog()
    for number in range(5):
        log.add(event(number))
    assert len(log) == 3
    assert log.behind("e2") == [event(3), event(4)]
    assert log.behind("e4") == []
    assert log.behind("e1") is None
    log.add(json.dumps({"event_id": "long", "text": "x" * 300}))
    assert len(log) == 0


async def test_a_line_that_ends_while_it_is_claimed_takes_no_link() -> None:
    """It says so, and there is nothing left of the claim."""
    link = FakeLink()
    channel = ResumableChannel(link, lambda: True, 60)
    reading = await broken(channel, link)
    assert await channel.claim()
    channel.give_up()
    with pytest.raises(SessionOver):
        channel.attach(FakeLink(), None)
    channel.release()
    assert await reading is None
    assert channel._timer is None


async def test_a_claim_whose_maker_goes_away_is_none() -> None:
    """While the last link is still being asked, and that fails or is cancelled: the next one may
    claim it."""
    link = FakeLink()
    asked = asyncio.Event()

    async def silent(wait_s: float) -> bool:
        asked.set()
        await asyncio.sleep(60)
        return False

    async def broken_question(wait_s: float) -> bool:
        raise OSError("no socket")

    channel = ResumableChannel(link, lambda: True, 60)
    link.answers = silent  # type: ignore[method-assign]
    claiming = asyncio.create_task(channel.claim())
    await asked.wait()
    claiming.cancel()
    await asyncio.gather(claiming, return_exceptions=True)
    link.answers = broken_question  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no socket"):
        await channel.claim()
    await (await broken_again(channel, link))


async def broken_again(channel: ResumableChannel, link: FakeLink) -> asyncio.Task[str | int | None]:
    """The link breaks after all, and the line can be claimed."""
    reading = await broken(channel, link)
    assert await channel.claim()
    newcomer = FakeLink()
    channel.attach(newcomer, None)
    newcomer.say("here")
    return reading


STEPS = ["claim", "release", "attach", "break", "claim and attach", "over"]


@given(st.lists(st.sampled_from(STEPS), max_size=25))
@settings(deadline=None)
def test_no_claim_outlives_its_maker(steps: list[str]) -> None:
    """In any order of claims, links and ends: a line without a link that is not claimed has its
    timer, and one that is claimed has none, so that neither waits for ever."""
    asyncio.run(_claims(steps))


async def _claims(steps: list[str]) -> None:
    link: FakeLink | None = FakeLink()
    assert link is not None
    channel = ResumableChannel(link, lambda: True, 60)
    reading = asyncio.create_task(channel.receive())
    claimed = False
    for step in steps:
        if step.startswith("claim") and not claimed:
            claimed = await channel.claim()
            assert claimed == (link is None and not channel.is_over)
        if step == "release":
            channel.release()
            claimed = False
        elif step.endswith("attach") and claimed:
            link, claimed = (None if channel.is_over else FakeLink()), False
            with contextlib.suppress(SessionOver):
                channel.attach(link or FakeLink(), None)
        elif step == "break" and link is not None:
            link.cut()
            link = None
        elif step == "over":
            channel.give_up()
            link = None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert channel._claimed == claimed or channel.is_over
        assert (channel._timer is not None) == (channel.is_detached and not claimed)
    channel.give_up()
    reading.cancel()


async def test_who_watches_hears_of_a_broken_link() -> None:
    """Once, when the session begins to wait; not of one that ends."""
    told: list[str] = []
    for keeps in (True, False):
        link = FakeLink()
        channel = ResumableChannel(
            link,
            lambda keeps=keeps: keeps,  # type: ignore[misc]
            60,
            on_detached=lambda: told.append("detached"),
        )
        receiving = await broken(channel, link)
        channel.give_up()
        await receiving
    assert told == ["detached"]
