"""headstart.gateway.runtime.socket_reader: messages off a ZeroMQ socket, on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
import zmq

from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.socket_reader import DRAIN_MESSAGES, NOBLOCK, SocketReader


class Pair:
    """A reader at one end, a socket at the other."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.ours: zmq.Socket[bytes] = self.context.socket(zmq.PAIR)
        self.theirs: zmq.Socket[bytes] = self.context.socket(zmq.PAIR)
        self.monitor: zmq.Socket[bytes] = self.ours.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.got: list[bytes] = []
        self.seen: list[Mapping[str, object]] = []
        self.stop_at = self.fail_at = -1
        self.reader = SocketReader(
            self.ours, self.monitor, lambda: self.ours.recv(NOBLOCK), self.take, self.seen.append
        )
        for socket in (self.ours, self.theirs):
            socket.linger = 0
            socket.set_hwm(0)
        port = self.ours.bind_to_random_port("tcp://127.0.0.1")
        self.theirs.connect(f"tcp://127.0.0.1:{port}")

    def take(self, message: bytes) -> None:
        self.got.append(message)
        if len(self.got) == self.stop_at:
            self.reader.stop()
        if len(self.got) == self.fail_at:
            raise ValueError

    def close(self) -> None:
        self.reader.stop()
        self.ours.disable_monitor()
        for socket in (self.monitor, self.ours, self.theirs):
            socket.close(linger=0)
        self.context.term()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


async def all_there(pair: Pair, count: int) -> None:
    while len(pair.got) < count:
        await asyncio.sleep(0.001)


async def test_messages_come_in_order_and_the_end_is_seen(pair: Pair) -> None:
    """Those that waited before the start, those that come later, and the disconnect."""
    pair.theirs.send(b"1")
    pair.reader.start()
    await all_there(pair, 1)
    pair.theirs.send(b"2")
    await all_there(pair, 2)
    assert pair.got == [b"1", b"2"]
    pair.theirs.close(linger=0)
    while not pair.seen:
        await asyncio.sleep(0.001)
    assert pair.seen[0]["event"] == zmq.EVENT_DISCONNECTED


async def test_a_flood_leaves_the_loop_to_others(pair: Pair) -> None:
    """One call delivers no more than `DRAIN_MESSAGES`; the rest comes in the loop's next turns."""
    count = 4 * DRAIN_MESSAGES
    pair.reader.start()
    for _ in range(count):
        pair.theirs.send(b"x")
    pair.ours.poll()
    pair.reader.drain()
    assert 0 < len(pair.got) <= DRAIN_MESSAGES
    await all_there(pair, count)


async def test_what_arrives_beside_a_send_is_read(pair: Pair) -> None:
    """A send takes the descriptor's edge with it; `sent` has the socket read all the same."""
    pair.reader.start()
    for number in range(200):
        pair.theirs.send(b"x")
        pair.ours.send(b"y")
        pair.reader.sent()
        await all_there(pair, number + 1)


async def test_nothing_is_delivered_once_stopped(pair: Pair) -> None:
    """Not even what waits behind the message that stopped it."""
    for _ in range(3):
        pair.theirs.send(b"x")
    pair.stop_at = 1
    pair.reader.start()
    await all_there(pair, 1)
    pair.reader.drain()
    pair.reader.read_monitor()
    assert len(pair.got) == 1


async def test_a_message_that_fails_costs_no_other(pair: Pair) -> None:
    """Those behind it are delivered, though the descriptor tells of them no more."""
    before = tasks.failures["engine socket"]
    for number in range(3):
        pair.theirs.send(bytes([number]))
    pair.fail_at = 1
    pair.reader.start()
    await all_there(pair, 3)
    assert pair.got == [b"\0", b"\1", b"\2"]
    assert tasks.failures["engine socket"] == before + 1
