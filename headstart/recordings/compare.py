"""Two recordings side by side: settings that differ, each stage's middle and slow end, and how sure
each difference is. The same as the dashboard's page says."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headstart.recordings.bootstrap import SEED, Values, intervals, quantile
from headstart.recordings.clock import FeedClock
from headstart.recordings.errors import NothingToShow
from headstart.recordings.reader import Json, Recording
from headstart.recordings.stages import TOTALS, in_order
from headstart.recordings.turns import record, settled

NEEDED = {0.5: 5, 0.95: 20, 0.99: 100}
"""Values without which a quantile is not given."""
SMALL_N = 100
PAIRS_NEEDED = 10
USED_MAX = 5000
"""Values of a stage: the newest."""
TURNS_KEPT = 20_000


@dataclass(frozen=True)
class Sample:
    """What a comparison needs of a turn."""

    clip: str | None
    values: dict[str, float]


@dataclass
class Run:
    """One recording's turns. `older`: left out, since only the newest `TURNS_KEPT` are held."""

    name: str
    hello: Json
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=TURNS_KEPT))
    left_out: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    missed: int = 0
    runs: int = 1
    remarks: list[str] = field(default_factory=list)

    def to_wire(self) -> Json:
        facts = {key: self.hello.get(key) for key in ("run", "started_at", "headstart", "model")}
        names = ("interrupted", "not_realtime", "unmeasured", "older")
        left_out = {name: self.left_out[name] for name in names}
        counts = {"turns": self.turns, "counted": len(self.samples), "left_out": left_out}
        more = {"missed_messages": self.missed, "remarks": self.remarks}
        return {"file": self.name, **facts, **counts, **more}


def load(recording: Recording) -> Run:
    """Raises `RecordingError`s."""
    clock = FeedClock()
    run = Run(str(recording.path), {})
    for turn in settled(recording.messages(), clock):
        run.turns += 1
        if turn.left_out_as is not None:
            run.left_out[turn.left_out_as] += 1
            continue
        run.left_out["older"] += len(run.samples) == TURNS_KEPT
        run.samples.append(Sample(turn.clip, turn.values))
    run.hello, run.missed, run.remarks = recording.hello, clock.missed, recording.remarks
    if clock.runs > 1:
        run.remarks.append(
            f"{recording.path} holds {clock.runs} runs of the server: the settings are those of "
            f"the first"
        )
    return run


@dataclass(frozen=True)
class Figure:
    """A quantile of either run, their difference, and its 95 % interval; in ms."""

    a: float
    b: float
    low: float
    high: float

    @property
    def change(self) -> float:
        return self.b - self.a

    @property
    def change_percent(self) -> float | None:
        return 100 * self.change / self.a if self.a > 0 else None

    def is_slower(self, over_percent: float) -> bool:
        """Beyond the interval and the threshold."""
        return self.low > 0 and self.change > self.a * over_percent / 100

    def to_wire(self) -> Json:
        percent = self.change_percent
        return {
            "a_ms": round(self.a, 3),
            "b_ms": round(self.b, 3),
            "change_ms": round(self.change, 3),
            "change_percent": None if percent is None else round(percent, 2),
            "low_ms": round(self.low, 3),
            "high_ms": round(self.high, 3),
        }


@dataclass(frozen=True)
class Row:
    """A stage. `figures`: by quantile; None where there are too few values."""

    stage: str
    n_a: int
    n_b: int
    figures: dict[float, Figure | None]

    def to_wire(self) -> Json:
        figures = {
            label(q): None if figure is None else figure.to_wire()
            for q, figure in self.figures.items()
        }
        return {"stage": self.stage, "n_a": self.n_a, "n_b": self.n_b, **figures}


