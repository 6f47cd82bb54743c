"""The soak run: twenty seats at a real server, each with one visit after another until time is up.

Two phases: `minutes` of every WebSocket seat's sample clock, as fast as the server takes them, and
`live_minutes` in real time. One seat in three uses WebRTC calls, which are always in real time.
Faults are injected meanwhile. The server's state is read before and after, without clients.

Keys: fds_delta, threads_delta, tasks_delta, rss_delta_bytes, kv_blocks_delta, sessions_delta and
the same of the engine's process (engine_*); unhandled (signs of an exception that nobody caught in
the server's and the engine's log); leaks (words of one session that reached another); complaints
(broken promises), excused (those that a fault explains); ok; what was `did` and `saw`, by name;
sample_clock_s, wall_s, visits, secrets_told (own secrets repeated by an answer: a leaked one would
have been, too), watched_chars, log_lines, seed, sessions, model; rss_slope_bytes_per_hour with
rss_slope_error_bytes_per_hour (of wall time, over the run's second half, the gateway's),
rss_slope_bytes_per_100_visits, engine_rss_slope_*, rss_points (second, visits, gateway, engine).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from headstart.benchmarks import report
from headstart.benchmarks.soak.canary import Canaries
from headstart.benchmarks.soak.connections import (
    Connection,
    ConnectionLost,
    Inbox,
    open_call,
    open_socket,
)
from headstart.benchmarks.soak.faults import ENGINE_LOST_AFTER_S, Faults
from headstart.benchmarks.soak.half_connections import open_one
from headstart.benchmarks.soak.memory import Memory, Point
from headstart.benchmarks.soak.server_state import Log, ServerState, at_rest, read
from headstart.benchmarks.soak.tally import Tally
from headstart.benchmarks.soak.visit import CAN_RESUME, Visit, World, part
from headstart.benchmarks.soak.wall_clock import wall_clock
from headstart.talk.local_server import LocalServer, local_server, until_ready

CALLS_EVERY = 3
ACTS = (1, 6)
GHOST_SHARE = 0.1
SAY_EVERY_S = 15.0
TRY_AGAIN_S = 2.0
LOOK_EVERY_S, LATE_S = 0.5, 1.0
LATE_FOR_S = 5.0
"""Seconds after which the server may still report that a call has vanished."""
BUSY = 503
"""Codes of closures before a session started: the server may be too busy."""
RSS_GROWTH_BYTES_MAX = 96 << 20
"""Allowance for gateway and engine each, for allocator fragmentation. A leak of a few KiB per
session shows in `rss_slope_bytes_per_hour`, whatever the end."""
RESUME_S = 5
"""Seconds that the server keeps a dropped session; with fewer than 64 sessions none is evicted."""
FAKE = "fake"
FAKE_ENGINE = "--echo --first-delta-ms 40 --delta-ms 40"


@dataclass(frozen=True)
class Options:
    """`model` "fake": the gateway alone, over a scripted engine with the arguments `fake_engine`.
    `faults_after_s`: pause before each fault; None: no faults. `listen_live_s`: length of silence
    in real time. `fast_phase_max_s`: time limit of the fast phase."""

    model: str = "tiny"
    sessions: int = 20
    minutes: float = 60.0
    live_minutes: float = 10.0
    faults_after_s: float | None = 60.0
    seed: int = 1
    fake_engine: str = FAKE_ENGINE
    listen_live_s: tuple[int, int] = (5, 40)
    fast_phase_max_s: float = math.inf
    log: Path | None = None
    """File for the server's whole log."""


def run(options: Options, *, as_json: bool) -> bool:
    """Soak and report. False if any promise was broken."""
    result = asyncio.run(soak(options))
    report.finish("soak", result, as_json=as_json)
    return bool(result["ok"])


async def soak(options: Options) -> dict[str, Any]:
    """Run the soak. Raises `ServerFailed` if the server itself ends."""
    tally, log = Tally(), Log(options.log)
    canaries = Canaries(random.Random(options.seed))
    began_s = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        clock = stack.enter_context(wall_clock())
        if clock is None:
            report.say("soak: without a C compiler, or Linux, nobody sets the server's date")
        environment = {} if clock is None else clock.environment
        starting = local_server(_arguments(options), on_line=log.take, environment=environment)
        server = await stack.enter_async_context(starting)
        report.say(f"soak: a server with {options.model} at {server.url}")
        await until_ready(server.url, lambda _: None, server.check)
        world = World(server.url, options.model, canaries, tally, clock)
        world.listen_live_s = options.listen_live_s
        party = SoakRun(options, world, server, log)
        await party.warm_up()
        before = await at_rest(server.url)
        await party.hold(Faults(world, server.pid))
        report.say("soak: everybody leaves")
        after = await at_rest(server.url)
        server.check()
    return {
        **verdict(before, after, tally, canaries, log),
        "sample_clock_s": round(tally.heard_s),
        "wall_s": round(time.monotonic() - began_s, 1),
        "visits": party.visits,
        "secrets_told": party.secrets_told,
        "watched_chars": canaries.watched_chars,
        **party.memory.report(),
        "log_lines": log.lines,
        "did": dict(sorted(tally.did.items())),
        "saw": dict(sorted(tally.saw.items())),
        **{name: getattr(options, name) for name in ("sessions", "seed", "model")},
    }


