"""`headstart bench peers`: other people's voice pipelines beside ours, with the same clips, weights
and cores, one at a time.

Every system is fed in real time by the same code and listens to one clip in a new conversation. All
times run from the moment when the packet with the clip's last sample was sent:

    first_token   to the first piece of the answer's text, as its client gets it; Pipecat sends no
                  text: there it is when its language model service passes the first piece on
    first_sound   to the first 10 ms of the answer above -45 dBFS, as a client hears it that plays
                  at once what it gets

of the last answer, in turns that are not broken. A turn is broken if the message that the last
answer is to lacks half the words of what was said before the pause, or behind it, or if there is no
answer. A false start is sound of an answer that is heard while the speaker goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jiwer

from headstart.benchmarks import report
from headstart.benchmarks.peers import ours, pipecat, settings, speech_to_speech
from headstart.benchmarks.peers.child import PeerFailed
from headstart.benchmarks.peers.clips import Clip, clips, plans
from headstart.benchmarks.peers.contention import Contention, calm
from headstart.benchmarks.peers.environments import EnvironmentFailed, Environments
from headstart.benchmarks.peers.feeding import ConversationFailed
from headstart.benchmarks.peers.score import Conversation, Score, as_line, score, summary
from headstart.benchmarks.references.offline import normaliser
from headstart.benchmarks.report import percentile

Speak = Callable[[Clip], Awaitable[Conversation]]
SYSTEMS = (*ours.TURN_DETECTION, "pipecat", speech_to_speech.NAME)
CONVERSATIONS = "conversations.jsonl"
CALM_WAIT_S = 60.0
TABLE = (
    "first_token_ms_p50",
    "first_token_ms_p95",
    "first_sound_ms_p50",
    "first_sound_ms_p95",
    "false_start_share",
    "broken_share",
    "wer",
    "right_share",
    "cpu_s_p50",
)


@dataclass
class Result:
    """What was measured of one system. `reason`: why nothing was."""

    scores: list[Score] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    others_cores: list[float] = field(default_factory=list)
    own_ms: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""

    def row(self) -> dict[str, Any]:
        if self.reason:
            return {"reason": self.reason}
        own = {
            f"own_{name}_ms_p50": round(statistics.median(values), 1)
            for name, values in self.own_ms.items()
            if values and name != "smart_turn"
        }
        others = {
            "cpu_s_p50": percentile(self.cpu_s, 50),
            "others_cores_p50": percentile(self.others_cores, 50),
            "others_cores_max": max(self.others_cores),
        }
        return {**summary(self.scores), **own, **others}


@dataclass(frozen=True)
class Options:
    """`folder`: for clips, environments and logs. `calm_cores`: wait before a clip until other
    processes use less, at most `CALM_WAIT_S`; 0: do not wait."""

    folder: Path
    systems: Sequence[str] = SYSTEMS
    clips: int = 20
    rounds: int = 1
    cores: int = settings.THREADS
    calm_cores: float = 0.0


def run(options: Options, *, as_json: bool) -> None:
    """Measure and report. Raises ValueError for more clips than there are or a system that is
    none, `VoiceUnavailable`."""
    unknown = sorted(set(options.systems) - set(SYSTEMS))
    if unknown:
        raise ValueError(f"expected some of {', '.join(SYSTEMS)}, got {', '.join(unknown)}")
    folder, count = options.folder, options.clips
    planned = plans(count)
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, available[: options.cores])
    spoken = clips(folder / "clips", planned, report.say)
    results = asyncio.run(_measure(options, spoken))
    rows = {name: result.row() for name, result in results.items()}
    report.say(table(rows))
    report.finish(
        "peers",
        {
            **ratios(rows),
            **rows,
            "model": settings.MODEL,
            "voice": settings.VOICE,
            "clips": count,
            "rounds": options.rounds,
            "cores": min(options.cores, len(available)),
            "conversations": str(folder / CONVERSATIONS),
        },
        as_json=as_json,
    )


async def _measure(options: Options, spoken: Sequence[Clip]) -> dict[str, Result]:
    """Each system in turn, as often as there are rounds."""
    results = {name: Result() for name in options.systems}
    spell = normaliser()
    with (options.folder / CONVERSATIONS).open("w") as notes:
        for number in range(options.rounds):
            for name in options.systems:
                if results[name].reason:
                    continue
                report.say(f"round {number + 1} of {options.rounds}: {name}")
                try:
                    async for talk in _talks(name, options, spoken):
                        found = score(talk, spell, _word_errors)
                        _take(results[name], talk, found)
                        notes.write(json.dumps(as_line(name, talk, found)) + "\n")
                        notes.flush()
                        report.say(line_of(name, found))
                except (PeerFailed, EnvironmentFailed) as error:
                    report.say(str(error))
                    results[name] = Result(reason=str(error))
    return results


async def _talks(
    name: str, options: Options, spoken: Sequence[Clip]
) -> AsyncIterator[Conversation]:
    """A system's conversations; the first clip is spoken once before, to warm it."""
    async with _running(name, options.folder) as speak:
        try:
            await speak(spoken[0])
        except ConversationFailed as error:
            raise PeerFailed(name, str(error), options.folder / "logs" / f"{name}.log") from error
        for clip in spoken:
            if options.calm_cores:
                await calm(options.calm_cores, CALM_WAIT_S)
            seen = Contention()
            try:
                talk = await speak(clip)
            except ConversationFailed as error:  # counted as unanswered
                report.say(f"{name}: {error}")
                talk = Conversation(clip.plan, 0.0, errors=[str(error)])
            talk.cpu_s, talk.others_cores = seen.own_s(), seen.cores()
            yield talk


