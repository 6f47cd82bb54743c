"""`headstart bench simulate`: runs the cases and reports.

Keys: rows (one for each run: about, kind, policy, sessions, nodes, first_token_ms_p50, _p95 and
_p99 from the last sample of speech with 500 ms of silence, cold_first_token_ms_p50 of sessions that
had just moved, turns, answered, refused_share of arriving sessions, refused_turn_share, cut_share
of turns, moved_share of sessions, busy_share of the nodes' time, computed_per_needed prefilled
tokens, usd_session_hour), validation (rows of the speakers of `headstart bench live`, beside what
that measured), sizes (the most sessions of a node within `target_p95_ms`), costs (what a
step takes, with sources), people, seed. With `--calibrate`, the CPU's costs are measured first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.inputs.turn_taking import DEFAULT
from headstart.benchmarks.simulation import rows as cases
from headstart.benchmarks.simulation.charts import svg
from headstart.benchmarks.simulation.costs import CPU, EARS, KINDS
from headstart.benchmarks.simulation.rows import Case
from headstart.benchmarks.simulation.setup import Setup


def run(
    *,
    seed: int,
    only: Setup | None,
    model: str | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Run `only` that setup, or all cases. `model`: calibrate the CPU's costs on it first."""
    kind, ears = CPU, EARS
    calibration: dict[str, Any] = {}
    if model is not None:
        from headstart.benchmarks.simulation.calibrate import calibrate, facts

        found = calibrate(model)
        kind, ears, calibration = found.kind, found.ears, {"model": model, **facts(found)}
    chosen: list[Case] = list(_all(seed)) if only is None else [Case("one run", only)]
    chosen = [_calibrated(case, kind, ears) for case in chosen]
    began_s = time.monotonic()
    rows = [cases.run_case(case) for case in chosen]
    report.say(f"{len(rows)} runs in {time.monotonic() - began_s:.0f} s")
    sized = [row for row in rows if row["about"] == "sizing"]
    result: dict[str, Any] = {
        "rows": rows,
        "sizes": cases.sizes(sized),
        "validation": cases.validation(rows),
        "target_p95_ms": cases.TARGET_P95_MS,
        "costs": [asdict(KINDS[name] if name != kind.name else kind) for name in KINDS],
        "ears": asdict(ears),
        "people": asdict(DEFAULT),
        "seed": seed,
    }
    if calibration:
        result["calibration"] = calibration
    if picture is not None:
        picture.write_text(svg(rows), encoding="utf-8")
    report.finish("simulate", result, as_json=as_json)


def _all(seed: int) -> Iterable[Case]:
    yield from cases.live_cases(seed)
    yield from cases.scale_cases(seed)
    yield from cases.policy_cases(seed)
    yield from cases.overload_cases(seed)
    yield from cases.day_cases(seed)
    yield from cases.sizing(seed)


def _calibrated(case: Case, kind: Any, ears: Any) -> Case:
    """The case with the costs that were measured."""
    setup = case.setup
    setup = replace(setup, ears=ears, kind=kind if setup.kind.name == kind.name else setup.kind)
    return Case(case.about, setup)
