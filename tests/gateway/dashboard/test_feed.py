"""A watcher's socket: what it gets, what it may say, and when it is sent away."""

from __future__ import annotations

import asyncio
import json

import pytest

from headstart.gateway.dashboard.dashboard import WATCHERS_MAX, Dashboard
from headstart.gateway.dashboard.feed import READS_PER_S, feed
from headstart.gateway.runtime import tasks
from tests import virtual_loop
from tests.gateway.dashboard.records import Clock, Json, hub_at, record

WAIT_S = 20.0


class FakeSocket:
    """One peer. `is_slow`: it reads nothing until it is let."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.said: asyncio.Queue[str | int | None] = asyncio.Queue()
        self.got: list[Json] = []
        self.is_gone = False
        self.reads = asyncio.Event()
        if not is_slow:
            self.reads.set()

    async def receive(self) -> str | int | None:
        return await self.said.get()

    async def send(self, text: str) -> bool:
        await self.reads.wait()
        self.got.append(json.loads(text))
        return not self.is_gone

    def try_send(self, data: bytes) -> bool:
        if not self.reads.is_set() or self.is_gone:
            return False
        self.got.append(json.loads(data))
        return True

    async def until(self, kind: str, count: int = 1) -> Json:
        async with asyncio.timeout(WAIT_S):
            while sum(m["type"] == kind for m in self.got) < count:
                await asyncio.sleep(0.005)
        return [m for m in self.got if m["type"] == kind][-1]


def made() -> Dashboard:
    return Dashboard(hub_at(Clock()), lambda: {"model": "small"}, lambda: {"rows": []})


async def watching(dashboard: Dashboard, socket: FakeSocket) -> asyncio.Task[tuple[int, str]]:
    task = asyncio.create_task(feed(dashboard, socket))
    await socket.until("live")
    return task


async def test_a_watcher_gets_the_greeting_the_ring_and_what_happens() -> None:
    """In that order; with its going the snapshots end, and nothing of it is left."""
    dashboard, socket = made(), FakeSocket()
    for number in range(100):
        dashboard.hub.turn(record(f"resp_{number}"))
    task = await watching(dashboard, socket)
    hello = socket.got[0]
    assert (hello["type"], hello["version"], hello["model"]) == ("hello", 1, "small")
    assert hello["started_at"] == "2026-11-29T13:00:00.000Z"
    assert hello["thresholds"]["loop_lag_p99_ms"] == [20, 50]
    assert [m["id"] for m in socket.got[1:101]] == [f"resp_{n}" for n in range(100)]
    dashboard.hub.turn(record("resp_new"))
    assert (await socket.until("turn", 101))["id"] == "resp_new"
    assert (await socket.until("snapshot", 2))["dropped"] == 0
    socket.said.put_nowait(None)
    assert (await task)[0] == 1000
    assert not dashboard.hub.is_watched
    assert dashboard._looking is not None
    async with asyncio.timeout(WAIT_S):
        await dashboard._looking


def test_no_snapshot_is_made_while_nobody_looks() -> None:
    """And the next one who looks gets them again."""
    looks = 0

    def look() -> Json:
        nonlocal looks
        looks += 1
        return {}

    async def watch_twice() -> None:
        dashboard = Dashboard(hub_at(Clock()), dict, look)
        dashboard.hub.turn(record())
        await asyncio.sleep(60)
        assert looks == 0
        for _ in range(2):
            socket = FakeSocket()
            task = await watching(dashboard, socket)
            await socket.until("snapshot")
            socket.said.put_nowait(None)
            await task
        await asyncio.sleep(1.2)  # one may be under way
        before = looks
        await asyncio.sleep(60)
        assert looks == before

    virtual_loop.run(lambda _: watch_twice())


async def test_a_watcher_that_reads_slowly_is_told_what_it_lost() -> None:
    """Nobody waits for it; the others lose nothing."""
    dashboard, slow, quick = made(), FakeSocket(is_slow=True), FakeSocket()
    late = asyncio.create_task(feed(dashboard, slow))
    await asyncio.sleep(0)
    on_time = await watching(dashboard, quick)
    for number in range(2_500):
        dashboard.hub.error("e", f"{number}", None)
        if number % 100 == 0:
            await asyncio.sleep(0)
    await quick.until("error", 2_500)
    slow.reads.set()
    snapshot = await slow.until("snapshot")
    assert snapshot["dropped"] >= 500
    seqs = [m["seq"] for m in slow.got if m["type"] == "error"]
    assert seqs == sorted(seqs)
    assert len(seqs) == 2_500 - snapshot["dropped"] or len(seqs) < 2_500
    assert (await quick.until("snapshot", 2))["dropped"] == 0
    for task, socket in ((late, slow), (on_time, quick)):
        socket.said.put_nowait(None)
        await task


async def test_a_feed_that_was_cut_has_no_gap_after_coming_back() -> None:
    """What was missed comes with the ring; the numbers say that it is all there."""
    dashboard, first, second = made(), FakeSocket(), FakeSocket()
    task = await watching(dashboard, first)
    dashboard.hub.turn(record("resp_1"))
    await first.until("turn")
    first.is_gone = True
    first.said.put_nowait(None)
    await task
    for number in range(2, 5):
        dashboard.hub.turn(record(f"resp_{number}"))
    task = await watching(dashboard, second)
    ring = [m["id"] for m in second.got if m["type"] == "turn"]
    assert ring == [f"resp_{n}" for n in range(1, 5)]
    last = second.got[-1]["seq"]
    dashboard.hub.turn(record("resp_5"))
    while (await second.until("turn"))["id"] != "resp_5":
        await asyncio.sleep(0.005)
    live = [m for m in second.got if m["type"] in ("snapshot", "turn")]
    counted = [m["seq"] for m in live if m["seq"] > last]
    assert counted == list(range(last + 1, last + 1 + len(counted)))
    second.said.put_nowait(None)
    await task


async def test_a_watcher_may_ask_for_chunks() -> None:
    """And for their end."""
    dashboard, socket = made(), FakeSocket()
    task = await watching(dashboard, socket)
    (watcher,) = dashboard.hub._watchers
    for wanted in (True, False):
        socket.said.put_nowait(json.dumps({"type": "watch", "chunks": wanted}))
        async with asyncio.timeout(WAIT_S):
            while watcher.wants_chunks != wanted:
                await asyncio.sleep(0.005)
    socket.said.put_nowait(None)
    await task


@pytest.mark.parametrize(
    "said",
    [
        "",
        "hello",
        "{}",
        '{"type":"hello"}',
        '{"type":"watch","chunks":1}',
        '{"type":"watch","more":true}',
        '{"type":"watch","chunks":true' + " " * 300 + "}",
        "[" * 200,
        "\ud800",
        17,
    ],
)
async def test_whatever_else_a_watcher_says_ends_it(said: str | int) -> None:
    """1008, with a sentence that fits a close frame; the others go on."""
    dashboard, socket, other = made(), FakeSocket(), FakeSocket()
    task, goes_on = await watching(dashboard, socket), await watching(dashboard, other)
    socket.said.put_nowait(said)
    code, reason = await asyncio.wait_for(task, WAIT_S)
    assert code == 1008
    assert "expected" in reason
    assert len(reason.encode()) <= 123
    assert not goes_on.done()
    other.said.put_nowait(None)
    await goes_on


async def test_a_watcher_that_talks_without_end_is_read_slowly() -> None:
    """So many messages a second, and no more of the loop than that."""
    dashboard, socket = made(), FakeSocket()
    task = await watching(dashboard, socket)
    for _ in range(1_000):
        socket.said.put_nowait('{"type":"watch","chunks":true}')
    await asyncio.sleep(0.5)
    assert socket.said.qsize() > 1_000 - 2 * READS_PER_S
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not dashboard.hub.is_watched


async def test_there_is_a_bound_of_watchers() -> None:
    """One too many is told so, as pages can read it, and closed 1013; a freed place is taken."""
    dashboard = made()
    sockets = [FakeSocket() for _ in range(WATCHERS_MAX)]
    feeds = [await watching(dashboard, socket) for socket in sockets]
    late = FakeSocket()
    assert await feed(dashboard, late) == (1013, "too_many_watchers")
    assert late.got[0]["error"]["code"] == "too_many_watchers"
    sockets[0].said.put_nowait(None)
    await feeds[0]
    again = await watching(dashboard, late)
    for socket, task in zip([*sockets[1:], late], [*feeds[1:], again], strict=True):
        socket.said.put_nowait(None)
        await task


async def test_watchers_are_told_when_the_server_ends() -> None:
    """With what was still to be sent before it."""
    dashboard, socket = made(), FakeSocket()
    task = await watching(dashboard, socket)
    dashboard.hub.turn(record())
    dashboard.hub.end(1012, "the server is shutting down")
    assert await asyncio.wait_for(task, WAIT_S) == (1012, "the server is shutting down")
    assert any(m["type"] == "turn" for m in socket.got)


async def test_snapshots_that_fail_end_the_feeds_and_are_reported() -> None:
    """A feed that looks alive and is not would be worse; whoever comes again gets another try."""
    fails = True

    def look() -> Json:
        if fails:
            raise ZeroDivisionError("a bug in the overview")
        return {}

    dashboard, socket = Dashboard(hub_at(Clock()), dict, look), FakeSocket()
    before = tasks.failures["dashboard"]
    assert (await asyncio.wait_for(feed(dashboard, socket), WAIT_S))[0] == 1011
    assert tasks.failures["dashboard"] == before + 1
    fails = False
    again = FakeSocket()
    task = await watching(dashboard, again)
    await again.until("snapshot")
    again.said.put_nowait(None)
    await task
