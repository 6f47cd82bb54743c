"""People who talk to an engine in real time, camera on, and what they wait for.

Each speaks for `SPEECH_S`, in chunks of half a second, with a picture a second; `ENDPOINT_MS`
behind the last sample the endpoint is confirmed and an answer asked for, which nobody began early.
After the answer and a pause they go on. Their turns are spread evenly.

Commands have a due time. One that is given late, because a step took long, counts from when it was
due: nobody speaks slower because an engine is slow.
"""

from __future__ import annotations

import heapq
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headstart.benchmarks import report
from headstart.engine import api
from headstart.engine.engine import Engine

NS_PER_S, NS_PER_MS = 1_000_000_000, 1_000_000
SAMPLE_RATE_HZ = api.SAMPLE_RATE_HZ
CHUNK_MS = 500
CHUNK_SAMPLES = SAMPLE_RATE_HZ * CHUNK_MS // 1000
SPEECH_S = 4.0
FRAME_CHUNKS = 2  # one picture a second
ENDPOINT_MS = 200
PAUSE_MS = 500
PATIENCE_S = 10.0
DRAIN_S = 3.0
ANSWER_TOKENS = 32
PICTURE_PX = (392, 280)  # width, height: 140 cells of Qwen's encoders
PICTURES = 16
SHOWN_FAILURES = 5
INSTRUCTIONS = "You are a friendly assistant. Answer in one or two short sentences."


@dataclass(slots=True)
class Tally:
    """What was measured while `counting`. `owed`: answers whose endpoint counts, by session."""

    first_token_ms: list[float] = field(default_factory=list)
    chunk_ms: list[float] = field(default_factory=list)
    answer_tok_s: list[float] = field(default_factory=list)
    tokens: int = 0
    turns: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)  # the first ones
    late_ms: float = 0.0
    busy_s: float = 0.0
    owed: dict[str, int] = field(default_factory=dict)
    counting: bool = False


