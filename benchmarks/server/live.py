"""Several concurrent speakers who never pause, through the real server in real time.

`headstart serve` runs as usual, with a gateway and an engine process. Each of N clients is a
WebSocket connection that plays recorded speech in real time: 15 s of it, then a question, then
silence until the answer is over (`PAUSE_S`), and again. The sessions' turns are spread evenly, so
that they do not all end at once.

Keys: chunk_ms_p50/p95/p99 (from a chunk's last sample received until its words are in the KV
cache), chunk_ms_budget (a chunk's own length), deadlines_missed (chunks over it) of chunks,
ttft_ms_p50/p95 (last speech sample received to first token sent, with the endpointing wait), turns,
answered, late_s_max (the longest delay of any session), words_lag_ms_p50/p95 (age of the newest
audio that an arriving hypothesis covers), stages_ms (means by stage of a chunk),
engine_cpu, gateway_cpu, clients_cpu (cores in use), sessions, seconds, warm_up_s, model.
"""

from __future__ import annotations

import asyncio
import base64
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
from websockets.asyncio.client import ClientConnection, connect

from headstart.benchmarks import report
from headstart.benchmarks.harness.packets import PACKET_BYTES, PACKET_MS, clip_packets
from headstart.talk.connection.address import realtime_url
from headstart.talk.local_server import local_server, until_ready

SPEECH_S = 15.0
PAUSE_S = (1.5, 4.0)  # minimum, and maximum even if the answer is not over
MAX_ANSWER_TOKENS = 48
INSTRUCTIONS = "You are a friendly assistant. Answer in one or two short sentences."
QUESTIONS = ("capital.wav", "followup.wav")
EVENTS = ["latency", "chunks", "hearing"]


@dataclass
class Tally:
    """Measurements of all sessions since the end of the warm-up."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    ttft_ms: list[float] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)
    turns: int = 0
    failures: list[str] = field(default_factory=list)
    counting: bool = False


def run(model: str, sessions: int, seconds: float, warm_up_s: float, *, as_json: bool) -> None:
    """Measure and report."""
    result = asyncio.run(_run(model, sessions, seconds, warm_up_s))
    report.finish("live", result, as_json=as_json)


async def _run(model: str, sessions: int, seconds: float, warm_up_s: float) -> dict[str, Any]:
    tally = Tally()
    async with local_server(["--model", model]) as server:
        report.say(f"starting a server with {model}")
        await until_ready(server.url, lambda _: None, server.check)
        report.say(f"{sessions} sessions for {warm_up_s:g} s + {seconds:g} s")
        url = realtime_url(server.url, model)
        people = [Person(number, sessions, url, tally) for number in range(sessions)]
        tasks = [asyncio.create_task(person.conversation()) for person in people]
        await _pass(warm_up_s, tasks)
        tally.counting = True
        meter = CpuMeter()
        await _pass(seconds, tasks)
        tally.counting = False
        cpu = meter.cores()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "model": model,
        "sessions": sessions,
        "seconds": seconds,
        "warm_up_s": warm_up_s,
        **_numbers(tally),
        **cpu,
    }


async def _pass(seconds: float, tasks: list[asyncio.Task[None]]) -> None:
    """Let that time pass; a session that fails ends it and raises its error."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


def _numbers(tally: Tally) -> dict[str, Any]:
    latencies = [chunk["latency_ms"] for chunk in tally.chunks]
    missed = [chunk for chunk in tally.chunks if chunk["latency_ms"] > chunk["due_ms"]]
    stages = sorted({stage for chunk in tally.chunks for stage in chunk["stages_ms"]})
    return {
        "chunk_ms_p99": _at(latencies, 99),
        "chunk_ms_budget": max((c["duration_ms"] for c in tally.chunks), default=None),
        "deadlines_missed": len(missed),
        "ttft_ms_p95": _at(tally.ttft_ms, 95),
        "chunks": len(tally.chunks),
        "chunk_ms_p50": _at(latencies, 50),
        "chunk_ms_p95": _at(latencies, 95),
        "ttft_ms_p50": _at(tally.ttft_ms, 50),
        "turns": tally.turns,
        "answered": len(tally.ttft_ms),
        "failures": tally.failures,
        "late_s_max": round(max(latencies, default=0.0) / 1000, 2),
        "words_lag_ms_p50": _at(tally.lags_ms, 50),
        "words_lag_ms_p95": _at(tally.lags_ms, 95),
        "stages_ms": {
            stage: round(statistics.mean(c["stages_ms"].get(stage, 0.0) for c in tally.chunks), 1)
            for stage in stages
        },
    }


def _at(values: list[float], percent: float) -> float | None:
    return round(report.percentile(values, percent), 1) if values else None


