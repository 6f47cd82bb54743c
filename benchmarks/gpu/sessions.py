"""One model's engine with more and more live sessions: a process of its own, which writes a line of
JSON for all that it has measured.

`python -m headstart.benchmarks.gpu.sessions MODEL --device cuda --out FILE ...`
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from typing import Any

import torch

from headstart.benchmarks import report
from headstart.benchmarks.gpu.models import MODELS, loaded
from headstart.benchmarks.gpu.people import DRAIN_S, Room
from headstart.benchmarks.gpu.stages import INCOMPLETE, Lines, add_limit, end_in, left_of
from headstart.engine import api
from headstart.engine.errors import EngineError

WARM_UP_S = 2.0
FEW = 4  # sessions whose turns are so rare that they are given twice the time
LEAST_DOUBLED = 8
FIRST_TOKEN_MS = {1: 40.0, 32: 100.0}
"""The targets, by sessions; for other counts that of the next larger one."""
MOST_FIRST_TOKEN_MS = 100.0


def target_ms(sessions: int) -> float:
    """The longest that the first token may take behind the endpoint (95 %)."""
    fitting = [ms for count, ms in sorted(FIRST_TOKEN_MS.items()) if sessions <= count]
    return fitting[0] if fitting else MOST_FIRST_TOKEN_MS


def measure(
    name: str, device: str, levels: list[int], seconds: float, until_s: float, lines: Lines
) -> bool:
    """Measure the model at each of `levels`, and then, from `LEAST_DOUBLED` on, at twice as many as
    long as it keeps up and there is time. Whether all of `levels` were reached and had no failure.
    Writes a line for each."""
    events: list[api.Event] = []
    try:
        found = loaded(MODELS[name], device, events.append)
    except (EngineError, torch.OutOfMemoryError, RuntimeError) as error:
        lines.add({"model": name, "error": f"{type(error).__name__}: {str(error)[-400:]}"})
        return False
    engine = found.engine
    recorded, recording_error = found.recorded()
    lines.add(
        {
            "model": name,
            "weights": found.weights,
            "load_s": round(found.load_s, 2),
            "gpu_bytes": _gpu_bytes(device),
            "recorded_steps": recorded,
            "recording_error": recording_error,
        }
    )
    complete, wanted, last = True, list(levels), 0
    while wanted:
        sessions = wanted.pop(0)
        row: dict[str, Any] = {"model": name, "sessions": sessions}
        for_s = seconds * 2 if sessions < FEW else seconds
        if time.monotonic() + WARM_UP_S + for_s + DRAIN_S > until_s:
            if sessions in levels:
                lines.add({**row, "error": "not reached"})
                complete = False
            continue
        try:
            row |= Room(engine, events, sessions).run(WARM_UP_S, for_s)
        except (EngineError, RuntimeError) as error:  # of the driver, or out of memory
            lines.add({**row, "error": f"{type(error).__name__}: {str(error)[-400:]}"})
            return False
        row |= {"target_ms": target_ms(sessions), **verdict(row), "gpu_bytes": _gpu_bytes(device)}
        lines.add(row)
        complete = complete and not row["failed"] and row["answered"] > 0
        last = max(last, sessions)
        if not wanted and row["in_time"] and last >= LEAST_DOUBLED:
            wanted.append(2 * last)
    engine.close()
    return complete


def verdict(row: dict[str, Any]) -> dict[str, bool]:
    """Whether chunks were ready within their own length, 99 % of them, and answers in time too."""
    chunk, first = row["chunk_ms_p99"], row["first_token_ms_p95"]
    in_time = chunk is not None and chunk <= row["chunk_ms_budget"] and not row["failed"]
    on_target = first is not None and first <= target_ms(row["sessions"])
    return {"in_time": in_time, "on_target": in_time and on_target}


def _gpu_bytes(device: str) -> int:
    """The most that tensors have taken so far."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return int(torch.cuda.max_memory_allocated(device)) if started and device != "cpu" else 0


def main() -> None:
    """A stage's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sessions", default="1,8,32")
    parser.add_argument("--seconds", type=float, default=6.0)
    add_limit(parser, 90.0)
    options = parser.parse_args()
    until_s = time.monotonic() + left_of(options)
    end_in(until_s - time.monotonic())
    logging.basicConfig(level="INFO", format="%(message)s")
    levels = [int(part) for part in options.sessions.split(",")]
    lines = Lines(options.out)
    whole = measure(options.model, options.device, levels, options.seconds, until_s, lines)
    report.say(json.dumps({"model": options.model, "complete": whole}))
    raise SystemExit(0 if whole else INCOMPLETE)


if __name__ == "__main__":
    main()