class Person:
    """One session. `number` of `count` says where in a turn it begins."""

    def __init__(self, number: int, count: int) -> None:
        self.name = f"p{number}"
        self.turn = 0
        self.endpoint_ns = 0
        self.heard_first = True
        whole = round(SPEECH_S * 1000 / CHUNK_MS)
        self.first_chunks = max(1, whole - (2 * number + 1) * whole // (2 * count))

    def next_turn(self, at_ns: int, sound: Sequence[bytes], pictures: Sequence[api.Image]) -> Turn:
        """The commands of the turn that begins at `at_ns`, with their due times."""
        self.turn += 1
        chunks = self.first_chunks if self.turn == 1 else round(SPEECH_S * 1000 / CHUNK_MS)
        ref, name = api.TurnRef(self.turn), self.name
        due: Turn = [(at_ns, api.BeginSpeech(name, ref, f"u{self.turn}", 0))]
        for chunk in range(chunks):
            start, at = chunk * CHUNK_SAMPLES, at_ns + chunk * CHUNK_MS * NS_PER_MS
            if chunk % FRAME_CHUNKS == 0:
                shown = pictures[(self.turn + chunk) % len(pictures)]
                due.append((at, api.Frame(name, start, shown)))
            end_ns = at + CHUNK_MS * NS_PER_MS
            pcm = sound[(self.turn + chunk) % len(sound)]
            due.append((end_ns, api.Audio(name, ref, start, pcm, end_ns)))
        self.endpoint_ns = at_ns + (chunks * CHUNK_MS + ENDPOINT_MS) * NS_PER_MS
        self.heard_first = False
        end = chunks * CHUNK_SAMPLES
        due.append((self.endpoint_ns, api.EndSpeech(name, ref, end)))
        sampling = api.Sampling(max_tokens=ANSWER_TOKENS)
        respond = api.Respond(name, self.turn, f"a{self.turn}", sampling)
        due.append((self.endpoint_ns, respond))
        return due


Turn = list[tuple[int, api.Command]]


class Room:
    """`count` people and one engine, in the calling thread, as the engine's own loop has it."""

    def __init__(self, engine: Engine, events: list[api.Event], count: int) -> None:
        """`events`: where the engine's go."""
        self._engine, self._events = engine, events
        self.people = {person.name: person for person in (Person(i, count) for i in range(count))}
        self.tally = Tally()
        self._due: list[tuple[int, int, api.Command]] = []
        self._number = 0
        self._sound, self._pictures = _sound(), _pictures()

    def run(self, warm_up_s: float, seconds: float) -> dict[str, Any]:
        """Let them talk; what was measured behind the warm-up."""
        for name in self.people:
            self._engine.receive(api.Open(name, INSTRUCTIONS))
        self._step_while(lambda: self._engine.step(), PATIENCE_S)
        began_ns = time.monotonic_ns()
        for person in self.people.values():
            self._plan(person, began_ns)
        self._talk(began_ns + round(warm_up_s * NS_PER_S))
        self.tally.counting = True
        self._talk(time.monotonic_ns() + round(seconds * NS_PER_S))
        self.tally.counting = False
        drained_ns = time.monotonic_ns() + round(DRAIN_S * NS_PER_S)
        self._talk(drained_ns, lambda: not self.tally.owed)
        found = self._numbers(seconds)
        for name in self.people:
            self._engine.receive(api.Close(name))
        self._step_while(lambda: self._engine.step(), PATIENCE_S)
        self._events.clear()
        return found

    def _step_while(self, more: Callable[[], bool], limit_s: float) -> None:
        until_s = time.monotonic() + limit_s
        while more() and time.monotonic() < until_s:
            pass

    def _plan(self, person: Person, at_ns: int) -> None:
        for due_ns, command in person.next_turn(at_ns, self._sound, self._pictures):
            self._number += 1
            heapq.heappush(self._due, (due_ns, self._number, command))

    def _talk(self, until_ns: int, done: Callable[[], bool] = lambda: False) -> None:
        while (now_ns := time.monotonic_ns()) < until_ns and not done():
            self._give(now_ns)
            began_s = time.monotonic()
            worked = self._engine.step()
            if self.tally.counting:
                self.tally.busy_s += time.monotonic() - began_s
            self._take_events()
            if worked:
                continue
            next_ns = min(self._due[0][0] if self._due else until_ns, until_ns)
            wait_s = max(next_ns - time.monotonic_ns(), 0) / NS_PER_S
            select.select(self._engine.wake_fds, [], [], min(wait_s, 0.05))

    def _give(self, now_ns: int) -> None:
        """Give the engine what is due."""
        tally = self.tally
        while self._due and self._due[0][0] <= now_ns:
            due_ns, _, command = heapq.heappop(self._due)
            self._engine.receive(command)
            if tally.counting:
                tally.late_ms = max(tally.late_ms, (now_ns - due_ns) / NS_PER_MS)
                if isinstance(command, api.Respond):
                    tally.turns += 1
                    tally.owed[command.session] = command.generation

    def _take_events(self) -> None:
        tally = self.tally
        for event in self._events:
            match event:
                case api.Chunk() if tally.counting:
                    tally.chunk_ms.append(event.latency_ms)
                case api.Delta() | api.Finished():
                    self._take_answer(event)
                case api.Failed():
                    self._take_failure(event)
        self._events.clear()

    def _take_answer(self, event: api.Delta | api.Finished) -> None:
        person, tally = self.people.get(event.session), self.tally
        if person is None or event.generation != person.turn:
            return
        if not person.heard_first:
            person.heard_first = True
            at_ns = event.at_ns if isinstance(event, api.Delta) else time.monotonic_ns()
            if tally.owed.pop(event.session, None) is not None:
                tally.first_token_ms.append((at_ns - person.endpoint_ns) / NS_PER_MS)
        if isinstance(event, api.Finished):
            if tally.counting:
                tally.tokens += event.usage.output
                if event.decode_tok_s is not None:
                    tally.answer_tok_s.append(event.decode_tok_s)
            self._plan(person, time.monotonic_ns() + PAUSE_MS * NS_PER_MS)

    def _take_failure(self, event: api.Failed) -> None:
        """Whose answer failed talks on; who was not admitted does not."""
        tally, person = self.tally, self.people.get(event.session)
        tally.failed += 1
        if len(tally.failures) < SHOWN_FAILURES:
            tally.failures.append(f"{event.about} {event.code}: {event.message[:200]}")
        if person is None:
            return
        if event.about == "open":
            self._due = [each for each in self._due if not _is_of(each[2], person.name)]
            heapq.heapify(self._due)
        elif event.about == "respond" and event.ref_id == str(person.turn):
            tally.owed.pop(person.name, None)
            self._plan(person, time.monotonic_ns() + PAUSE_MS * NS_PER_MS)

    def _numbers(self, seconds: float) -> dict[str, Any]:
        tally = self.tally
        return {
            "sessions": len(self.people),
            "first_token_ms_p50": _at(tally.first_token_ms, 50),
            "first_token_ms_p95": _at(tally.first_token_ms, 95),
            "chunk_ms_p50": _at(tally.chunk_ms, 50),
            "chunk_ms_p99": _at(tally.chunk_ms, 99),
            "chunk_ms_budget": CHUNK_MS,
            "tok_s": round(tally.tokens / seconds, 1),
            "answer_tok_s_p50": _at(tally.answer_tok_s, 50),
            "turns": tally.turns,
            "answered": len(tally.first_token_ms),
            "chunks": len(tally.chunk_ms),
            "busy_share": round(min(tally.busy_s / seconds, 1.0), 3),
            "late_ms_max": round(tally.late_ms, 1),
            "failed": tally.failed,
            "failures": tally.failures,
            "seconds": seconds,
        }


def _is_of(command: api.Command, name: str) -> bool:
    return getattr(command, "session", "") == name


def _at(values: list[float], percent: float) -> float | None:
    return round(report.percentile(values, percent), 1) if values else None


def _sound() -> list[bytes]:
    """Chunks of noise that swells and fades, as loud as speech."""
    chance = np.random.default_rng(0)
    envelope = np.abs(np.sin(np.linspace(0, 6, CHUNK_SAMPLES)))
    return [
        (chance.standard_normal(CHUNK_SAMPLES) * envelope * 3_000).astype("<i2").tobytes()
        for _ in range(PICTURES)
    ]


def _pictures() -> list[api.Image]:
    """Pictures that all look different."""
    chance = np.random.default_rng(0)
    width, height = PICTURE_PX
    out = []
    for _ in range(PICTURES):
        coarse = chance.integers(0, 256, (-(-height // 40), -(-width // 40), 3), np.uint8)
        rgb = coarse.repeat(40, axis=0).repeat(40, axis=1)[:height, :width]
        out.append(api.Image(width, height, np.ascontiguousarray(rgb).tobytes()))
    return out
