"""What is simulated in one run: nodes, people, policy, and what goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.benchmarks.inputs.turn_taking import DEFAULT, People
from headstart.benchmarks.simulation.costs import EARS, EarsCosts, NodeKind
from headstart.benchmarks.simulation.policies import DEFAULT as DEFAULT_POLICY
from headstart.benchmarks.simulation.policies import Policy


@dataclass(frozen=True, slots=True)
class Failure:
    """A node is lost from `from_s` to `to_s`; its probe finds it after that."""

    node: int
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Straggler:
    """A node's steps take `times` as long from `from_s` to `to_s`."""

    node: int
    from_s: float
    to_s: float
    times: float = 3.0


@dataclass(frozen=True, slots=True)
class Setup:
    """One run. Turns that begin in the first `warm_up_s` are not counted.

    Attributes:
        sessions: people who talk at the same time; with `diurnal`, at the busiest hour.
        diurnal: the number of people goes from a fifth to all and back once during the run.
    """

    kind: NodeKind
    nodes: int
    sessions: int
    seconds: float = 60.0
    warm_up_s: float = 20.0
    policy: Policy = DEFAULT_POLICY
    people: People = DEFAULT
    ears: EarsCosts = EARS
    failures: Sequence[Failure] = ()
    stragglers: Sequence[Straggler] = ()
    diurnal: bool = False
    seed: int = 1
