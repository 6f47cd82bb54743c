"""Every shape of a connection that is no session: none stays, none keeps others out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from headstart.gateway.connection.pending import (
    DroppedConnections,
    PendingConnections,
    PendingLimits,
)
from tests.gateway.auth.test_middleware import certificate  # noqa: F401  # a fixture
from tests.gateway.shapes import SHAPES, Shape, drip
from tests.gateway.shell_fakes import RunningGateway, receive, running_gateway, until

KEY = "k" * 20
BEARER = {"Authorization": f"Bearer {KEY}"}
IMPATIENT = PendingLimits(head_s=0.4, exchange_s=0.8, closing_s=0.2, check_every_s=0.05)
HOUR_S = 3600.0
PATIENT = PendingLimits(head_s=HOUR_S, exchange_s=HOUR_S, closing_s=HOUR_S, check_every_s=0.05)
"""Far longer than any wait of a test: nobody's time is ever over."""
EACH = 12
Held = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def keyed(
    limits: PendingLimits, folder: Path, **flags: object
) -> AsyncIterator[RunningGateway]:
    """A server that wants a key, with a large file for everybody."""
    (folder / "index.html").write_text("")
    (folder / "filler").write_bytes(b"x" * 20_000)
    async with running_gateway(limits, api_keys=KEY, web_dir=folder, **flags) as running:
        yield running


@contextlib.asynccontextmanager
async def held(
    running: RunningGateway, shape: Shape, count: int, trust: ssl.SSLContext | None = None
) -> AsyncIterator[list[Held]]:
    """So many connections of that shape, of which nothing is read."""
    host, port = running.url.partition("://")[2].split(":")
    dripping: list[asyncio.Task[None]] = []
    connections: list[Held] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=trust, limit=1024)
            connections.append((reader, writer))
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(shape.first)
            if shape.drip:
                dripping.append(asyncio.create_task(drip(writer, shape.drip)))
        yield connections
    finally:
        for task in dripping:
            task.cancel()
        for _, writer in connections:
            writer.transport.abort()


async def is_answered(connection: Held) -> bool:
    """Whether the server had anything to say before it had enough."""
    reader, writer = connection
    with contextlib.suppress(RuntimeError):  # it is closed
        writer.transport.resume_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            return await reader.read(4096) != b""
    return False


async def others_are_served(running: RunningGateway, trust: ssl.SSLContext | None = None) -> None:
    """Health, status and a session with a key, each as if nobody else were there."""
    verify = True if trust is None else trust
    async with httpx.AsyncClient(base_url=running.url, timeout=60, verify=verify) as http:
        assert (await http.get("/healthz")).json()["gateway"] == "ok"
        assert (await http.get("/status", headers=BEARER)).status_code == 200
    async with connect(running.ws_url, additional_headers=BEARER, ssl=trust) as socket:
        await receive(socket, "session.created")
        await socket.send("hello")
        assert (await receive(socket, "echo"))["text"] == "hello"


@pytest.mark.parametrize("name", SHAPES)
async def test_others_wait_for_none_of_them(name: str, tmp_path: Path) -> None:
    """They are served, twice, although nobody's time is over: so it is not the end of another's
    connection that lets them in."""
    async with keyed(PATIENT, tmp_path) as running, held(running, SHAPES[name], EACH):
        await others_are_served(running)
        await others_are_served(running)
        assert not running.gateway.dropped_connections


