"""Endpointing: what people suffer from the end of a turn, for each policy.

Turns as people speak them (`people`): half of them plain, half with fillers, restarts,
lists, dictated numbers or thoughts left open, by packaged voices, a quarter with noise over it. All
are recorded once through the real segmenter, recogniser and language model
(`pause_record`). Then each policy is replayed over the record, window by window, with
its own memory for each voice, and scored (`turn_outcomes`).

`--people LIST` (lines `path TAB text`; one person's recordings, with their own pauses) adds a voice
to the half that is reported. `--notes FILE` keeps the record; a run that was broken off goes on.

The parts have no voice and no sentence in common. `EagerSettings` were chosen on "choose".
`held_out` ("report") was seen before the rule for lists was made, `fresh` was not: it has no
recordings of people. `--tune` searches `GRID` on "choose".

Keys: `held_out`, `fresh` and `chosen_on`, each by policy:

first_token_ms_p50, _p95    whole turns without an inner pause (`WHOLE_MS`): from the person's last
                            sound to the first token
all_first_token_ms_mean, _p50, _p95    the same for all turns
false_start_share           share of turns in which more than `HEARD_MS` of false starts was heard
heard_ms_mean               of false starts, over all turns
broken_share                share of turns answered on a part and never put right
revocations_per_turn        early ends taken back
asks_per_turn               final passes of the recogniser, with the model's word

and `by_kind` and `fresh_by_kind` (the same of eager), `curves` (each policy's family), `costs`,
`asked_ms_p50`, `asked_ms_p95` (from the pause until the model's word), `turns`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.inputs.recordings import read_list
from headstart.benchmarks.turns import curves, people
from headstart.benchmarks.turns.endpoint_peers import livekit, pipecat, pipecat_timeout
from headstart.benchmarks.turns.pause_record import RecordedTurn, recorded
from headstart.benchmarks.turns.turn_outcomes import Costs, Outcome, play
from headstart.gateway.audio.clock import ms_to_engine_samples
from headstart.gateway.audio.endpointing import (
    EAGERNESS,
    UNHEARD,
    AdaptiveSilence,
    EagerSettings,
    EagerSilence,
    EndpointPolicy,
    FixedSilence,
    PauseStatistics,
    SemanticSilence,
    eager,
    semantic,
)

HEARD_MS = 300.0
WHOLE_MS = 200
WHOLE_KINDS = (people.PLAIN, people.PEOPLE)
MOST_RECORDINGS = 30  # of one person
MOST_MS = EAGERNESS["auto"].most_ms

TARGETS = {
    "first_token_ms_p50": 330.0,
    "first_token_ms_p95": 900.0,
    "false_start_share": 0.05,
    "broken_share": 0.01,
}

Make = Callable[[], EndpointPolicy]
POLICIES: dict[str, Make] = {
    "eager": partial(eager, "auto"),
    "eager high": partial(eager, "high"),
    "eager, text": partial(eager, "auto", None, UNHEARD),
    "semantic": partial(semantic, "medium"),
    "semantic low": partial(semantic, "low"),
    "adaptive": lambda: AdaptiveSilence(PauseStatistics(), 500),
    "server_vad 300": partial(FixedSilence, 300),
    "server_vad 500": partial(FixedSilence, 500),
    "server_vad 800": partial(FixedSilence, 800),
    "pipecat smart-turn": pipecat,
    "pipecat timeout": pipecat_timeout,
    "livekit": livekit,
    "livekit streaming": partial(livekit, 300, 2500),
    "livekit before 1.5": partial(livekit, 500, 6000),
}


def semantic_of(silence_ms: int) -> EndpointPolicy:
    """`semantic` with another length."""
    return SemanticSilence(AdaptiveSilence(PauseStatistics(), silence_ms), MOST_MS)


def eager_of(settings: EagerSettings, silence_ms: int = EAGERNESS["auto"].silence_ms) -> Make:
    """`eager` with other settings."""
    return lambda: EagerSilence(PauseStatistics(), silence_ms, MOST_MS, settings)


def _eager_scaled(scale: float) -> EndpointPolicy:
    """`eager` with all its lengths multiplied."""
    ours, base_ms = EagerSettings(), EAGERNESS["auto"].silence_ms
    return eager_of(replace(ours, early_ms=round(scale * ours.early_ms)), round(scale * base_ms))()


FAMILIES: dict[str, Sequence[Make]] = {
    "fixed": [partial(FixedSilence, ms) for ms in (200, 300, 400, 500, 600, 800, 1000, 1300)],
    "semantic": [partial(semantic_of, ms) for ms in (300, 400, 500, 630, 810, 1000, 1300)],
    "pipecat": [partial(pipecat, share) for share in (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)],
    "livekit": [partial(livekit, ms) for ms in (300, 400, 500, 700, 900)],
    "eager": [partial(_eager_scaled, scale) for scale in (0.7, 0.85, 1.0, 1.2, 1.5, 2.0)],
}
"""The members of a family differ in one number: a length, or the share that counts as complete."""

GRID = tuple(
    (EagerSettings(sure_doubt=sure, usual_doubt=usual, caution_factor=caution), base_ms)
    for sure, usual, caution, base_ms in product(
        (0.02, 0.03, 0.05, 0.07, 0.1, 0.15), (0.3, 0.5, 0.8), (2.0, 4.0, 8.0), (500, 630, 700)
    )
)
"""Settings of `eager`, and the silence for a speaker of typical pauses."""


def run(
    recordings: Sequence[Path],
    notes: Path | None,
    model: str,
    *,
    tune: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Measure and report, and draw the curves of the held-out half into `svg`.

    Raises ValueError for a wrong LIST, and `VoiceUnavailable`.
    """
    plans = [plan for half in people.HALVES for plan in people.planned(half)]
    for path in recordings:
        clips = read_list(path)[:MOST_RECORDINGS]
        plans += people.recordings(people.REPORT, path.stem, clips)
    turns = recorded(plans, notes, model)
    halves = {half: [turn for turn in turns if turn.half == half] for half in people.HALVES}
    held_out, chosen_on = halves[people.REPORT], halves[people.CHOOSE]
    fresh = halves[people.FRESH]
    results = by_policy(held_out)
    for name, row in results.items():
        report.say(f"{name:20} {row}")
    rows = family_rows(held_out)
    if svg is not None:
        svg.write_text(curves.svg(rows))
    asked = [one.took_ms for turn in turns for pause in turn.pauses for one in pause.asked[:1]]
    report.finish(
        "endpoint",
        {
            "model": model,
            "turns": {half: len(some) for half, some in halves.items()},
            "whole_turns": {half: sum(map(is_whole, some)) for half, some in halves.items()},
            "asked_ms_p50": statistics.median(asked),
            "asked_ms_p95": report.percentile(asked, 95),
            "costs": asdict(Costs()),
            "held_out": results,
            "fresh": by_policy(fresh),
            "chosen_on": by_policy(chosen_on),
            "by_kind": by_kind(play(held_out, POLICIES["eager"])),
            "fresh_by_kind": by_kind(play(fresh, POLICIES["eager"])),
            "curves": rows,
            "tuning": tuning(chosen_on) if tune else None,
        },
        as_json=as_json,
    )


