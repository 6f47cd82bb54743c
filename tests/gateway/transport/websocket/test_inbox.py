import asyncio

import pytest

from headstart.gateway.transport.websocket.inbox import Inbox


async def test_messages_come_out_in_order() -> None:
    """Whether the reader waits for them or they for the reader."""
    inbox = Inbox()
    inbox.put_nowait(1)
    inbox.put_nowait(2)
    assert [await inbox.get(), await inbox.get()] == [1, 2]
    assert inbox.empty()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put_nowait(3)
    inbox.put_nowait(4)
    assert await reader == 3
    assert await inbox.get() == 4


async def test_a_reader_that_gives_up_loses_nothing() -> None:
    """A message that came as it was cancelled is there for the next one."""
    inbox = Inbox()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put_nowait("kept")
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await inbox.get() == "kept"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inbox.get(), 0.01)
    inbox.put_nowait("later")
    assert await inbox.get() == "later"


async def test_one_reader_at_a_time() -> None:
    """A second one is our mistake, and is caught."""
    inbox = Inbox()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    with pytest.raises(AssertionError, match="two read"):
        await inbox.get()
    inbox.put_nowait("for the first")
    assert await reader == "for the first"


def offered(inbox: Inbox, text: str) -> bool:
    """As a socket does with a packet: whether it was taken; else it is put."""
    taken = inbox.try_inline is not None and inbox.try_inline(text)
    if not taken:
        inbox.put_nowait(text)
    return taken


async def test_a_reader_that_waits_may_take_what_is_offered() -> None:
    """It is not woken then; what it does not take, and all behind that, it gets as ever."""
    inbox, taken = Inbox(), list[str]()

    def take(text: str) -> bool:
        taken.append(text)
        return text != "no"

    assert not offered(inbox, "before it waits")
    assert await inbox.get(take) == "before it waits"
    reader = asyncio.create_task(inbox.get(take))
    await asyncio.sleep(0)
    assert [offered(inbox, text) for text in ("one", "two", "no", "behind it")] == [1, 1, 0, 0]
    assert await reader == "no"
    assert await inbox.get(take) == "behind it"
    assert taken == ["one", "two", "no"]


async def test_who_waits_for_everything_is_offered_nothing() -> None:
    """Nor is a reader that has gone."""
    inbox, taken = Inbox(), list[str]()

    def take(text: str) -> bool:
        taken.append(text)
        return True

    gone = asyncio.create_task(inbox.get(take))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    assert not offered(inbox, "for it")
    assert await reader == "for it"
    assert taken == []