@pytest.mark.parametrize("name", SHAPES)
async def test_none_stays(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each is gone when its time is over, and counted unless it had an answer; nothing that it
    sent is an error of ours."""
    async with (
        keyed(IMPATIENT, tmp_path) as running,
        held(running, SHAPES[name], EACH) as connections,
    ):
        await others_are_served(running)
        await until(lambda: not running.server.server_state.connections)
        unanswered = EACH - sum([await is_answered(one) for one in connections])
        assert running.gateway.dropped_connections.total() >= unanswered
        assert not running.sessions[1:]  # but ours
    assert [r for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []


@pytest.mark.parametrize("name", ["silence", "upgrade by POST", "chunks that never end"])
async def test_none_stays_behind_tls(
    name: str,
    tmp_path: Path,
    certificate: tuple[Path, Path],  # noqa: F811
) -> None:
    """The same once its handshake is done."""
    cert, key = certificate
    trust = ssl.create_default_context(cafile=str(cert))
    async with (
        keyed(IMPATIENT, tmp_path, tls_cert=cert, tls_key=key) as running,
        held(running, SHAPES[name], EACH, trust),
    ):
        await others_are_served(running, trust)
        await until(lambda: not running.server.server_state.connections)


async def test_a_crowd_of_all_shapes_keeps_nobody_out(tmp_path: Path) -> None:
    """Hundreds at once, with all the time in the world: others are served, and no more than the
    bound are there."""
    limits = replace(PATIENT, pending_max=32)
    async with keyed(limits, tmp_path) as running, contextlib.AsyncExitStack() as stack:
        for shape in SHAPES.values():
            await stack.enter_async_context(held(running, shape, EACH))
        await others_are_served(running)
        await others_are_served(running)
        crowd = len(running.server.server_state.connections)
        assert crowd <= limits.pending_max + 1
        assert running.gateway.dropped_connections["crowded"] >= (len(SHAPES) * EACH) // 3


async def test_who_does_not_read_the_answer_goes_first(tmp_path: Path) -> None:
    """Where all places are taken by requests that have come whole, the next one still gets in."""
    async with (
        keyed(replace(PATIENT, pending_max=8), tmp_path) as running,
        held(running, SHAPES["pipelined"], 8),
    ):
        await until(lambda: len(running.server.server_state.connections) == 8)
        await others_are_served(running)


async def test_who_does_not_answer_a_goodbye_is_a_guest_again(tmp_path: Path) -> None:
    """Sessions that have ended, and sockets with a wrong key, are not waited for either, and make
    room in a crowd."""
    limits = PendingLimits(closing_s=0.3, check_every_s=0.05)
    async with keyed(limits, tmp_path) as running, contextlib.AsyncExitStack() as stack:
        good = SHAPES["a wrong key"].first.replace(b"nobody's", KEY.encode())
        bye = bytes((0x81, 0x80 | 3)) + bytes(4) + b"bye"
        await stack.enter_async_context(held(running, Shape(good + bye), EACH))
        await until(lambda: len(running.sessions) == EACH)
        await until(lambda: not running.server.server_state.connections)
        assert running.gateway.dropped_connections == {"closing": EACH}


async def test_who_leaves_in_the_middle_leaves_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At any point of a request, with a reset: no exception of ours, and nothing is left."""
    async with keyed(PendingLimits(), tmp_path) as running:
        for shape in SHAPES.values():
            for part in (1, 2, 3):
                sent = shape.first[: len(shape.first) * part // 3]
                async with held(running, Shape(sent + shape.drip), 1):
                    await asyncio.sleep(0.002 * part)
        await until(lambda: not running.server.server_state.connections)
        await others_are_served(running)
    assert [r for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []


class Standing:
    """A pending connection that does nothing."""

    def __init__(self, stage: str, waits_for_peer: bool = True) -> None:
        self.stage = stage
        self.waits_for_peer = waits_for_peer
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


def test_each_stage_has_its_time() -> None:
    """Those whose time is over are cut and counted by stage, and the others stay."""
    dropped = DroppedConnections()
    table = PendingConnections(PendingLimits(head_s=1.0, exchange_s=2.0, closing_s=0.5), dropped)
    standing = [Standing(stage) for stage in ("handshake", "head", "exchange", "upgrade")]
    for pending in standing:
        table.add(pending, 10.0)
    table.drop_expired(11.0, ())
    assert not any(pending.is_cut for pending in standing)
    table.drop_expired(11.1, ())
    assert [pending.is_cut for pending in standing] == [True, True, False, False]
    table.drop_expired(12.1, ())
    assert dropped == {"handshake": 1, "head": 1, "exchange": 1, "upgrade": 1}
    assert len(table) == 0


def test_our_own_standstill_is_not_their_fault() -> None:
    """It counts for nobody, also not for one that came amid it; after it they have what was left of
    their time, and no more."""
    table = PendingConnections(PendingLimits(head_s=1.0), DroppedConnections())
    before, amid = Standing("head"), Standing("head")
    table.add(before, 10.0)
    table.add(amid, 69.0)
    table.excuse(60.0, 70.5)
    table.drop_expired(70.5, ())
    assert not before.is_cut
    table.drop_expired(71.1, ())
    assert (before.is_cut, amid.is_cut) == (True, False)
    table.drop_expired(71.6, ())
    assert amid.is_cut


def test_the_one_that_has_waited_longest_makes_room() -> None:
    """For its peer; or the oldest, if all wait for us; nobody's place is nobody's."""
    table = PendingConnections(PendingLimits(), DroppedConnections())
    assert not table.make_room()
    busy, late, early = Standing("exchange", False), Standing("head"), Standing("exchange")
    for pending, since_s in ((busy, 1.0), (late, 3.0), (early, 2.0)):
        table.add(pending, since_s)
    for expected in (early, late, busy):
        assert table.make_room()
        assert expected.is_cut
    assert len(table) == 0