def verdict(
    before: ServerState, after: ServerState, tally: Tally, canaries: Canaries, log: Log
) -> dict[str, Any]:
    """Differences that must not be; those found are listed in `broken`, by key."""
    deltas = after.minus(before)
    deltas["kv_blocks_delta"] = deltas.pop("kv_blocks_used_delta")
    rss = deltas.pop("rss_bytes_delta"), deltas.pop("engine_rss_bytes_delta")
    broken = [name for name, delta in deltas.items() if delta]
    broken += [
        name
        for name, bad in (
            ("rss", max(rss) > RSS_GROWTH_BYTES_MAX),
            ("unhandled", log.unhandled),
            ("leaks", canaries.leaks),
            ("complaints", tally.complaints),
        )
        if bad
    ]
    return {
        "ok": not broken,
        "broken": broken,
        **deltas,
        "rss_delta_bytes": rss[0],
        "engine_rss_delta_bytes": rss[1],
        "unhandled": len(log.unhandled),
        "unhandled_lines": log.unhandled[:10],
        "leaks": len(canaries.leaks),
        "leaked": canaries.leaks[:10],
        "complaints": tally.complaints,
        "complained": tally.told,
        "excused": tally.excused,
    }


def _arguments(options: Options) -> list[str]:
    """Arguments of `headstart serve`."""
    arguments = ["--set", f"engine_lost_after_s={ENGINE_LOST_AFTER_S}", "--set", "voice=none"]
    if CAN_RESUME:
        arguments += ["--set", f"resume_s={RESUME_S}"]
    if options.model != FAKE:
        return [*arguments, "--model", options.model]
    return [*arguments, "--engine", "fake", "--set", f"engine_args={options.fake_engine}"]


