import asyncio
import json

from headstart.gateway.connection.outbound import Bounds, Outbound
from headstart.gateway.session.actions import Hangup, Send
from tests.gateway.shell_fakes import until


async def test_outbound_refuses_what_does_not_fit_and_ends_after_the_rest() -> None:
    """Full by count or by bytes; after `end` the rest is given out, then None."""
    by_count = Outbound(Bounds(events=2))
    assert [by_count.put(Send({"type": "x"})) for _ in range(3)] == [True, True, False]
    by_bytes = Outbound(Bounds(bytes=30))
    assert [by_bytes.put(Send({"type": "0123456789"})) for _ in range(2)] == [True, False]
    by_bytes.end(Hangup(1000, "first"), discard=False)
    by_bytes.end(Hangup(1001, "second"), discard=False)
    assert await by_bytes.get() is not None
    assert await by_bytes.get() is None
    assert by_bytes.waiting_bytes == 0
    assert by_bytes.hangup == Hangup(1000, "first")


class Writer:
    """Takes from the queue what does not go past it."""

    def __init__(self, bounds: Bounds) -> None:
        self.sent: list[str] = []
        self.takes = True
        self.outbound = Outbound(bounds, self._at_once)
        self.goes_on = asyncio.Event()

    def put(self, name: str, *, stamp: bool = False) -> bool:
        return self.outbound.put(Send({"type": name}, wants_sent_stamp=stamp))

    async def write(self) -> None:
        while (item := await self.outbound.get()) is not None:
            await self.goes_on.wait()  # the peer reads slowly
            self.sent.append(f"{json.loads(item.text)['type']} queued")

    def _at_once(self, data: bytes) -> bool:
        if self.takes:
            self.sent.append(json.loads(data)["type"])
        return self.takes


async def test_what_nothing_is_in_the_way_of_goes_past_the_queue_and_in_order() -> None:
    """Not before somebody writes, not what wants a stamp, nor what comes while such a one or
    anything else waits or is being written; all of it in the order in which it was put."""
    writer = Writer(Bounds(events=3))
    assert writer.put("before")
    writing = asyncio.create_task(writer.write())
    await asyncio.sleep(0)
    assert writer.put("while it is written")
    writer.goes_on.set()
    await until(lambda: len(writer.sent) == 2)
    await asyncio.sleep(0)
    assert writer.put("free")
    assert writer.put("stamped", stamp=True)
    assert writer.put("behind")
    await until(lambda: len(writer.sent) == 5)
    assert writer.put("last")
    writer.outbound.end(Hangup(1000, "over"), discard=False)
    await writing
    queued = ["before", "while it is written"]
    assert writer.sent[:2] == [f"{name} queued" for name in queued]
    assert writer.sent[2:] == ["free", "stamped queued", "behind queued", "last"]


async def test_what_cannot_be_written_at_once_is_bounded() -> None:
    """A peer that reads slowly is refused what is over the bound, though events went past the
    queue before it; what is in the queue comes before whatever is put when it reads again."""
    writer = Writer(Bounds(events=2))
    writing = asyncio.create_task(writer.write())
    await asyncio.sleep(0)
    assert writer.put("free")
    writer.takes = False
    assert [writer.put(name) for name in "abc"] == [True, True, False]
    writer.takes = True
    await asyncio.sleep(0)  # the writer has one in its hand
    assert writer.put("d")
    assert not writer.put("e")
    writer.goes_on.set()
    writer.outbound.end(Hangup(1000, "over"), discard=False)
    await writing
    assert writer.sent == ["free", "a queued", "b queued", "d queued"]
    assert writer.outbound.waiting_bytes == 0


async def test_nothing_goes_past_a_hangup() -> None:
    """Whoever puts something behind it finds the queue closed to the socket."""
    writer = Writer(Bounds())
    writing = asyncio.create_task(writer.write())
    await asyncio.sleep(0)
    writer.outbound.end(Hangup(1000, "over"), discard=False)
    writer.put("too late")
    assert writer.sent == []
    writing.cancel()