class Person:
    """One client session. `number` of `count` determines where in a turn it starts."""

    def __init__(self, number: int, count: int, url: str, tally: Tally) -> None:
        self._url, self._tally = url, tally
        self._monologue = clip_packets("monologue.ogg")
        self._questions = [clip_packets(name) for name in QUESTIONS]
        self._number = number
        self._delay_s = number / count * PACKET_MS / 1000  # spreads the packets of all sessions
        self._first_speech_s = SPEECH_S * (1 - number / count)
        self._next = number * len(self._monologue) // count
        self._settled = asyncio.Event()  # set when the answer to the last question is over
        self._sent_at_s: list[float] = []  # of each packet

    async def conversation(self) -> None:
        """Talk until cancelled. Raises whatever breaks the connection."""
        headers = {"Authorization": "Bearer none-needed"}
        async with connect(self._url, additional_headers=headers, compression=None) as socket:
            await socket.send(json.dumps({"type": "session.update", "session": session_settings()}))
            listening = asyncio.create_task(self._listen(socket))
            try:
                await self._speak(socket)
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _speak(self, socket: ClientConnection) -> None:
        began_s = time.monotonic() + self._delay_s
        speech_s = self._first_speech_s
        for turn in range(1_000_000):
            for pcm in self._words(speech_s, turn):
                await self._send(socket, pcm, began_s)
            self._tally.turns += self._tally.counting
            self._settled.clear()
            least, most = (round(s * 1000 / PACKET_MS) for s in PAUSE_S)
            for packet in range(most):
                if packet >= least and self._settled.is_set():
                    break
                await self._send(socket, bytes(PACKET_BYTES), began_s)
            speech_s = SPEECH_S

    def _words(self, speech_s: float, turn: int) -> Iterator[bytes]:
        for _ in range(round(speech_s * 1000 / PACKET_MS)):
            yield self._monologue[self._next]
            self._next = (self._next + 1) % len(self._monologue)
        yield from self._questions[(turn + self._number) % len(self._questions)]

    async def _send(self, socket: ClientConnection, pcm: bytes, began_s: float) -> None:
        due_s = began_s + (len(self._sent_at_s) + 1) * PACKET_MS / 1000
        await asyncio.sleep(max(due_s - time.monotonic(), 0))
        self._sent_at_s.append(time.monotonic())
        audio = base64.b64encode(pcm).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

    async def _listen(self, socket: ClientConnection) -> None:
        async for message in socket:
            event = json.loads(message)
            self._take(event, time.monotonic())

    def _take(self, event: dict[str, Any], now_s: float) -> None:
        tally, kind = self._tally, event["type"]
        if kind == "response.done":
            self._settled.set()
        if not tally.counting:
            return
        if kind == "gateway.chunk.report":
            tally.chunks.append(event)
        elif kind == "gateway.latency.report" and event["budget"]["anchor"] not in (
            "requested",
            None,  # its stamps contradict each other
        ):
            tally.ttft_ms.append(event["budget"]["total_ms"])
        elif kind == "gateway.hearing":
            packet = min(int(event["audio_ms"] / PACKET_MS), len(self._sent_at_s)) - 1
            tally.lags_ms.append((now_s - self._sent_at_s[max(packet, 0)]) * 1000)
        elif kind == "error" or (
            kind == "response.done" and event["response"]["status"] == "failed"
        ):
            tally.failures.append(json.dumps(event)[:300])


def session_settings() -> dict[str, Any]:
    """Of every session: the settings of its `session.update`."""
    return {
        "type": "realtime",
        "instructions": INSTRUCTIONS,
        "output_modalities": ["text"],
        "max_output_tokens": MAX_ANSWER_TOKENS,
        "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        "gateway": {"events": EVENTS},
    }


class CpuMeter:
    """Cores used by the server's processes and this one since construction."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._before = _cpu_seconds()

    def cores(self) -> dict[str, float]:
        spent_s = time.monotonic() - self._began_s
        after = _cpu_seconds()
        return {
            f"{part}_cpu": round((after[part] - self._before.get(part, 0.0)) / spent_s, 2)
            for part in after
        }


def _cpu_seconds() -> dict[str, float]:
    """CPU seconds so far of engine, gateway and clients."""
    me = psutil.Process()
    spent = {"engine": 0.0, "gateway": 0.0, "clients": _spent(me)}
    for process in me.children(recursive=True):
        argv = process.cmdline()
        module = argv[argv.index("-m") + 1] if "-m" in argv[:-1] else ""
        spent["engine" if module.startswith("headstart.engine") else "gateway"] += _spent(process)
    return spent


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
