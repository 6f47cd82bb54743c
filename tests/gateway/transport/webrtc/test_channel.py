import asyncio
import json
from typing import Any

import pytest
from aiortc.exceptions import InvalidStateError
from pyee.asyncio import AsyncIOEventEmitter

from headstart.gateway.session.actions import Hangup
from headstart.gateway.transport.webrtc.channel import (
    BUFFERED_BYTES,
    INBOUND_BYTES,
    LABEL,
    EventChannel,
)


class FakeDataChannel(AsyncIOEventEmitter):
    """What `EventChannel` uses of an `RTCDataChannel`."""

    def __init__(self, label: str = LABEL) -> None:
        super().__init__()
        self.label = label
        self.readyState = "open"
        self.bufferedAmount = 0
        self.bufferedAmountLowThreshold = 0
        self.sent: list[str] = []

    def send(self, text: str) -> None:
        self.sent.append(text)
        self.bufferedAmount += len(text)


async def answers() -> bool:
    return True


def opened() -> tuple[EventChannel, Any]:
    channel, data = EventChannel(True, answers), FakeDataChannel()
    channel.adopt(data)  # type: ignore[arg-type]
    return channel, data


async def test_events_wait_for_the_channel() -> None:
    """What is sent before the peer has opened it arrives once it has."""
    channel, data = EventChannel(True, answers), FakeDataChannel()
    sending = asyncio.create_task(channel.send("hello"))
    await asyncio.sleep(0)
    assert not sending.done()
    channel.adopt(FakeDataChannel("another"))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not sending.done()
    channel.adopt(data)  # type: ignore[arg-type]
    assert await sending
    assert data.sent == ["hello"]


async def test_without_a_channel_events_go_nowhere() -> None:
    """A caller that offered none loses them, and the session goes on."""
    channel = EventChannel(False, answers)
    assert await channel.send("hello")
    channel.mark_closed()
    assert not await channel.send("hello")


async def test_a_slow_reader_holds_the_sender_back() -> None:
    """With the bound handed over, the next `send` waits until the peer has read."""
    channel, data = opened()
    assert await channel.send("x" * BUFFERED_BYTES)
    sending = asyncio.create_task(channel.send("next"))
    await asyncio.sleep(0)
    assert not sending.done()
    data.bufferedAmount = 0
    data.emit("bufferedamountlow")
    assert await sending


async def test_messages_come_in_order_and_their_end_is_told() -> None:
    """Texts as they are, binary ones as their size, then None."""
    channel, data = opened()
    data.emit("message", "one")
    data.emit("message", b"12345")
    assert await channel.receive() == "one"
    assert await channel.receive() == 5
    receiving = asyncio.create_task(channel.receive())
    await asyncio.sleep(0)
    data.emit("close")
    assert await receiving is None
    assert channel.is_gone


async def test_a_flood_ends_the_call() -> None:
    """More than the bound unread: the peer is let go, not fed into memory."""
    channel, data = opened()
    for _ in range(INBOUND_BYTES // (4 * 100_000) + 1):
        data.emit("message", "x" * 100_000)
    assert channel.is_gone
    assert await channel.receive() is None


async def test_an_event_no_channel_carries_is_told_as_an_error() -> None:
    """Browsers close a channel over a message of 256 KiB: an error goes out in its place."""
    channel, data = opened()
    event = {"type": "conversation.item.retrieved", "event_id": "event_1", "data": "ä" * 140_000}
    assert await channel.send(json.dumps(event, ensure_ascii=False))
    sent = json.loads(data.sent[0])
    assert sent["error"]["code"] == "event_too_large"
    assert "conversation.item.retrieved" in sent["error"]["message"]
    assert await channel.send(json.dumps(event | {"data": "x" * 100_000}))
    assert len(data.sent[1]) > 100_000


async def test_closing_waits_for_what_was_sent() -> None:
    """The last messages are given a moment; a peer that reads nothing gets no more than that."""
    channel, data = opened()
    await channel.send("bye")
    closing = asyncio.create_task(channel.close(Hangup(1000, "done")))
    await asyncio.sleep(0.05)
    assert not closing.done()
    data.bufferedAmount = 0
    await closing
    assert channel.is_gone
    assert channel.hangup == Hangup(1000, "done")


@pytest.mark.parametrize("error", [InvalidStateError(), ValueError("no"), ConnectionError("gone")])
async def test_an_event_that_cannot_be_sent_ends_the_link(error: Exception) -> None:
    """Whatever the reason: no later event arrives behind a hole, and the session may go on over
    another link, for nobody has said goodbye."""
    channel, data = opened()
    receiving = asyncio.create_task(channel.receive())

    def fail(_: str) -> None:
        data.send = data.sent.append
        raise error

    data.send = fail
    assert not await channel.send("one")
    assert not await channel.send("two")
    assert data.sent == []
    assert await receiving is None
    assert channel.is_gone
    assert not channel.finished
