"""People who converse through the real server in real time: they speak, listen, think, are away.

`headstart serve` runs with its defaults, gateway, engine and voice on the cores that the clients
use too. Each of N clients is a WebSocket session of a `Person`: packaged voices ask different
questions, each answer is listened to until its sound is over, as by a client that plays as it gets,
or is interrupted; some people are muted for a while, some type, some show a picture. N may be
several numbers: each has a server of its own, and the rows are a curve.

Keys: rows, one for each number of sessions: sessions, turns (taken while it was measured), answered
(with sound), first_token_ms_p50/p95/p99 and first_sound_ms_p50/p95/p99 (spoken turns: last packet
of speech sent until the first text, the first sound came, the silence that ends a turn included),
sound_within_1s_share, typed_first_token_ms_p50/p95, chunks, chunk_ms_p50/p99, late_share (of chunks
that took longer than they last), words_lag_ms_p50/p95 (age of the newest sound that an arriving
hypothesis covers), gap_share (answers whose sound stood still for 100 ms or more in all),
gap_ms_p95, unheard_share (of the sound that came: not played, since it was interrupted),
barge_in_ms_p50 (first packet of speech until the answer was stopped), false_ends, refused and
errors by code, failures by code, doing (shares of time by what people did), stages_ms (means by
stage from last speech sample to first sound), cpu (cores in use by process), kv (of `/status`),
clients_late_ms_max; model, seconds, warm_up_s, seed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import uvloop

from headstart.benchmarks import report
from headstart.benchmarks.server.conversing import Asked, Person, Tally
from headstart.benchmarks.server.room import Room
from headstart.benchmarks.server.spoken_turns import SpokenTurns, load
from headstart.benchmarks.server.start import process_kind
from headstart.benchmarks.soak.sounds import cat
from headstart.talk.local_server import fetch_status, local_server, until_ready

DRAIN_S = 6.0
GAP_S = 0.1
PROMPT_S = 1.0


def run(
    model: str,
    sessions: Sequence[int],
    seconds: float,
    warm_up_s: float,
    seed: int,
    folder: Path,
    server: Sequence[str] = (),
    *,
    as_json: bool,
) -> None:
    """Measure and report. `server`: further arguments of `headstart serve`; `folder`: where spoken
    sentences are kept. Raises `VoiceUnavailable` without the extra 'voice'."""
    turns = load(folder, report.say)
    rows = []
    for number in sessions:
        rows.append(
            uvloop.run(_measure(model, number, seconds, warm_up_s, seed, turns, list(server)))
        )
        report.say(_line(rows[-1]))
    result = {"rows": rows, "model": model, "seconds": seconds, "warm_up_s": warm_up_s}
    report.finish("conversations", result | {"seed": seed}, as_json=as_json)


async def _measure(
    model: str,
    sessions: int,
    seconds: float,
    warm_up_s: float,
    seed: int,
    turns: Sequence[SpokenTurns],
    server: list[str],
) -> dict[str, Any]:
    tally, picture = Tally(), cat()
    async with local_server(["--model", model, *server]) as running:
        await until_ready(running.url, lambda _: None, running.check, speak=True)
        report.say(f"{sessions} people for {warm_up_s:g} s + {seconds:g} s")
        people = [
            Person(number, seed, turns[number % len(turns)], tally, picture)
            for number in range(sessions)
        ]
        room = Room(running.url, model, people, tally, spread_s=warm_up_s / 2)
        talking = asyncio.create_task(room.talk())
        await _pass(warm_up_s, talking)
        tally.counting, before = True, CpuSeconds.now(running.pid)
        room.late_ms_max = 0.0
        await _pass(seconds, talking)
        tally.counting, cpu = False, CpuSeconds.now(running.pid).cores_since(before)
        late_ms = room.late_ms_max
        await _pass(DRAIN_S, talking)
        status = await asyncio.to_thread(fetch_status, running.url)
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
    memory = ((status or {}).get("engine") or {}).get("memory")
    return {
        "sessions": sessions,
        **numbers(tally),
        "cpu": cpu,
        "kv": memory,
        "clients_late_ms_max": round(late_ms, 1),
    }


async def _pass(seconds: float, talking: asyncio.Task[None]) -> None:
    """Let that time pass; if the clients fail, raise why."""
    done, _ = await asyncio.wait([talking], timeout=seconds)
    for task in done:
        task.result()


def numbers(tally: Tally) -> dict[str, Any]:
    """A row's figures, but for those of the machine."""
    counted = [asked for asked in tally.asked if asked.counts]
    spoken = [asked for asked in counted if asked.kind == "spoken"]
    typed = [asked for asked in counted if asked.kind != "spoken"]
    answers = [asked.answer for asked in counted if asked.answer is not None]
    heard = [answer for answer in answers if answer.first_sound_s is not None]
    sounds = _waits_ms(spoken, "first_sound_s")
    late = [chunk for chunk in tally.chunks if chunk["latency_ms"] > chunk["due_ms"]]
    chunk_ms = [chunk["latency_ms"] for chunk in tally.chunks]
    stops = [asked.stop_s * 1000 for asked in counted if asked.stop_s is not None]
    made_s = sum(answer.sound_s for answer in heard)
    return {
        "turns": len(counted),
        "answered": len(heard),
        **_percentiles("first_token_ms", _waits_ms(spoken, "first_text_s"), 50, 95, 99),
        **_percentiles("first_sound_ms", sounds, 50, 95, 99),
        "sound_within_1s_share": _share(sum(ms <= PROMPT_S * 1000 for ms in sounds), len(spoken)),
        **_percentiles("typed_first_token_ms", _waits_ms(typed, "first_text_s"), 50, 95),
        "chunks": len(tally.chunks),
        **_percentiles("chunk_ms", chunk_ms, 50, 99),
        "late_share": _share(len(late), len(tally.chunks)),
        **_percentiles("words_lag_ms", tally.lags_ms, 50, 95),
        "gap_share": _share(sum(answer.gap_s >= GAP_S for answer in heard), len(heard)),
        **_percentiles("gap_ms", [answer.gap_s * 1000 for answer in heard], 95),
        "unheard_share": _share(sum(answer.unheard_s for answer in heard), made_s),
        **_percentiles("barge_in_ms", stops, 50),
        "false_ends": tally.false_ends,
        "refused": dict(tally.refused),
        "errors": dict(tally.errors),
        "failures": dict(Counter(answer.failure for answer in answers if answer.failure)),
        "doing": {
            doing: _share(count, tally.packets.total()) for doing, count in tally.packets.items()
        },
        "stages_ms": _stages(tally, spoken),
    }


