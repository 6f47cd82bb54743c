"""Endpointing: turns cut off in a pause, against the wait at their end.

Turns with one pause inserted into each (`benchmarks.pauses`), by speakers with different paces:
everyday requests spoken by the packaged voice, and with LIST (lines `path TAB text`) recordings of
people. All are recorded once through the real segmenter, recogniser and language model
(`benchmarks.pause_record`). Then each policy is replayed over the record, window by window, with
its own memory for each speaker. `--notes FILE` stores the record, or reads it if it exists.

The two `half`s have no sentence in common (`pauses.half_of`; a turn that joins sentences of both is
left out). The policies were tuned on "tuned"; "held_out" tells what they are worth. `--tune`
searches `GRID` on the former.

Keys: turns, turns_of_half, pauses, model_ms (from the pause until the model's estimate, on this
machine; the policies are given `ASKED_MS`, as on idle cores), rows, and `tuning` with `--tune`.
Each row has `material`, `half`, `policy`, `silence_ms` (the policy's length; of learning policies,
for a speaker with typical pauses) and

cut_off          share of turns that were ended in a pause
cut_in_sentence  the same for turns whose pause was inside a sentence
latency_ms       median over turns of the silence behind the last word until the endpoint; p95

`presets`: the same for the lengths in use. `points`: for several thresholds, the share of pauses
inside a sentence, and of ends of turns, whose probability is below.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from headstart.benchmarks import curves, pauses, report
from headstart.benchmarks.pause_record import HUSH_MS, Paused, RecordedTurn, Recorder
from headstart.benchmarks.wer import read_list
from headstart.gateway.audio.clock import engine_samples_to_ms, ms_to_engine_samples
from headstart.gateway.audio.endpointing import (
    EAGERNESS,
    AdaptiveSilence,
    EndpointPolicy,
    EndpointVerdict,
    FixedSilence,
    Pause,
    PauseStatistics,
    SemanticSilence,
    SemanticThresholds,
    semantic,
)
from headstart.gateway.audio.open_utterance import CONTINUES_WITHIN_MS
from headstart.gateway.audio.vad import WINDOW_SAMPLES

ASKED_MS = 120
SILENCES_MS = (300, 400, 500, 600, 700, 800, 900, 1000, 1200)
NEVER_SAMPLES = 1 << 30
MOST_MS = EAGERNESS["auto"].most_ms
GRID = tuple(
    SemanticThresholds(*values)
    for values in product((1e-3, 3e-3, 1e-2, 3e-2, 0.1), (2.0, 2.5, 3.0, 4.0))
)
TRIED_MS = (400, 600, 800, 1000)
COMPARED_AT_MS = (500, 600, 700, 800, 900, 1000)

Policies = dict[str, Callable[[int], EndpointPolicy]]
POLICIES: Policies = {
    "fixed": lambda ms: FixedSilence(ms, HUSH_MS),
    "adaptive": lambda ms: AdaptiveSilence(PauseStatistics(), ms, HUSH_MS),
    "semantic": lambda ms: SemanticSilence(
        AdaptiveSilence(PauseStatistics(), ms, HUSH_MS), MOST_MS
    ),
}
PRESETS: dict[str, Callable[[], EndpointPolicy]] = {
    "server_vad 500": lambda: FixedSilence(500, HUSH_MS),
    "semantic_vad high": lambda: semantic("high"),
    "semantic_vad medium": lambda: semantic("medium"),
    "semantic_vad low": lambda: semantic("low"),
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one turn under one policy."""

    kind: str
    is_cut: bool
    latency_ms: int