class SoakRun:
    """The seats and their visits."""

    def __init__(self, options: Options, world: World, server: LocalServer, log: Log) -> None:
        self.visits = 0
        self.secrets_told = 0
        self.memory = Memory()
        """Set every `SAY_EVERY_S`."""
        self._options, self._world, self._server, self._log = options, world, server, log

    async def warm_up(self) -> None:
        """Run each kind of connection and act once, so that one-time allocations are made."""
        report.say("soak: one of each, before anybody counts")
        rng = random.Random(f"{self._options.seed}/warm-up")
        seats = range(min(self._options.sessions, 2 * CALLS_EVERY))
        await asyncio.gather(*(self._every_act(entry, rng) for entry in seats))

    async def hold(self, faults: Faults) -> None:
        """Run both phases, with faults."""
        over = asyncio.Event()
        telling = asyncio.gather(self._tell(), self._watch_ourselves())
        breaking = asyncio.create_task(self._break(faults, over))
        try:
            for live, minutes in (
                (False, self._options.minutes),
                (True, self._options.live_minutes),
            ):
                if minutes > 0:
                    self._world.live = live
                    await self._phase(live, minutes * 60)
        finally:
            over.set()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await breaking  # a fault in progress must clean up

    async def _break(self, faults: Faults, over: asyncio.Event) -> None:
        if self._options.faults_after_s is not None:
            await faults.inject(self._options.faults_after_s, over)

    async def _phase(self, live: bool, seconds: float) -> None:
        """Live: for `seconds` of wall time. Else: until every WebSocket seat has sent that much
        audio; calls go on meanwhile."""
        loop = asyncio.get_running_loop()
        sockets = [entry for entry in range(self._options.sessions) if not _calls(entry)]
        calls = [entry for entry in range(self._options.sessions) if _calls(entry)]
        ends_s = loop.time() + seconds
        others_done = asyncio.Event()
        if live:
            until = [lambda _: loop.time() >= ends_s] * 2
        else:
            latest_s = loop.time() + self._options.fast_phase_max_s
            until = [
                lambda heard_s: heard_s >= seconds or loop.time() >= latest_s,
                lambda _: others_done.is_set(),
            ]
        tasks = [asyncio.create_task(self._seat(entry, until[0], live)) for entry in sockets]
        callers = [asyncio.create_task(self._seat(entry, until[1], live)) for entry in calls]
        try:
            await _all(tasks)
            others_done.set()
            await _all(callers)
        finally:
            for task in (*tasks, *callers):
                task.cancel()
            await asyncio.gather(*tasks, *callers, return_exceptions=True)

    async def _seat(self, entry: int, is_over: Callable[[float], bool], live: bool) -> None:
        heard_s = 0.0
        for number in itertools.count():
            if is_over(heard_s):
                return
            rng = random.Random(f"{self._options.seed}/{live}/{entry}/{number}")
            try:
                if rng.random() < GHOST_SHARE:
                    await open_one(self._world.url, rng, self._world.tally)
                heard_s += await self._visit(entry, rng)
            except (ConnectionLost, OSError, TimeoutError, httpx.HTTPError) as error:
                if isinstance(error, ConnectionLost) and error.code == BUSY:
                    self._world.tally.saw["refused: too busy"] += 1
                else:
                    self._world.tally.complain(f"seat {entry} found nobody: {error!r}")
                await asyncio.sleep(TRY_AGAIN_S)

    async def _visit(self, entry: int, rng: random.Random) -> float:
        """Run one session; returns the seconds of audio it sent."""
        async with self._arrives(entry, rng) as (visit, line):
            for _ in range(rng.randint(*ACTS)):
                name = _draw(visit, rng)
                self._world.tally.did[name] += 1
                await visit.acts[name][1]()
            await part(visit, line, rng, self._world)
        return visit.heard_s

    async def _every_act(self, entry: int, rng: random.Random) -> None:
        async with self._arrives(entry, rng) as (visit, line):
            for name, (_, act) in visit.acts.items():
                if name != "stop_reading" or entry == 0:
                    await act()
            await line.goodbye()

    @contextlib.asynccontextmanager
    async def _arrives(
        self, entry: int, rng: random.Random
    ) -> AsyncIterator[tuple[Visit, Connection]]:
        """A session with its settings sent. An unexplained end by the server is a complaint."""
        world, since_s = self._world, time.monotonic()
        secret = world.canaries.issue()
        inbox = Inbox(secret, world.canaries, world.tally)
        line: Connection
        if _calls(entry):
            line = await open_call(world.url, world.model, inbox)
        else:
            line = await open_socket(world.url, world.model, inbox, live=world.live)
        self.visits += 1
        visit = Visit(world, line, secret, rng)
        try:
            await visit.introduce()
        except ConnectionLost:
            await line.drop()
            raise
        try:
            yield visit, line
        except ConnectionLost as closed:
            world.tally.saw[f"closed {closed.code}"] += 1
            if not visit.may_be_closed:
                world.tally.complain(f"seat {entry} was closed with {closed.code}", since_s)
        finally:
            self.secrets_told += secret.told
            await line.drop()

    async def _watch_ourselves(self) -> None:
        """Detect that this process itself was late, on a busy machine. Its calls then have not
        answered the server either, which may take them for gone."""
        while True:
            asked_s = time.monotonic()
            await asyncio.sleep(LOOK_EVERY_S)
            if time.monotonic() - asked_s > LOOK_EVERY_S + LATE_S:
                trouble = self._world.tally.trouble()
                trouble.began_s, trouble.ended_s = asked_s, time.monotonic() + LATE_FOR_S
                self._world.tally.saw["we ourselves were late"] += 1

    async def _tell(self) -> None:
        """Report progress and memory use."""
        began_s = time.monotonic()
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            self._server.check()
            try:
                state = await read(self._world.url)
            except (httpx.HTTPError, psutil.Error):
                continue  # asleep, or its engine ended while we looked
            now_s, sizes = time.monotonic(), (state.rss_bytes, state.engine_rss_bytes)
            self.memory.points.append(Point(now_s - began_s, self.visits, *sizes))
            tally = self._world.tally
            report.say(
                f"soak: {self.visits} visits, {tally.heard_s / 60:.0f} min heard, "
                f"{state.sessions} sessions, {state.kv_blocks_used} blocks, "
                f"{state.rss_bytes >> 20}+{state.engine_rss_bytes >> 20} MiB, "
                f"{len(self._log.unhandled)} unhandled, {tally.complaints} complaints, "
                f"{len(self._world.canaries.leaks)} leaks"
            )


def _calls(entry: int) -> bool:
    return entry % CALLS_EVERY == CALLS_EVERY - 1


def _draw(visit: Visit, rng: random.Random) -> str:
    names = list(visit.acts)
    return rng.choices(names, [visit.acts[name][0] for name in names])[0]


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for all tasks; raises the first error."""
    if tasks:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