def _waits_ms(asked: Sequence[Asked], until: str) -> list[float]:
    ends = [
        (each.asked_s, getattr(each.answer, until)) for each in asked if each.answer is not None
    ]
    return [(end_s - asked_s) * 1000 for asked_s, end_s in ends if end_s is not None]


def _percentiles(name: str, values: Sequence[float], *percents: int) -> dict[str, float | None]:
    return {
        f"{name}_p{percent}": round(report.percentile(values, percent), 1) if values else None
        for percent in percents
    }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _stages(tally: Tally, spoken: Sequence[Asked]) -> dict[str, float]:
    """Means of the stages in the server's own reports on these turns."""
    ids = [asked.answer.response_id for asked in spoken if asked.answer is not None]
    found = [_stages_of(tally.reports[name]) for name in ids if name in tally.reports]
    names = dict.fromkeys(name for stages in found for name in stages)
    means = {name: statistics.mean(stages.get(name) or 0.0 for stages in found) for name in names}
    return {name: round(mean, 1) for name, mean in means.items() if mean >= 0.05}


def _stages_of(turn: dict[str, Any]) -> dict[str, float | None]:
    """Those of the budget; `voice` in two, up to the first clause and from there."""
    stages, voice = dict(turn["budget"]["stages_ms"]), turn["voice"] or {}
    stages.pop("voice", None)
    clause, sound = voice.get("first_clause_ms"), voice.get("first_sound_ms")
    return stages | {"first_clause": clause, "clause_to_sound": sound}


class CpuSeconds:
    """Processor time of the server's processes and of this one, at an instant."""

    def __init__(self, at_s: float, spent_s: dict[str, float]) -> None:
        self._at_s, self._spent_s = at_s, spent_s

    @classmethod
    def now(cls, server_pid: int) -> CpuSeconds:
        spent_s = {"clients": _spent_s(psutil.Process())}
        server = psutil.Process(server_pid)
        for process in (server, *server.children(recursive=True)):
            kind = process_kind(process.cmdline())
            spent_s[kind] = spent_s.get(kind, 0.0) + _spent_s(process)
        return cls(time.monotonic(), spent_s)

    def cores_since(self, before: CpuSeconds) -> dict[str, float]:
        """Cores in use on the average."""
        took_s = self._at_s - before._at_s
        return {
            name: round((spent_s - before._spent_s.get(name, 0.0)) / took_s, 3)
            for name, spent_s in self._spent_s.items()
        }


def _spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _line(row: dict[str, Any]) -> str:
    """A row for people, while the others are still to come."""
    return (
        f"{row['sessions']:>4} people: first token {row['first_token_ms_p50']}, "
        f"{row['first_token_ms_p95']} ms (p50, p95), first sound {row['first_sound_ms_p50']}, "
        f"{row['first_sound_ms_p95']} ms, {row['late_share']} of {row['chunks']} chunks late, "
        f"gaps in {row['gap_share']} of {row['answered']} answers, "
        f"refused {sum(row['refused'].values())}, cores {row['cpu']}"
    )
