"""The runs of `headstart bench simulate`, and a row of numbers for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.inputs.turn_taking import LIVE
from headstart.benchmarks.simulation.costs import (
    CPU,
    CPU_CORE_USD_PER_HOUR,
    H100,
    H200,
    L40S,
    NodeKind,
)
from headstart.benchmarks.simulation.policies import PLACEMENTS, Policy
from headstart.benchmarks.simulation.setup import Failure, Setup, Straggler
from headstart.benchmarks.simulation.world import World

EARS_CORES = 2  # that `costs.EARS` was measured on
TARGET_P95_MS = 800.0  # of the first token, 500 ms of silence included: what a node is sized for
MOST_COMPUTED = 2.0  # tokens computed for each that was needed: above, the cache is too small
GRIDS: dict[str, tuple[int, ...]] = {
    "cpu": (1, 2, 3, 4, 5, 6, 8),
    "l40s": (25, 50, 100, 150, 200, 300, 450),
    "h100": (100, 400, 800, 1_200, 1_600, 2_000),
    "h200": (400, 1_200, 1_600, 2_000, 2_400),
}
"""Sessions on one node, for the sizing."""


MEASURED_LIVE = {4: (599.0, 919.0)}
"""docs/numbers.md: first token p50 and p95, ms, by speakers, `headstart bench live --sessions 4` on
idle cores."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: `about` says what it shows."""

    about: str
    setup: Setup


def row_of(about: str, world: World) -> dict[str, Any]:
    """The numbers of a run that is over."""
    setup, tally = world.setup, world.tally
    first = tally.first_token_ms
    nodes = list(world.nodes.values())
    run_hours = setup.seconds / 3600
    ears_usd = 0.0
    if not setup.kind.ears_here:
        ears_usd = tally.ears_s / 3600 * EARS_CORES * CPU_CORE_USD_PER_HOUR
    usd = setup.nodes * setup.kind.usd_per_hour * run_hours + ears_usd
    computed = sum(node.prefilled for node in nodes)
    return {
        "about": about,
        "kind": setup.kind.name,
        "policy": setup.policy.name,
        "sessions": setup.sessions,
        "nodes": setup.nodes,
        "first_token_ms_p50": _at(first, 50),
        "first_token_ms_p95": _at(first, 95),
        "first_token_ms_p99": _at(first, 99),
        "cold_first_token_ms_p50": _at(tally.cold_first_token_ms, 50),
        "turns": tally.begun,
        "answered": tally.answered,
        "refused_share": _share(tally.arrivals_refused, tally.arrivals),
        "refused_turn_share": _share(tally.refused, tally.begun),
        "cut_share": _share(tally.cut, tally.begun),
        "moved_share": _share(tally.moved, tally.sessions),
        "busy_share": round(
            sum(node.busy_ns for node in nodes) / len(nodes) / setup.seconds / 1e9, 3
        ),
        "computed_per_needed": round(computed / max(tally.needed_tokens, 1), 2),
        "usd_session_hour": round(usd / max(tally.session_s / 3600, 1e-9), 4),
    }


def _at(values: Sequence[float], percent: float) -> float | None:
    return round(report.percentile(values, percent), 1) if values else None


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def run_case(case: Case) -> dict[str, Any]:
    setup = case.setup
    report.say(f"{case.about}: {setup.sessions} sessions, {setup.nodes} {setup.kind.name}")
    world = World(setup)
    world.run()
    return row_of(case.about, world)


# --- which runs ----------------------------------------------------------------------------------


def scale_cases(seed: int) -> Iterator[Case]:
    """From ten sessions to ten thousand, with everything in order."""
    sizes = [(CPU, 2, 1), (CPU, 20, 10), (L40S, 1_000, 10), (H100, 10, 1), (H100, 100, 1)]
    sizes += [(H100, 1_000, 5), (H100, 1_000, 10), (H100, 10_000, 50), (H100, 10_000, 200)]
    sizes += [(H200, 1_000, 5)]
    for kind, sessions, nodes in sizes:
        yield Case("scale", Setup(kind, nodes, sessions, seconds=_seconds(kind), seed=seed))


