"""Start of a real server with weights on disk: until it is ready, and what memory it takes then.

`headstart serve` is started again and again in fresh processes, in turns with packed weights from
disk and with weights packed anew (`packed_cache_mib` 0). It is ready when its engine takes sessions
and its voice is loaded; then one client asks a question by voice several times, so that a first
turn that pays for what the start left out shows (`first_turn_ratio`). A cold start is one whose
weights the system has dropped from its page cache; that other processes use the libraries is not
changed.

Keys: ratio (ready with weights packed anew ÷ with packed weights), ready_s_p50, ready_s_all (of
each start), packed_anew_ready_s_p50, cold_ready_s, stages_s (p50 of each, since the start:
`listening`, the gateway accepts connections; `engine` and `voice`, they are ready; and what the
engine's own stages took, some of them at once), cpu_s and packed_anew_cpu_s (p50 of CPU seconds
until ready, by process), packed_anew_engine_mb, first_turn_ms_p50 and later_turn_ms_p50 (last
speech sample received to first token sent), first_turn_ratio, memory_mb (RSS, PSS and USS of each
process when it is ready, of the engine after the turns), engine_session_kb, gateway_session_kb (USS
of each more session, which has had one turn), model, starts.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from websockets.asyncio.client import ClientConnection, connect

from headstart.benchmarks import report
from headstart.benchmarks.harness.packets import PACKET_BYTES, PACKET_MS, clip_packets
from headstart.benchmarks.server.live import session_settings
from headstart.engine.weights.store import home
from headstart.talk.connection.address import realtime_url
from headstart.talk.local_server import Status, local_server, until_ready

TURNS = 3
MORE_SESSIONS = 4
QUESTION = "capital.wav"
TURN_TIMEOUT_S = 120.0
POLL_S = 0.02
PACKED_ANEW = {"HEADSTART_PACKED_CACHE_MIB": "0"}
KINDS = ("rss", "pss", "uss")

_MODULES = {
    "headstart.engine": "engine",
    "headstart": "gateway",
    "headstart.gateway.tts.worker": "voice",
    "headstart.gateway.video.decode_worker": "decoders",
}

Memory = dict[str, dict[str, float]]  # MB by kind, by process


@dataclass
class Start:
    """What one start took."""

    ready_s: float
    stages_s: dict[str, float]
    cpu_s: dict[str, float]
    memory_mb: Memory
    turns_ms: list[float] = field(default_factory=list)
    memory_after_mb: Memory = field(default_factory=dict)
    session_kb: dict[str, float] = field(default_factory=dict)


def run(model: str, starts: int, *, cold: bool, as_json: bool) -> None:
    """Measure and report."""
    result = asyncio.run(_run(model, starts, cold=cold))
    report.finish("start", result, as_json=as_json)


async def _run(model: str, starts: int, *, cold: bool) -> dict[str, Any]:
    report.say(f"once before, so that {model} is fetched and its packed weights are written")
    await _start(model, turns=0)
    warm, without = [], []
    for number in range(starts):
        warm.append(await _start(model, turns=TURNS, sessions=number == starts - 1))
        report.say(f"start {number + 1} of {starts}: ready after {warm[-1].ready_s:.2f} s")
        without.append(await _start(model, PACKED_ANEW, turns=0))
        report.say(f"  packed anew: {without[-1].ready_s:.2f} s")
    cold_start = None
    if cold:
        _drop_from_page_cache(home())
        cold_start = await _start(model, turns=0)
    return summary(model, warm, without, cold_start)


def summary(
    model: str, warm: Sequence[Start], anew: Sequence[Start], cold: Start | None
) -> dict[str, Any]:
    """The result's keys. The last of `warm` has had more sessions."""
    ready_s = statistics.median(start.ready_s for start in warm)
    anew_s = statistics.median(start.ready_s for start in anew)
    first = statistics.median(start.turns_ms[0] for start in warm)
    later = statistics.median(ms for start in warm for ms in start.turns_ms[1:])
    last = warm[-1]
    return {
        "ratio": round(anew_s / ready_s, 2),
        "ready_s_p50": round(ready_s, 2),
        "ready_s_all": [round(start.ready_s, 2) for start in warm],
        "packed_anew_ready_s_p50": round(anew_s, 2),
        "cold_ready_s": None if cold is None else round(cold.ready_s, 2),
        "stages_s": _medians([start.stages_s for start in warm]),
        "cpu_s": _medians([start.cpu_s for start in warm]),
        "packed_anew_cpu_s": _medians([start.cpu_s for start in anew]),
        "first_turn_ratio": round(first / later, 2),
        "first_turn_ms_p50": round(first, 1),
        "later_turn_ms_p50": round(later, 1),
        "memory_mb": last.memory_mb | {"engine after turns": last.memory_after_mb["engine"]},
        "packed_anew_engine_mb": anew[-1].memory_mb["engine"],
        **{f"{process}_session_kb": kb for process, kb in last.session_kb.items()},
        "model": model,
        "starts": len(warm),
    }


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: round(statistics.median(row[name] for row in rows if name in row), 3)
        for name in names
    }


