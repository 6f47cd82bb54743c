"""The dashboard's page left open in a real Chromium: what it costs, and whether it grows.

A gateway and a fake engine; 64 sessions, of which so many speak that about 200 turns a minute come,
and of the silent ones one is replaced every few seconds. The page goes from screen to screen, and
back to the sessions: there the heap is collected and sampled, so that like is compared with like.
The lines through the samples are of the second half. The page fills its ring of turns in ten
minutes, and what it keeps an hour of (half a MB; `web-demo/dashboard/data`) in an hour; the gateway
fills the conversations of those who speak all the time.

Keys: minutes, sessions, turns_per_minute, cpu_share (of a core, of all the browser's processes, by
screen), task_ms_per_s (of the page's thread, by screen), heap_bytes and dom_nodes (the first, the
middle and the last sample), heap_growth_bytes_per_hour and nodes_growth_per_hour (straight lines
through the second half), listeners, renderer_rss_bytes, rss_bytes and rss_growth_bytes_per_hour
(the gateway's), samples, complaints (what the console said).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import psutil
from playwright.async_api import CDPSession, ConsoleMessage, Page, async_playwright
from websockets.asyncio.client import ClientConnection, connect

from headstart.benchmarks import report
from headstart.benchmarks.gateway.capacity import GatewayProcess, running_gateway
from headstart.benchmarks.gateway.dashboard import SESSIONS, socket_url, speaking_sessions

SCREENS = (
    "percentiles",
    "turn",
    "keeping-up",
    "engine",
    "kv",
    "rtc",
    "errors",
    "compare",
    "sessions",
)
"""In the order of a round; the last is where samples are taken."""
SETTLE_S = 3.0
REPLACED_EVERY_S = 5.0
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-background-networking", "--disable-sync", "--no-first-run")
WIDTH, HEIGHT = 1440, 1000
MIB = 1 << 20


class NoBrowserError(RuntimeError):
    """There is no Chromium."""


def run(minutes: float, dwell_s: float, *, as_json: bool) -> None:
    """Measure and report."""
    report.finish("dashboard-page", asyncio.run(_run(minutes, dwell_s)), as_json=as_json)


@dataclass(frozen=True)
class _Sample:
    """On the screen of sessions, after a collection."""

    at_h: float
    heap_bytes: int
    nodes: int
    listeners: int
    renderer_rss_bytes: int
    rss_bytes: int


async def _run(minutes: float, dwell_s: float) -> dict[str, Any]:
    speaking = speaking_sessions()
    async with (
        running_gateway() as server,
        server.clients("ws") as clients,
        _coming_and_going(server.url, SESSIONS - speaking),
        _browser() as (page, cdp, complaints),
    ):
        await clients.ask(f"add {speaking}")
        await page.goto(f"{server.url}/dashboard/")
        await page.wait_for_selector("body[data-feed=live]")
        before, began_s = (await clients.ask("report"))["answers"], time.monotonic()
        visits = _Visits(server, page, cdp, dwell_s)
        samples: list[_Sample] = []
        while (passed_s := time.monotonic() - began_s) < 60 * minutes or len(samples) < 2:
            await visits.round()
            samples.append(await visits.sample(passed_s / 3600))
            report.say(
                f"{passed_s / 60:.0f} min: heap {samples[-1].heap_bytes / MIB:.2f} MiB, "
                f"{samples[-1].nodes} nodes, gateway {samples[-1].rss_bytes / MIB:.1f} MiB"
            )
        took_min = (time.monotonic() - began_s) / 60
        turns = (await clients.ask("report"))["answers"] - before
    return {
        "minutes": round(took_min, 1),
        "sessions": SESSIONS,
        "turns_per_minute": round(turns / took_min, 1),
        **visits.costs(),
        **_growth(samples),
        "complaints": complaints,
    }


def _growth(samples: list[_Sample]) -> dict[str, Any]:
    late = samples[len(samples) // 2 :] if len(samples) > 3 else samples
    hours = [sample.at_h for sample in late]

    def each(name: str) -> list[int]:
        return [getattr(samples[i], name) for i in (0, len(samples) // 2, -1)]

    def slope(name: str) -> int:
        of = [getattr(sample, name) for sample in late]
        return round(statistics.linear_regression(hours, of).slope)

    return {
        "heap_bytes": each("heap_bytes"),
        "heap_growth_bytes_per_hour": slope("heap_bytes"),
        "dom_nodes": each("nodes"),
        "nodes_growth_per_hour": slope("nodes"),
        "listeners": each("listeners"),
        "renderer_rss_bytes": each("renderer_rss_bytes"),
        "rss_bytes": each("rss_bytes"),
        "rss_growth_bytes_per_hour": slope("rss_bytes"),
        "samples": len(samples),
    }


class _Visits:
    """The page's way through its screens, and what each takes."""

    def __init__(self, server: GatewayProcess, page: Page, cdp: CDPSession, dwell_s: float) -> None:
        self._server, self._page, self._cdp, self._dwell_s = server, page, cdp, dwell_s
        self._shares: dict[str, list[float]] = {screen: [] for screen in SCREENS}
        self._tasks: dict[str, list[float]] = {screen: [] for screen in SCREENS}

    async def round(self) -> None:
        for screen in SCREENS:
            await self._page.evaluate("screen => { location.hash = `screen=${screen}`; }", screen)
            await asyncio.sleep(SETTLE_S)
            before = await self._spent()
            await asyncio.sleep(self._dwell_s)
            after = await self._spent()
            cpu_s, task_s, passed_s = (b - a for a, b in zip(before, after, strict=True))
            self._shares[screen].append(cpu_s / passed_s)
            self._tasks[screen].append(1000 * task_s / passed_s)

    async def _spent(self) -> tuple[float, float, float]:
        """Processor time of the browser, time of the page's tasks, the clock: seconds."""
        metrics = await self._metrics()
        cpu_s = 0.0
        for process in _processes(os.getpid(), "chrom"):
            with contextlib.suppress(psutil.NoSuchProcess):
                cpu_s += sum(process.cpu_times()[:2])
        return cpu_s, metrics["TaskDuration"], time.monotonic()

    async def _metrics(self) -> dict[str, float]:
        said = await self._cdp.send("Performance.getMetrics")
        return {metric["name"]: metric["value"] for metric in said["metrics"]}

    async def sample(self, at_h: float) -> _Sample:
        await self._cdp.send("HeapProfiler.collectGarbage")
        usage = await self._cdp.send("Runtime.getHeapUsage")
        metrics = await self._metrics()
        browser = _processes(os.getpid(), "chrom")
        renderers = [process for process in browser if "--type=renderer" in process.cmdline()]
        return _Sample(
            at_h=at_h,
            heap_bytes=round(usage["usedSize"]),
            nodes=round(metrics["Nodes"]),
            listeners=round(metrics["JSEventListeners"]),
            renderer_rss_bytes=max(p.memory_info().rss for p in renderers),
            rss_bytes=self._server.process.memory_info().rss,
        )

    def costs(self) -> dict[str, Any]:
        return {
            "cpu_share": {name: round(statistics.median(s), 4) for name, s in self._shares.items()},
            "task_ms_per_s": {
                name: round(statistics.median(s), 2) for name, s in self._tasks.items()
            },
        }


