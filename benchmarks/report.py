"""Output shared by all benchmarks: the machine, progress, statistics and the result."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from headstart.kernels.levels import processor_name


def machine() -> dict[str, Any]:
    """A description of the machine, for comparing numbers."""
    return {
        "cpu": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def median_ms(run: Callable[[], float], repeats: int) -> float:
    """Median in ms of what `run` returns in seconds, after one run that is discarded."""
    run()
    return statistics.median(run() for _ in range(repeats)) * 1000


def percentile(values: Sequence[float], percent: float) -> float:
    """Percentile by nearest rank; `values` may be in any order."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


def say(line: str) -> None:
    """Print progress to stderr; stdout's last line is for programs."""
    print(line, file=sys.stderr, flush=True)


def finish(name: str, result: dict[str, Any], *, as_json: bool) -> None:
    """Print the result: one line per key for people, and one JSON object as stdout's last line."""
    whole = {"benchmark": name, **result, "machine": machine()}
    if not as_json:
        for key, value in result.items():
            print(f"{key:>24}  {value}")
    print(json.dumps(whole), flush=True)