async def _start(
    model: str,
    environment: Mapping[str, str] | None = None,
    *,
    turns: int,
    sessions: bool = False,
) -> Start:
    """Start a server, wait until it is ready, and speak to it."""
    began_s = time.monotonic()
    async with local_server(["--model", model], environment=environment) as server:
        stages_s = {"listening": time.monotonic() - began_s}

        def note(status: Status) -> None:
            if status["engine"]["state"] == "ready":
                stages_s.setdefault("engine", time.monotonic() - began_s)
            if status.get("voice", {}).get("state") != "loading":
                stages_s.setdefault("voice", time.monotonic() - began_s)

        status = await until_ready(server.url, note, server.check, speak=True, poll_s=POLL_S)
        assert status is not None
        ready_s = time.monotonic() - began_s
        processes = server_processes(server.pid)
        cpu_s = {name: _cpu_s(each) for name, each in processes.items()}
        stages_s |= {f"engine: {k}": s for k, s in _stages(status).items()}
        start = Start(ready_s, stages_s, cpu_s, _memory(processes))
        url = realtime_url(server.url, status["model"]["name"])
        async with contextlib.AsyncExitStack() as open_sessions:
            if turns:
                client = await open_sessions.enter_async_context(_Client.connected(url))
                start.turns_ms = [await client.turn() for _ in range(turns)]
                start.memory_after_mb = _memory(processes)
            if sessions:
                before = _memory(processes)
                for _ in range(MORE_SESSIONS):
                    more = await open_sessions.enter_async_context(_Client.connected(url))
                    await more.turn()
                after = _memory(processes)
                start.session_kb = {
                    name: round(
                        (after[name]["uss"] - before[name]["uss"]) * 1000 / MORE_SESSIONS, 1
                    )
                    for name in ("engine", "gateway")
                }
        return start


def _stages(status: Status) -> dict[str, float]:
    stages: dict[str, float] | None = status["model"].get("load_stages_s")
    return stages or {}


def server_processes(pid: int) -> dict[str, list[psutil.Process]]:
    """The server's processes by what they are: gateway, engine, voice, decoders."""
    found: dict[str, list[psutil.Process]] = {}
    server = psutil.Process(pid)
    for process in (server, *server.children(recursive=True)):
        found.setdefault(process_kind(process.cmdline()), []).append(process)
    return found


def process_kind(argv: Sequence[str]) -> str:
    """What a process is, by its command line."""
    module = argv[argv.index("-m") + 1] if "-m" in argv[:-1] else ""
    return _MODULES.get(module, "other")


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return float(sum(t.user + t.system for t in times))


def _memory(processes: Mapping[str, Sequence[psutil.Process]]) -> Memory:
    memory = {}
    for name, each in processes.items():
        infos = [process.memory_full_info() for process in each]
        memory[name] = {
            kind: round(sum(getattr(info, kind) for info in infos) / 1e6, 1) for kind in KINDS
        }
    return memory


def _drop_from_page_cache(folder: Path) -> None:
    """Have the system forget the pages of all files in `folder` that nobody uses."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class _Client:
    """A client that asks one question by voice, in real time, as often as it is told to."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._packets = clip_packets(QUESTION)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, url: str) -> AsyncIterator[_Client]:
        headers = {"Authorization": "Bearer none-needed"}
        async with connect(url, additional_headers=headers, compression=None) as socket:
            await socket.send(json.dumps({"type": "session.update", "session": session_settings()}))
            yield cls(socket)

    async def turn(self) -> float:
        """Ask, and wait for the end of the answer. Returns the ms from the last sample of speech
        received to the first token sent. Raises `TimeoutError`."""
        speaking = asyncio.create_task(self._speak())
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                return await self._answered()
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)

    async def _answered(self) -> float:
        took_ms = None
        done = False
        while took_ms is None or not done:
            event = json.loads(await self._socket.recv())
            if event["type"] == "gateway.latency.report":
                took_ms = float(event["budget"]["total_ms"])
            done = done or event["type"] == "response.done"
        return took_ms

    async def _speak(self) -> None:
        """The question, then silence until cancelled."""
        due_s = time.monotonic()
        silence = itertools.repeat(bytes(PACKET_BYTES))
        for packet in itertools.chain(self._packets, silence):
            due_s += PACKET_MS / 1000
            await asyncio.sleep(max(due_s - time.monotonic(), 0))
            audio = base64.b64encode(packet).decode()
            await self._socket.send(
                json.dumps({"type": "input_audio_buffer.append", "audio": audio})
            )
