"""One conversation of hours, at full speed: do memory and time per chunk stay constant?

A person in front of a camera speaks for six seconds of every fifteen and is answered. The engine is
real, with decoder, image encoder and cache. The words come from a script, or with `--real-ears`
from the bundled monologue through Whisper, which then takes most of the time.

Keys: minutes (for each minute of the session: chunk_ms median and max from receipt until the words
are in the cache, chunk_cpu_ms the processor time for it, which depends far less on other load,
first_ms to the answer's first token, kv_bytes, rss_bytes, evicted tokens so far), chunk_ms_first
and chunk_ms_last (medians over the first ten minutes with evictions and the last ten), their ratio,
the same of chunk_cpu_ms, chunk_ms_max, first_ms_first, first_ms_last, kv_bytes_max, window_tokens,
rss_bytes_first, rss_bytes_last, rss_growth_share, evicted_tokens, recomputed_tokens (K/V computed
and rolled back), wall_s, model.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import CHUNK_SAMPLES, INSTRUCTIONS, Live, Samples, clip
from headstart.benchmarks.harness.scripted_words import ScriptedRecognizer
from headstart.engine import api
from headstart.engine.engine import Engine

TURN_S, SPEECH_S = 15, 6
CHUNKS_PER_S = api.SAMPLE_RATE_HZ // CHUNK_SAMPLES
SAMPLING = api.Sampling(max_tokens=24, max_sentences=2)
PICTURES = 40
EDGE_MINUTES = 10


@dataclass(slots=True)
class Minute:
    """Measurements of one minute of the session."""

    chunk_ms: list[float] = field(default_factory=list)
    chunk_cpu_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    kv_bytes: int = 0
    rss_bytes: int = 0
    evicted: int = 0

    def to_json(self) -> dict[str, float]:
        return {
            "chunk_ms": round(statistics.median(self.chunk_ms), 1),
            "chunk_ms_max": round(max(self.chunk_ms), 1),
            "chunk_cpu_ms": round(statistics.median(self.chunk_cpu_ms), 1),
            "first_ms": round(statistics.median(self.first_ms), 1),
            "kv_bytes": self.kv_bytes,
            "rss_bytes": self.rss_bytes,
            "evicted": self.evicted,
        }


class Person:
    """A client that talks to an engine and measures it."""

    def __init__(self, live: Live, sound: Iterator[bytes]) -> None:
        self._live, self._sound = live, sound
        self._pictures = itertools.cycle(_pictures())
        self._turn = 0
        session = live.engine.sessions["long"]
        self.stream, self.window_tokens = session.stream, session.conversation.window.tokens

    def take_turn(self, minute: Minute) -> None:
        """Speak with the camera on, pause, and wait for the answer."""
        engine, events = self._live.engine, self._live.events
        self._turn += 1
        ref = api.TurnRef(self._turn)
        engine.receive(api.BeginSpeech("long", ref, f"u{self._turn}", 0))
        for chunk in range(SPEECH_S * CHUNKS_PER_S):
            at = chunk * CHUNK_SAMPLES
            if chunk % CHUNKS_PER_S == 0:
                engine.receive(api.Frame("long", at, next(self._pictures)))
            began_s = time.process_time()
            engine.receive(api.Audio("long", ref, at, next(self._sound), time.monotonic_ns()))
            self._live.run()
            minute.chunk_cpu_ms.append((time.process_time() - began_s) * 1000)
        minute.chunk_ms += [e.latency_ms for e in events if isinstance(e, api.Chunk)]
        engine.receive(api.Hush("long", ref, 0, SAMPLING))
        self._live.run()
        events.clear()
        self._answer(ref, minute)

    def _answer(self, ref: api.TurnRef, minute: Minute) -> None:
        engine, events = self._live.engine, self._live.events
        began_ns = time.monotonic_ns()
        engine.receive(api.EndSpeech("long", ref, 0))
        engine.receive(api.Respond("long", self._turn, f"a{self._turn}", SAMPLING))
        self._live.run()
        failed = [e for e in events if isinstance(e, api.Failed)]
        assert not failed, failed
        minute.first_ms += [(e.at_ns - began_ns) / 1e6 for e in events if isinstance(e, api.Delta)][
            :1
        ]
        kv = next(e.kv for e in events if isinstance(e, api.Finished))
        minute.kv_bytes, minute.evicted = kv.bytes, kv.evicted
        minute.rss_bytes = psutil.Process(os.getpid()).memory_info().rss
        events.clear()


def run(model: str, hours: float, *, real_ears: bool, as_json: bool, window: int = 0) -> None:
    """Measure and report. `window`: the context window in tokens; 0: as many as possible."""
    live = Live(model)
    if not real_ears:
        parts = live.engine.parts
        services = dataclasses.replace(parts.services, recognizer=ScriptedRecognizer())
        live.engine = Engine(dataclasses.replace(parts, services=services), live.events.append)
    live.engine.receive(api.Open("long", INSTRUCTIONS, window=api.Window(window)))
    live.run()
    person = Person(live, _chunks(clip("monologue.ogg")))
    minutes: list[Minute] = []
    began_s = time.monotonic()
    for number in range(max(round(hours * 60), 1)):
        minute = Minute()
        for _ in range(60 // TURN_S):
            person.take_turn(minute)
        minutes.append(minute)
        if number % 10 == 9:
            line = minute.to_json()
            report.say(
                f"{number + 1:4} min: chunk {line['chunk_ms']:.0f} ms, first token "
                f"{line['first_ms']:.0f} ms, K/V {minute.kv_bytes / 1e6:.0f} MB, memory "
                f"{minute.rss_bytes / 1e6:.0f} MB, forgotten {minute.evicted} tokens"
            )
    live.engine.check_accounting()
    result = _summary(minutes, person) | {
        "wall_s": round(time.monotonic() - began_s, 1),
        "real_ears": real_ears,
        "model": model,
    }
    report.finish("session", result, as_json=as_json)


def _summary(minutes: Sequence[Minute], person: Person) -> dict[str, Any]:
    """Compare from the first eviction on, when the window is full."""
    full = [m for m in minutes if m.evicted] or list(minutes)
    first, last = full[:EDGE_MINUTES], full[-EDGE_MINUTES:]
    chunk_first, chunk_last = (
        statistics.median(c for m in e for c in m.chunk_ms) for e in (first, last)
    )
    cpu_first, cpu_last = (
        statistics.median(c for m in e for c in m.chunk_cpu_ms) for e in (first, last)
    )
    rss_first, rss_last = (max(m.rss_bytes for m in e) for e in (first, last))
    return {
        "chunk_ms_first": round(chunk_first, 1),
        "chunk_ms_last": round(chunk_last, 1),
        "chunk_ms_ratio": round(chunk_last / chunk_first, 3),
        "chunk_cpu_ms_first": round(cpu_first, 1),
        "chunk_cpu_ms_last": round(cpu_last, 1),
        "chunk_cpu_ms_ratio": round(cpu_last / cpu_first, 3),
        "chunk_ms_max": round(max(c for m in minutes for c in m.chunk_ms), 1),
        "first_ms_first": round(statistics.median(f for m in first for f in m.first_ms), 1),
        "first_ms_last": round(statistics.median(f for m in last for f in m.first_ms), 1),
        "kv_bytes_max": max(m.kv_bytes for m in minutes),
        "window_tokens": person.window_tokens,
        "rss_bytes_first": rss_first,
        "rss_bytes_last": rss_last,
        "rss_growth_share": round(rss_last / rss_first - 1, 4),
        "evicted_tokens": person.stream.evicted_tokens,
        "recomputed_tokens": person.stream.rolled_back_kv_tokens,
        "prefilled_tokens": person.stream.prefilled_tokens,
        "minutes": [m.to_json() for m in minutes],
    }


def _chunks(sound: Samples) -> Iterator[bytes]:
    """The sound in a loop, in chunks."""
    whole = sound[: len(sound) // CHUNK_SAMPLES * CHUNK_SAMPLES].reshape(-1, CHUNK_SAMPLES)
    return itertools.cycle(row.tobytes() for row in whole)


def _pictures() -> list[api.Image]:
    """Pictures that all look different."""
    chance = np.random.default_rng(0)
    out = []
    for _ in range(PICTURES):
        coarse = chance.integers(0, 256, (6, 8, 3), np.uint8)
        rgb = coarse.repeat(40, axis=0).repeat(40, axis=1)
        out.append(api.Image(rgb.shape[1], rgb.shape[0], rgb.tobytes()))
    return out
