"""Number of sessions that one core of the gateway sustains, and the effect of one that misbehaves.

The gateway has a core to itself. A fake engine with scripted timings and the clients, in processes
of their own, use the other cores. Clients are added until the event loop's p99 lag exceeds 20 ms or
a session is lost; the last step before that counts. Then, with a third of that many sessions, one
more session floods. Lag is how late a timer runs; "own" is the part of it in which the gateway was
computing, which is all of it on an idle machine.

Keys: ws_sessions_per_core, webrtc_sessions_per_core, lag_ms_p50, lag_ms_p99 and own_lag_ms_p99 (of
the WebSocket step that counts), bytes_per_session (WebSocket: by how much resident memory grew, by
sessions), cpu_ms_per_session_s, rows (each step: kind, sessions, lags, cpu, rss_bytes, lost, errors
and answers, clients_late_ms_max), floods (each: kind, the others' lags in it, flooded), packet_ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from headstart.benchmarks import report
from headstart.benchmarks.gateway.floods import FLOODS
from headstart.benchmarks.harness.packets import PACKET_MS
from headstart.gateway.runtime.child_process import die_with_parent, wait_or_kill
from headstart.gateway.telemetry.loop_lag import WINDOW_S

LAG_MS_MAX = 20.0
SETTLE_S = 3.0
ROW_WAIT_S = WINDOW_S + 1.0
STEPS = {"ws": 50, "webrtc": 8}
FLOOD_SHARE = 3
STOP_WAIT_S = 10.0


def run(kinds: list[str], most: int, *, floods: bool, as_json: bool) -> None:
    """Measure and report."""
    result = asyncio.run(_run(kinds, most, floods))
    report.finish("gateway", result, as_json=as_json)


async def _run(kinds: list[str], most: int, floods: bool) -> dict[str, Any]:
    if len(os.sched_getaffinity(0)) == 1:
        report.say("there is only one core: clients and engine share it with the gateway")
    result: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for kind in kinds:
        async with running_gateway() as server:
            steps = await _ramp(server, kind, most)
            rows += steps
            result |= _numbers(kind, steps)
    flooded = []
    if floods:
        sessions = max(STEPS["ws"], result.get("ws_sessions_per_core", 0) // FLOOD_SHARE)
        async with running_gateway() as server, server.clients("ws") as clients:
            await clients.ask(f"add {sessions}")
            for name in FLOODS:
                flooded.append(await _flood(server, clients, name))
    return {**result, "rows": rows, "floods": flooded, "packet_ms": PACKET_MS}


def _numbers(kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows[1:] if _is_good(row)]
    best = good[-1] if good else rows[0]
    numbers: dict[str, Any] = {f"{kind}_sessions_per_core": best["sessions"] if good else 0}
    if kind == "ws":
        grown = best["rss_bytes"] - rows[0]["rss_bytes"]
        numbers |= {
            "lag_ms_p50": best["lag_p50_ms"],
            "own_lag_ms_p99": best["lag_own_p99_ms"],
            "lag_ms_p99": best["lag_p99_ms"],
            "bytes_per_session": round(grown / max(best["sessions"], 1)),
            "cpu_ms_per_session_s": round(1000 * best["cpu"] / max(best["sessions"], 1), 2),
        }
    return numbers


def _is_good(row: dict[str, Any]) -> bool:
    well = row["answers"] > 0 and not row["lost"] and not row["errors"]
    return bool(well and row["lag_own_p99_ms"] <= LAG_MS_MAX)


async def _ramp(server: GatewayProcess, kind: str, most: int) -> list[dict[str, Any]]:
    rows = [await server.row(kind, None)]
    async with server.clients(kind) as clients:
        for _ in range(0, most, STEPS[kind]):
            await clients.ask(f"add {STEPS[kind]}")
            await asyncio.sleep(SETTLE_S)
            rows.append(await server.row(kind, clients))
            report.say(json.dumps(rows[-1]))
            if not _is_good(rows[-1]):
                break
    return rows


async def _flood(server: GatewayProcess, clients: _Clients, name: str) -> dict[str, Any]:
    before = await clients.ask("report")
    flooder = server.clients("flood")
    async with flooder as flooding:
        await flooding.ask(f"flood {name}")
        await asyncio.sleep(1.0)
        row = await server.row(name, clients)
        said = await clients.ask("report")
        calm = await flooding.ask("calm")
    row["lost"] = said["lost"] - before["lost"]
    row["errors"] -= before["errors"]
    row["flooded"] = calm.get("flooded")
    report.say(json.dumps(row))
    return row


class GatewayProcess:
    """A gateway and a fake engine, each on cores of its own."""

    def __init__(self, url: str, gateway: psutil.Process, cores: set[int]) -> None:
        self.url = url
        self.process = gateway
        self._cores = cores

    async def row(self, kind: str, clients: _Clients | None) -> dict[str, Any]:
        """One measurement over the lag monitor's window."""
        before_s = sum(self.process.cpu_times()[:2])
        said = await clients.ask("report") if clients is not None else {"sessions": 0}
        answers = said.get("answers", 0)
        await asyncio.sleep(ROW_WAIT_S)
        cpu = (sum(self.process.cpu_times()[:2]) - before_s) / ROW_WAIT_S
        async with httpx.AsyncClient(timeout=30) as http:
            status = (await http.get(f"{self.url}/status")).json()
        if clients is not None:
            said = await clients.ask("report")
        return {
            "kind": kind,
            **{f"lag_{key}": value for key, value in status["loop_lag"].items()},
            "cpu": round(cpu, 3),
            "rss_bytes": self.process.memory_info().rss,
            **said,
            "answers": said.get("answers", 0) - answers,
            "lost": said["sessions"] - status["sessions"]["now"],
            "errors": said.get("errors", 0),
        }

    @contextlib.asynccontextmanager
    async def clients(self, kind: str) -> AsyncIterator[_Clients]:
        process = await _start(
            ["-m", "headstart.benchmarks.gateway.clients", kind, self.url], self._cores, pipe=True
        )
        try:
            yield _Clients(process)
        finally:
            process.kill()
            await process.wait()