def _processes(parent: int, name: str) -> list[psutil.Process]:
    return [p for p in psutil.Process(parent).children(recursive=True) if name in p.name()]


@contextlib.asynccontextmanager
async def _browser() -> AsyncIterator[tuple[Page, CDPSession, list[str]]]:
    """One page, its debugger, and what its console complains about. Raises NoBrowserError."""
    named = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)
    if named is None:
        raise NoBrowserError("there is no Chromium: install it (Debian: apt-get install chromium)")
    complaints: list[str] = []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=named, args=list(FLAGS))
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})

        def note(said: ConsoleMessage) -> None:
            if said.type in ("error", "warning"):
                complaints.append(said.text)

        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        cdp = await page.context.new_cdp_session(page)
        await cdp.send("Performance.enable")
        try:
            yield page, cdp, complaints
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def _coming_and_going(url: str, number: int) -> AsyncIterator[None]:
    """Sessions in which nobody says anything; the oldest is replaced again and again."""

    async def open_one() -> ClientConnection:
        return await connect(socket_url(url, "/v1/realtime"))

    sockets = [await open_one() for _ in range(number)]

    async def replace() -> None:
        while True:
            await asyncio.sleep(REPLACED_EVERY_S)
            await sockets.pop(0).close()
            sockets.append(await open_one())

    replacing = asyncio.create_task(replace())
    try:
        yield
        if replacing.done():
            replacing.result()
    finally:
        replacing.cancel()
        await asyncio.gather(replacing, return_exceptions=True)
        for socket in sockets:
            await socket.close()