@dataclass(frozen=True)
class Comparison:
    """`pairs`: of the same clips, drawn together; 0: the runs are compared as they are."""

    a: Run
    b: Run
    settings: list[tuple[str, Any, Any]]
    pairs: int
    rows: list[Row]
    fail_over_percent: float

    @property
    def slower(self) -> list[tuple[str, float]]:
        """Whole-turn measures that got slower, with the quantile. Stages explain; they do not
        fail: one of them in twenty differs by chance."""
        return [
            (row.stage, q)
            for row in self.rows
            for q, figure in row.figures.items()
            if row.stage in TOTALS
            and figure is not None
            and figure.is_slower(self.fail_over_percent)
        ]

    @property
    def is_small(self) -> bool:
        return min(len(self.a.samples), len(self.b.samples), self.pairs or SMALL_N) < SMALL_N

    def to_wire(self) -> Json:
        return {
            "a": self.a.to_wire(),
            "b": self.b.to_wire(),
            "settings": [{"name": name, "a": a, "b": b} for name, a, b in self.settings],
            "pairs": self.pairs,
            "small_n": self.is_small,
            "stages": [row.to_wire() for row in self.rows],
            "fail_over_percent": self.fail_over_percent,
            "slower": [{"stage": stage, "quantile": label(q)} for stage, q in self.slower],
        }


def label(q: float) -> str:
    return f"p{round(100 * q)}"


def compare(a: Run, b: Run, fail_over_percent: float) -> Comparison:
    """Raises `NothingToShow`: too few turns for any statement."""
    for run in (a, b):
        if len(run.samples) < NEEDED[0.5]:
            raise NothingToShow(
                f"{run.name} has {len(run.samples)} turns that count ({run.turns} in all), at "
                f"least {NEEDED[0.5]} are needed to compare"
            )
    pairs = pairs_of(a.samples, b.samples)
    enough = 2 * len(pairs) >= min(len(a.samples), len(b.samples))
    couples = pairs if len(pairs) >= PAIRS_NEEDED and enough else None
    random = np.random.default_rng(SEED)
    names = {name for sample in (*a.samples, *b.samples) for name in sample.values}
    rows = []
    for stage in in_order(names):
        values_a, values_b = _values(a.samples, b.samples, couples, stage)
        figures = _figures(values_a, values_b, couples is not None, random)
        rows.append(Row(stage, len(values_a), len(values_b), figures))
    differing = settings_diff(a.hello, b.hello)
    return Comparison(a, b, differing, len(couples or ()), rows, fail_over_percent)


def pairs_of(a: Sequence[Sample], b: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Turns of the same clips, the first with the first and so on."""
    by_clip: defaultdict[str, deque[Sample]] = defaultdict(deque)
    for sample in a:
        if sample.clip is not None:
            by_clip[sample.clip].append(sample)
    pairs = []
    for sample in b:
        partners = by_clip.get(sample.clip) if sample.clip is not None else None
        if partners:
            pairs.append((partners.popleft(), sample))
    return pairs


def settings_diff(a: Json, b: Json) -> list[tuple[str, Any, Any]]:
    """By name: those of the greetings' `settings`, and the model and headstart's version."""
    missing = object()
    mine, theirs = ({**_about(hello), **(record(hello.get("settings")) or {})} for hello in (a, b))
    return [
        (name, mine.get(name), theirs.get(name))
        for name in sorted({*mine, *theirs}, key=str)
        if _told(mine.get(name, missing)) != _told(theirs.get(name, missing))
    ]


def _about(hello: Json) -> Json:
    return {name: hello[name] for name in ("model", "headstart") if name in hello}


def _told(value: Any) -> str:
    """As text: 1 and true differ, and so do null and nothing."""
    return json.dumps(value, sort_keys=True, default=lambda _: "not set")


def _values(
    a: Sequence[Sample],
    b: Sequence[Sample],
    couples: list[tuple[Sample, Sample]] | None,
    stage: str,
) -> tuple[Values, Values]:
    if couples is None:
        known = [
            [sample.values[stage] for sample in samples if stage in sample.values][-USED_MAX:]
            for samples in (a, b)
        ]
    else:
        both = [(x, y) for x, y in couples if stage in x.values and stage in y.values][-USED_MAX:]
        known = [[pair[side].values[stage] for pair in both] for side in (0, 1)]
    return np.array(known[0], float), np.array(known[1], float)


def _figures(
    a: Values, b: Values, paired: bool, random: np.random.Generator
) -> dict[float, Figure | None]:
    n = min(len(a), len(b))
    given = [q for q, needed in NEEDED.items() if n >= needed]
    figures: dict[float, Figure | None] = dict.fromkeys(NEEDED)
    if given:
        for q, (low, high) in zip(given, intervals(a, b, given, paired, random), strict=True):
            figures[q] = Figure(quantile(a, q), quantile(b, q), low, high)
    return figures