class _Clients:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, line: str) -> dict[str, Any]:
        """Send one command; returns its answer. Raises `RuntimeError` if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the clients' process ended at {line!r}")
        said: dict[str, Any] = json.loads(answer)
        return said


@contextlib.asynccontextmanager
async def running_gateway() -> AsyncIterator[GatewayProcess]:
    """A gateway on a core of its own; its engine and clients have the others, if there are any."""
    cores = sorted(os.sched_getaffinity(0))
    core, others = {cores[0]}, set(cores[1:]) or set(cores)
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        endpoint = f"ipc://{Path(folder) / 'engine'}"
        argv = [
            "-m",
            "headstart",
            "web",
            "--engine-endpoint",
            endpoint,
            "--port",
            "0",
            "--announce",
        ]
        for setting in ("max_sessions=5000", "voice=none", "log_level=error"):
            argv += ["--set", setting]
        gateway = await _start(argv, core, pipe=True)
        engine = await _start(
            ["-m", "headstart.gateway.fake_engine", "--endpoint", endpoint], others
        )
        try:
            assert gateway.stdout is not None
            url = json.loads(await gateway.stdout.readline())["url"]
            async with httpx.AsyncClient() as http:
                while (await http.get(f"{url}/healthz")).status_code != 200:
                    await asyncio.sleep(0.1)
            yield GatewayProcess(url, psutil.Process(gateway.pid), others)
        finally:
            for process in (gateway, engine):
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            for process in (gateway, engine):
                await wait_or_kill(process, STOP_WAIT_S)


async def _start(
    argv: list[str], cores: set[int], *, pipe: bool = False
) -> asyncio.subprocess.Process:
    wanted = asyncio.subprocess.PIPE if pipe else asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *die_with_parent([sys.executable, *argv]),
        stdin=wanted,
        stdout=wanted,
        limit=1 << 20,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
