"""What the dashboard costs the gateway: with nobody who looks, one browser, and ten.

A gateway and a fake engine on cores of their own; 64 sessions, of which so many speak that about
200 turns a minute come. Phases of 0, 1 and 10 watchers take turns, round by round, so that what
else the machine does falls on all of them alike; the time on the processor is the gateway's own.
Then, with a full ring of 2,000 turns, one watcher and ten times as many turns, resident memory is
sampled for some minutes.

Sound takes the gateway ten times as much as watchers do, and not the same in each phase. So the
same phases follow without any, with as many turns that are typed.

Keys: cpu_share (of a core: the gateway's whole work, by number of watchers), cost_share (the same
without what it is with nobody), quiet_cpu_share, quiet_cost_share (without sound),
turns_per_minute, sessions, bytes_per_s (that one watcher got), dropped, rss_growth_bytes_per_hour
(a straight line through the samples of the soak), soak_minutes,
soak_turns_per_minute, rss_bytes, and of a turn as a real engine reports it (64 spans, 16 chunks):
turn_bytes, encode_us (its record as a line), keep_us (its place in the ring while nobody looks).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from headstart.benchmarks import report
from headstart.benchmarks.gateway.capacity import GatewayProcess, running_gateway
from headstart.benchmarks.gateway.clients import turn_pcm
from headstart.benchmarks.harness.packets import PACKET_MS
from headstart.engine import api
from headstart.gateway.dashboard.hub import Hub
from headstart.gateway.dashboard.ring import TURNS_MAX
from headstart.gateway.telemetry.latency import ChunkBudget, TurnBudget, TurnStamps
from headstart.gateway.telemetry.turn_record import TurnChunk, TurnRecord

SESSIONS = 64
TURNS_PER_MINUTE = 200
WATCHERS = (0, 1, 10)
SETTLE_S = 2.0
SAMPLE_S = 2.0
TYPISTS = 16
SOAK_PAUSE_S = 0.5
ASIDE = '{"type":"response.create","response":{"conversation":"none","input":[]}}'
NS_PER_MS = 1_000_000


def run(seconds: float, rounds: int, soak_minutes: float, *, as_json: bool) -> None:
    """Measure and report."""
    result = asyncio.run(_run(seconds, rounds, soak_minutes))
    report.finish("dashboard", {**result, **_record_costs()}, as_json=as_json)


def speaking_sessions() -> int:
    """How many of `SESSIONS`, speaking without end, take `TURNS_PER_MINUTE`; the rest is quiet."""
    return round(TURNS_PER_MINUTE * len(turn_pcm()) * PACKET_MS / 60_000)


async def _run(seconds: float, rounds: int, soak_minutes: float) -> dict[str, Any]:
    speaking = speaking_sessions()
    async with (
        running_gateway() as server,
        server.clients("ws") as clients,
        _quiet(server.url, SESSIONS - speaking),
    ):
        await clients.ask(f"add {speaking}")
        await asyncio.sleep(SETTLE_S)
        answers, began_s = (await clients.ask("report"))["answers"], time.monotonic()
        seen = _Seen()
        shares = await _phases(server, seconds, rounds, seen)
        minutes = (time.monotonic() - began_s) / 60
        turns = ((await clients.ask("report"))["answers"] - answers) / minutes
    pause_s = 60 * TYPISTS / TURNS_PER_MINUTE
    async with (
        running_gateway() as server,
        _quiet(server.url, SESSIONS - TYPISTS),
        _typing(server.url, pause_s),
    ):
        await asyncio.sleep(SETTLE_S + pause_s)
        quiet = await _phases(server, seconds, rounds, _Seen())
    growth = await _soak(soak_minutes)
    return {
        "cpu_share": shares,
        "cost_share": _costs(shares),
        "quiet_cpu_share": quiet,
        "quiet_cost_share": _costs(quiet),
        "turns_per_minute": round(turns, 1),
        "sessions": SESSIONS,
        "bytes_per_s": round(statistics.median(seen.rates)),
        "dropped": seen.dropped,
        **growth,
    }


async def _phases(
    server: GatewayProcess, seconds: float, rounds: int, seen: _Seen
) -> dict[str, float]:
    """The gateway's share of a core, the median of all rounds, by number of watchers."""
    shares: dict[int, list[float]] = {number: [] for number in WATCHERS}
    for _ in range(rounds):
        for number in WATCHERS:
            async with _watching(server.url, number, seen):
                await asyncio.sleep(SETTLE_S)
                seen.bytes, before_s = 0, time.monotonic()
                shares[number].append(await _cpu_share(server, seconds))
                if number == 1:
                    seen.rates.append(seen.bytes / (time.monotonic() - before_s))
            report.say(f"{number} watchers: {100 * shares[number][-1]:.1f} % of a core")
    return {str(number): round(statistics.median(of), 4) for number, of in shares.items()}


def _costs(shares: dict[str, float]) -> dict[str, float]:
    return {number: round(share - shares["0"], 4) for number, share in shares.items()}


class _Seen:
    """What watchers have got."""

    def __init__(self) -> None:
        self.bytes = 0
        self.rates: list[float] = []
        self.dropped = 0


async def _cpu_share(server: GatewayProcess, seconds: float) -> float:
    """Of one core, of the gateway's process."""
    before_s, began_s = _cpu_s(server), time.monotonic()
    await asyncio.sleep(seconds)
    return (_cpu_s(server) - before_s) / (time.monotonic() - began_s)


def _cpu_s(server: GatewayProcess) -> float:
    times = server.process.cpu_times()
    return float(times.user + times.system)