def _running(name: str, folder: Path) -> AbstractAsyncContextManager[Speak]:
    environments, logs = Environments(folder), folder / "logs"
    if name == "pipecat":
        return pipecat.running(environments, logs)
    if name == speech_to_speech.NAME:
        return speech_to_speech.running(environments, logs)
    return ours.running(name)


def _take(result: Result, talk: Conversation, found: Score) -> None:
    result.scores.append(found)
    result.cpu_s.append(talk.cpu_s)
    result.others_cores.append(talk.others_cores)
    for name, values in talk.own_ms.items():
        result.own_ms.setdefault(name, []).extend(values[-1:])


def _word_errors(truth: list[str], heard: list[str]) -> int:
    found = jiwer.process_words(truth, heard)
    return int(found.substitutions + found.deletions + found.insertions)


def line_of(name: str, found: Score) -> str:
    """Progress: one clip."""
    marks = [
        mark
        for mark, is_so in (("false start", found.false_start), ("BROKEN", found.broken))
        if is_so
    ]
    times = f"{_ms(found.first_token_ms)} / {_ms(found.first_sound_ms)}"
    return f"{name}: {found.name}: {times} {' '.join(marks)} {found.heard!r} -> {found.answer!r}"


def _ms(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f} ms"


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """How many times as long the peers take as `ours`, at the median."""
    found: dict[str, float | None] = {}
    for name, row in rows.items():
        if name.startswith("ours"):
            continue
        suffix = "" if name == "pipecat" else f"_{name}"
        for key in ("first_sound", "first_token"):
            theirs = row.get(f"{key}_ms_p50")
            mine = rows.get("ours", {}).get(f"{key}_ms_p50")
            ratio = round(theirs / mine, 2) if theirs is not None and mine else None
            found[f"ratio_{key}{suffix}"] = ratio
    return found


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Markdown: a system a row."""
    lines = [f"| | {' | '.join(TABLE)} |", f"|---|{'---|' * len(TABLE)}"]
    for name, row in rows.items():
        if "reason" in row:
            lines.append(f"| {name} | not measured: {row['reason'].splitlines()[0]} |")
        else:
            lines.append(f"| {name} | {' | '.join(str(row[key]) for key in TABLE)} |")
    return "\n".join(lines)