def by_policy(turns: Sequence[RecordedTurn]) -> dict[str, dict[str, float]]:
    """The score of each policy."""
    return {name: score(play(turns, make)) for name, make in POLICIES.items()}


def is_whole(turn: RecordedTurn) -> bool:
    """Whether a turn has no inner pause, and is not a thought left open."""
    inner = (pause for pause in turn.pauses if pause.start_sample < turn.end_sample)
    lasts = [
        pause.silence_samples
        for pause in inner
        if pause.silence_samples is not None
        and pause.start_sample + pause.silence_samples <= turn.end_sample
    ]
    is_short = all(samples < ms_to_engine_samples(WHOLE_MS) for samples in lasts)
    return turn.kind in WHOLE_KINDS and is_short


def score(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """See the module's keys."""
    waits = [outcome.wait_ms for outcome in outcomes]
    whole = [outcome.wait_ms for outcome in outcomes if is_whole(outcome.turn)] or [0.0]
    return {
        "first_token_ms_p50": round(statistics.median(whole)),
        "first_token_ms_p95": round(report.percentile(whole, 95)),
        "all_first_token_ms_mean": round(statistics.mean(waits)),
        "all_first_token_ms_p50": round(statistics.median(waits)),
        "all_first_token_ms_p95": round(report.percentile(waits, 95)),
        "false_start_share": _mean([outcome.heard_ms > HEARD_MS for outcome in outcomes]),
        "heard_ms_mean": round(statistics.mean(outcome.heard_ms for outcome in outcomes)),
        "broken_share": _mean([outcome.broken for outcome in outcomes]),
        "revocations_per_turn": _mean([outcome.revocations for outcome in outcomes]),
        "asks_per_turn": _mean([outcome.asks for outcome in outcomes]),
    }


def by_kind(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """The score of each kind of turn, and of turns with noise over them and without."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.turn.kind, []).append(outcome)
        groups.setdefault("noisy" if outcome.turn.noise else "quiet", []).append(outcome)
    return {name: {"turns": len(some)} | score(some) for name, some in sorted(groups.items())}


def family_rows(turns: Sequence[RecordedTurn]) -> list[dict[str, Any]]:
    """The score of each member of each family."""
    return [
        {"policy": name} | score(play(turns, make))
        for name, members in FAMILIES.items()
        for make in members
    ]


def tuning(turns: Sequence[RecordedTurn]) -> list[dict[str, Any]]:
    """`GRID`'s members within `TARGETS`: the ten with the least `suffering`."""
    tried = []
    for settings, base_ms in GRID:
        row = score(play(turns, eager_of(settings, base_ms)))
        if all(row[key] <= most for key, most in TARGETS.items()):
            chosen = asdict(settings) | {"silence_ms": base_ms}
            tried.append(chosen | row | {"suffering": round(suffering(row))})
    return sorted(tried, key=lambda row: float(row["suffering"]))[:10]


def suffering(row: Mapping[str, float]) -> float:
    """One number to choose by: the mean wait, a false start heard like 2 s of it, a broken turn
    like 10 s."""
    wait_ms = float(row["all_first_token_ms_mean"])
    return wait_ms + 2000 * row["false_start_share"] + 10_000 * row["broken_share"]


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0