def _seconds(kind: NodeKind) -> float:
    """Long enough for percentiles: a CPU has few sessions."""
    return 1_200.0 if kind is CPU else 60.0


def live_cases(seed: int) -> Iterator[Case]:
    """The speakers of `headstart bench live`, for comparison with what it measured."""
    policy = Policy(admission=False)
    for sessions in (1, 2, 4, 6):
        setup = Setup(CPU, 1, sessions, seconds=300, people=LIVE, policy=policy, seed=seed)
        yield Case("live", setup)


def validation(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How far the rows of `live_cases` are from what was measured, as shares."""
    found = []
    for row in rows:
        if row["about"] != "live" or row["sessions"] not in MEASURED_LIVE:
            continue
        for key, measured_ms in zip(("p50", "p95"), MEASURED_LIVE[row["sessions"]], strict=True):
            simulated_ms = row[f"first_token_ms_{key}"]
            off = round(simulated_ms / measured_ms - 1, 3)
            found.append(
                {
                    "sessions": row["sessions"],
                    "at": key,
                    "measured_ms": measured_ms,
                    "simulated_ms": simulated_ms,
                    "off_share": off,
                }
            )
    return found


def policy_cases(seed: int) -> Iterator[Case]:
    """1,000 sessions on ten L40S, of which one dies for 15 s and one is slow for 20 s."""
    trouble = Setup(
        L40S,
        nodes=10,
        sessions=1_000,
        seed=seed,
        failures=(Failure(3, 30, 45),),
        stragglers=(Straggler(7, 30, 50),),
    )
    yield Case("all in order", replace(trouble, failures=(), stragglers=()))
    yield Case("one node dies", replace(trouble, stragglers=()))
    yield Case("one node is slow", replace(trouble, failures=()))
    for ahead in (True, False):
        for placement in PLACEMENTS:
            policy = Policy(placement=placement, ahead=ahead)
            yield Case("one dies, one is slow", replace(trouble, policy=policy))


def overload_cases(seed: int) -> Iterator[Case]:
    """Three times as many sessions as the nodes are sized for."""
    for kind in (CPU, L40S):
        for admission in (True, False):
            policy = Policy(admission=admission)
            sessions = 3 * 2 * kind.capacity
            setup = Setup(kind, 2, sessions, seconds=_seconds(kind), policy=policy, seed=seed)
            yield Case("overload", setup)


def day_cases(seed: int) -> Iterator[Case]:
    """A day in four minutes: a fifth of the people at night, all of them at noon."""
    yield Case("a day", Setup(H100, 5, 1_000, seconds=240, diurnal=True, seed=seed))


def sizing(seed: int, kinds: Sequence[NodeKind] = (CPU, L40S, H100, H200)) -> Iterator[Case]:
    """One node with more and more sessions, which nobody refuses."""
    for kind in kinds:
        for ahead in (True, False):
            for sessions in GRIDS[kind.name]:
                policy = Policy(ahead=ahead, admission=False)
                setup = Setup(kind, 1, sessions, seconds=_seconds(kind), policy=policy, seed=seed)
                yield Case("sizing", setup)


def sizes(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the sizing's rows, for each kind and policy: the most sessions within the target whose
    prefixes stay in the cache, what they wait, and what an hour of one costs."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    over: set[tuple[str, str]] = set()
    for row in rows:
        key = (row["kind"], row["policy"])
        p95 = row["first_token_ms_p95"]
        if p95 is None or p95 > TARGET_P95_MS or row["computed_per_needed"] > MOST_COMPUTED:
            over.add(key)
        elif key not in over:
            found[key] = row
    keys = ("kind", "policy", "sessions", "first_token_ms_p95", "busy_share", "usd_session_hour")
    return [{key: row[key] for key in keys} for row in found.values()]