def run(
    clips: Path | None,
    notes: Path | None,
    model: str,
    speakers: int,
    *,
    tune: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Measure and report, and draw the held-out curves into `svg`.

    Raises ValueError for a wrong LIST, and `VoiceUnavailable`.
    """
    recorded = _recorded(clips, notes, model, speakers)
    rows, presets, points = [], [], []
    for (material, half), turns in _parts(recorded).items():
        about = {"material": material, "half": half}
        for name, make in POLICIES.items():
            rows += [about | {"policy": name} | row for row in _curve(turns, make)]
        for name, preset in PRESETS.items():
            presets.append(about | {"policy": name} | _row(turns, preset))
        points += [about | point for point in _points(turns)]
    for row in presets:
        report.say(f"{row}")
    if svg is not None:
        svg.write_text(curves.svg([row for row in rows if row["half"] == "held_out"]))
    turns = [turn for some in recorded.values() for turn in some]
    asked = [pause.asked_ms for turn in turns for pause in turn.pauses]
    report.finish(
        "endpoint",
        {
            "model": model,
            "turns": len(turns),
            "turns_of_half": {" ".join(part): len(t) for part, t in _parts(recorded).items()},
            "pauses": len(asked),
            "model_ms": statistics.median(asked),
            "points": points,
            "presets": presets,
            "rows": rows,
            "tuning": tuning(recorded) if tune else None,
        },
        as_json=as_json,
    )


def play(turns: Sequence[RecordedTurn], make: Callable[[], EndpointPolicy]) -> list[Outcome]:
    """Each speaker's turns in order, under one policy with its own memory."""
    outcomes = []
    for _, of_speaker in groupby(turns, lambda turn: turn.speaker):
        policy = make()
        for turn in of_speaker:
            ends = [_end_samples(policy, pause) for pause in turn.pauses]
            last = ends[-1]
            assert last is not None, "no policy waits for ever"
            cut = any(end is not None for end in ends[:-1])
            outcomes.append(Outcome(turn.kind, cut, engine_samples_to_ms(last)))
    return outcomes


def _end_samples(policy: EndpointPolicy, pause: Paused) -> int | None:
    """The silence at which `policy` ends the turn in this pause; None: it waits until the pause is
    over. As in a session, a pause is reported to it unless the endpoint is too long ago."""
    lasts = NEVER_SAMPLES if pause.silence_samples is None else pause.silence_samples
    told_at: list[int] = []  # when the model's answers to questions arrive
    ended: int | None = None
    for silence in range(WINDOW_SAMPLES, lasts + 1, WINDOW_SAMPLES):
        words = (pause.probability, pause.again)
        known = [word for word, at in zip(words, told_at, strict=False) if silence >= at]
        now = Pause(silence, pause.speech_samples, known[-1] if known else None, len(told_at))
        verdict = policy.judge(now)
        if verdict is EndpointVerdict.END:
            ended = silence
            break
        if verdict is EndpointVerdict.RECHECK or (verdict is EndpointVerdict.HUSH and not told_at):
            told_at.append(silence + ms_to_engine_samples(ASKED_MS))
    goes_on = pause.silence_samples is not None
    if goes_on and (ended is None or lasts - ended <= ms_to_engine_samples(CONTINUES_WITHIN_MS)):
        policy.continued_after(lasts)
    return ended


def _parts(
    recorded: Mapping[str, Sequence[RecordedTurn]],
) -> dict[tuple[str, str], list[RecordedTurn]]:
    """The turns of each material's halves."""
    return {
        (material, half): [turn for turn in turns if pauses.half_of(turn.text) == half]
        for material, turns in recorded.items()
        for half in pauses.HALVES
    }


def _curve(
    turns: Sequence[RecordedTurn],
    make: Callable[[int], EndpointPolicy],
    silences_ms: Sequence[int] = SILENCES_MS,
) -> list[dict[str, Any]]:
    """One row for each length."""
    return [{"silence_ms": ms} | _row(turns, partial(make, ms)) for ms in silences_ms]


def tuning(recorded: Mapping[str, Sequence[RecordedTurn]]) -> list[dict[str, Any]]:
    """`GRID` ranked by `mean_cut_off`, over the tuned halves and waits of `COMPARED_AT_MS`: the
    best ten, and the present setting."""
    tuned = [turns for (_, half), turns in _parts(recorded).items() if half == "tuned"]
    tried = []
    for weighing in GRID:
        curves_of = [_curve(turns, partial(_weighed, weighing), TRIED_MS) for turns in tuned]
        cut_off = [_cut_at(curve, ms) for curve in curves_of for ms in COMPARED_AT_MS]
        tried.append(asdict(weighing) | {"mean_cut_off": round(statistics.mean(cut_off), 4)})
    tried.sort(key=lambda row: float(row["mean_cut_off"]))
    in_force = [row for row in tried if SemanticThresholds(**_without(row)) == SemanticThresholds()]
    return tried[:10] + in_force


def _weighed(weighing: SemanticThresholds, silence_ms: int) -> EndpointPolicy:
    return SemanticSilence(
        AdaptiveSilence(PauseStatistics(), silence_ms, HUSH_MS), MOST_MS, weighing
    )


def _without(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "mean_cut_off"}


def _cut_at(curve: Sequence[Mapping[str, Any]], latency_ms: float) -> float:
    """The share cut off at a median wait, interpolated between the lengths."""
    points = sorted((float(row["latency_ms"]), float(row["cut_off"])) for row in curve)
    waits, shares = zip(*points, strict=True)
    return float(np.interp(latency_ms, waits, shares))


def _row(turns: Sequence[RecordedTurn], make: Callable[[], EndpointPolicy]) -> dict[str, Any]:
    outcomes = play(turns, make)
    inside = [outcome for outcome in outcomes if outcome.kind == "sentence"]
    latencies = [outcome.latency_ms for outcome in outcomes]
    return {
        "cut_off": _share(outcome.is_cut for outcome in outcomes),
        "cut_in_sentence": _share(outcome.is_cut for outcome in inside),
        "latency_ms": statistics.median(latencies),
        "latency_ms_p95": report.percentile(latencies, 95),
    }


def _points(turns: Sequence[RecordedTurn]) -> list[dict[str, Any]]:
    inside = [p for turn in turns if turn.kind == "sentence" for p in turn.pauses[:-1]]
    ends = [turn.pauses[-1] for turn in turns]
    return [
        {
            "below": threshold,
            "in_sentence": _share((p.probability or 0) < threshold for p in inside),
            "at_end": _share((p.probability or 0) < threshold for p in ends),
            "at_end_again": _share((p.again or 0) < threshold for p in ends),
        }
        for threshold in (0.003, SemanticThresholds().unfinished_below, 0.3)
    ]


def _share(values: Any) -> float:
    found = list(values)
    return round(sum(found) / len(found), 3) if found else 0.0


def _recorded(
    clips: Path | None, notes: Path | None, model: str, speakers: int
) -> dict[str, list[RecordedTurn]]:
    """The record of each material: read from `notes`, or made and written there."""
    if notes is not None and notes.exists():
        kept = json.loads(notes.read_text())
        return {name: [RecordedTurn.of_json(t) for t in turns] for name, turns in kept.items()}
    found = {"questions": pauses.spoken_questions()}
    if clips is not None:
        found["recordings"] = pauses.recordings(read_list(clips))
    recorder = Recorder(model)
    recorded: dict[str, list[RecordedTurn]] = {}
    for name, sentences in found.items():
        report.say(f"{name}: {len(sentences)} recordings")
        turns = recorded[name] = []
        for turn in pauses.turns(sentences, speakers):
            turns.append(recorder.record(turn))
            report.say(f"{name} {len(turns)}: {turns[-1].pauses}")
    if notes is not None:
        kept = {name: [turn.to_json() for turn in turns] for name, turns in recorded.items()}
        notes.write_text(json.dumps(kept))
    return recorded