@contextlib.asynccontextmanager
async def _watching(url: str, number: int, seen: _Seen) -> AsyncIterator[None]:
    """So many watchers that read all they get."""
    sockets = [
        await connect(socket_url(url, "/v1/dashboard"), max_size=None) for _ in range(number)
    ]
    reading = [asyncio.create_task(_read(socket, seen)) for socket in sockets]
    try:
        yield
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for socket in sockets:
            await socket.close()


async def _read(socket: ClientConnection, seen: _Seen) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            line = await socket.recv(decode=False)
            seen.bytes += len(line)
            if line.startswith(b'{"type":"snapshot"'):
                seen.dropped = max(seen.dropped, json.loads(line)["dropped"])


@contextlib.asynccontextmanager
async def _quiet(url: str, number: int) -> AsyncIterator[None]:
    """Sessions in which nobody says anything."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(number):
            await stack.enter_async_context(connect(socket_url(url, "/v1/realtime")))
        yield


def socket_url(url: str, path: str) -> str:
    return url.replace("http", "ws", 1) + path


@contextlib.asynccontextmanager
async def _typing(url: str, pause_s: float) -> AsyncIterator[_Turns]:
    """Sessions that have one answer after the other, of which their conversations keep nothing."""
    turns = _Turns()
    typing = [asyncio.create_task(_type(url, pause_s, turns)) for _ in range(TYPISTS)]
    try:
        yield turns
    finally:
        for task in typing:
            task.cancel()
        await asyncio.gather(*typing, return_exceptions=True)


class _Turns:
    def __init__(self) -> None:
        self.done = 0


async def _type(url: str, pause_s: float, turns: _Turns) -> None:
    async with connect(socket_url(url, "/v1/realtime")) as socket:
        while True:
            await socket.send(ASIDE)
            while '"type":"response.done"' not in str(await socket.recv()):
                pass
            turns.done += 1
            await asyncio.sleep(pause_s)


async def _soak(minutes: float) -> dict[str, Any]:
    """A ring that is full of turns like those that come, and is turned over again and again."""
    samples: list[tuple[float, int]] = []
    async with running_gateway() as server, _watching(server.url, 1, _Seen()):
        async with _typing(server.url, 0.0) as turns:
            report.say(f"{2 * TURNS_MAX} turns, so that the ring is full")
            while turns.done < 2 * TURNS_MAX:
                await asyncio.sleep(SETTLE_S)
        async with _typing(server.url, SOAK_PAUSE_S) as turns:
            await asyncio.sleep(5 * SETTLE_S)
            began_s, before = time.monotonic(), turns.done
            while (passed_s := time.monotonic() - began_s) < 60 * minutes:
                await asyncio.sleep(SAMPLE_S)
                samples.append((passed_s / 3600, server.process.memory_info().rss))
            rate = (turns.done - before) / minutes
    return {
        "rss_growth_bytes_per_hour": round(
            statistics.linear_regression(*zip(*samples, strict=True)).slope
        ),
        "soak_minutes": minutes,
        "soak_turns_per_minute": round(rate),
        "rss_bytes": samples[-1][1],
    }


# --- one record ----------------------------------------------------------------------------------


def _record_costs() -> dict[str, Any]:
    """Of a turn of eight seconds as the `small` model reports it."""
    hub = Hub()
    records = [_record(number) for number in range(500)]
    keep_us = _each_us(hub.turn, records)
    lines: list[bytes] = []
    encode_us = _each_us(lambda message: lines.append(message.line()), list(hub.ring))
    return {"turn_bytes": len(lines[0]), "encode_us": encode_us, "keep_us": keep_us}


def _each_us(call: Callable[[Any], object], of: Sequence[Any]) -> float:
    took = []
    for each in of:
        began_ns = time.perf_counter_ns()
        call(each)
        took.append(time.perf_counter_ns() - began_ns)
    return round(statistics.median(took) / 1000, 1)


def _record(number: int) -> TurnRecord:
    at_ns = number * 1_000 * NS_PER_MS + 12_345
    spans = tuple(
        api.Span("encode", at_ns - i * 125 * NS_PER_MS, at_ns - (i * 125 - 20) * NS_PER_MS)
        for i in range(1, 64)
    )
    stamps = TurnStamps(
        sent_ns=at_ns + 561 * NS_PER_MS,
        last_speech_received_ns=at_ns,
        endpoint_ns=at_ns + 500 * NS_PER_MS,
        first_delta_received_ns=at_ns + 560 * NS_PER_MS,
        spans=(*spans, api.Span("prefill", at_ns + 501 * NS_PER_MS, at_ns + 550 * NS_PER_MS)),
    )
    budget = ChunkBudget(0, 500.0, {"mel": 2.1, "encode": 18.5, "prefill": 35.0}, 64.2)
    chunks = tuple(TurnChunk(at_ns - i * 500 * NS_PER_MS, budget, 4, 1) for i in range(16, 0, -1))
    return TurnRecord(
        response_id=f"resp_{number}",
        session_id="sess_1",
        item_id="item_1",
        turn=1,
        generation=1,
        model="small",
        stamps=stamps,
        budget=TurnBudget.from_stamps(stamps),
        latency_budget_ms=800,
        done_ns=at_ns + 1_500 * NS_PER_MS,
        reason="completed",
        chunks=chunks,
        usage=api.Usage(20, 64, 0, 220, 31, 12, 3),
        kv=api.KvStats(400, 25, 4_915_200, 12_288, {"text": 40, "audio": 200, "generated": 160}),
    )
