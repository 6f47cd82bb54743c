"""Step costs of this machine, measured on the real model: `costs.CPU` and `costs.EARS`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import CHUNK_SAMPLES, Live, Samples, speech_of
from headstart.benchmarks.simulation.costs import CPU, EarsCosts, NodeKind
from headstart.engine.backends.local import LocalBackend
from headstart.engine.interfaces import Pcm
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.scheduler import Plan, Work

REPEATS = 8
SHAPES = ((0, 1, 100), (0, 2, 100), (0, 4, 100), (0, 1, 1200), (8, 0, 0), (32, 0, 0), (64, 0, 0))
"""Steps that are timed: tokens of prefill, rows that decode, and the context of each."""
SHORT_S, LONG_S = 4.0, 16.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Costs of this machine's decoder and recogniser, to simulate with."""

    kind: NodeKind
    ears: EarsCosts


def calibrate(model: str) -> Calibration:
    """Load `model` and time it; the best of some repeats, since other jobs only add."""
    report.say(f"loading {model}")
    live = Live(model)
    report.say("timing steps")
    measured = [_fastest_ms(live, *shape) for shape in SHAPES]
    step_ms, prefill_ms, decode_ms, context_ms = fit(SHAPES, measured)
    report.say("timing the recogniser")
    chunk_ms, short_ms = _hear(live, speech_of(SHORT_S))
    _, long_ms = _hear(live, speech_of(LONG_S))
    per_s = max((long_ms - short_ms) / (LONG_S - SHORT_S), 0.0)
    kind = replace(
        CPU,
        step_ms=round(step_ms, 2),
        prefill_ms=round(prefill_ms, 3),
        decode_ms=round(decode_ms, 3),
        context_ms=round(context_ms, 6),
    )
    ears = EarsCosts(round(chunk_ms, 1), round(short_ms - SHORT_S * per_s, 1), round(per_s, 2))
    return Calibration(kind, ears)


def fit(
    shapes: Sequence[tuple[int, int, int]], measured_ms: Sequence[float]
) -> tuple[float, float, float, float]:
    """`step_ms`, `prefill_ms`, `decode_ms` and `context_ms` (`costs`) that fit timed steps best.
    None is negative."""
    rows = [(1.0, prefill, decode, decode * context) for prefill, decode, context in shapes]
    fitted, *_ = np.linalg.lstsq(np.array(rows), np.array(measured_ms), rcond=None)
    step_ms, prefill_ms, decode_ms, context_ms = (max(float(value), 0.0) for value in fitted)
    return step_ms, prefill_ms, decode_ms, context_ms


def _fastest_ms(live: Live, prefill: int, decode: int, context: int) -> float:
    """Milliseconds of the fastest of some steps of that shape."""
    backend = live.engine.parts.backend
    assert isinstance(backend, LocalBackend)
    streams = [live.engine.parts.new_stream(f"calibrate-{n}") for n in range(max(decode, 1))]
    for number, stream in enumerate(streams):
        stream.append([1000 + (7 * at + number) % 5000 for at in range(context)])
        if context:
            _step(backend, [stream], answers=False)
    took_s = []
    for repeat in range(REPEATS):
        for stream in streams:
            stream.append([2000 + (31 * repeat + at) % 500 for at in range(prefill or 1)])
        took_s.append(_step(backend, streams, answers=decode > 0))
    for stream in streams:
        stream.close()
    return min(took_s) * 1000


def _step(backend: LocalBackend, streams: list[Stream], *, answers: bool) -> float:
    """Seconds of one step for all pending tokens."""
    works = tuple(Work(stream, stream.pending, answers, 0) for stream in streams)
    began_s = time.perf_counter()
    backend.runner.step(Plan(works))
    return time.perf_counter() - began_s


def _hear(live: Live, sound: Samples) -> tuple[float, float]:
    """Milliseconds of a chunk's pass (the mean over the utterance) and of its final pass."""
    recognizer = live.engine.parts.services.recognizer
    pcm: Pcm = (sound / np.float32(32768)).astype(np.float32)
    starts = range(0, len(pcm) - CHUNK_SAMPLES + 1, CHUNK_SAMPLES)
    chunks: list[Pcm] = [pcm[start : start + CHUNK_SAMPLES] for start in starts]
    chunks_ms, finals_ms = [], []
    for _ in range(2):
        stream = live.engine.parts.new_stream("calibrate-ears")
        utterance = recognizer.open(stream)
        began_s = time.perf_counter()
        for chunk in chunks:
            recognizer.recognize_batch([utterance], [chunk])
        heard_s = time.perf_counter()
        recognizer.finish(utterance)
        finals_ms.append((time.perf_counter() - heard_s) * 1000)
        chunks_ms.append((heard_s - began_s) * 1000 / len(chunks))
        stream.close()
    return min(chunks_ms), min(finals_ms)


def facts(found: Calibration) -> dict[str, float | int]:
    """The calibration as keys of the benchmark's result."""
    kind, ears = found.kind, found.ears
    return {
        "step_ms": kind.step_ms,
        "prefill_ms": kind.prefill_ms,
        "decode_ms": kind.decode_ms,
        "context_ms": kind.context_ms,
        "chunk_ms": ears.chunk_ms,
        "final_ms": ears.final_ms,
        "final_ms_per_s": ears.final_ms_per_s,
    }
