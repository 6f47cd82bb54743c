"""`headstart bench gpu`: kernels and whole engines on a GPU, in at most eight minutes.

Stage by stage, each a process of its own with a limit of time (`stages`): the Triton kernels, right
first and then fast; speech recognition beside the CPU's, and encoders with and without CUDA graphs
(`perception`); `small`; then Qwen2.5-Omni-3B's, 7B's and Qwen2-VL-7B's full sizes with random
weights, each with 1, 8 and 32 live sessions that speak with their cameras on, and with more as long
as it keeps up. Nothing is downloaded. A stage that hangs, or runs out of memory, loses what it had
still to measure; the result is then not complete, and the exit code 1.

Keys: device, torch, copy_gb_s, checks (by kernel: our error over the reference's, or what is
wrong), rows (kernels), models (load_s, weights, gpu_bytes, recorded_steps, recording_error: sizes
of decode steps that are CUDA graphs, and why no more are), sessions (a row for each number of live
sessions: first_token_ms_p50 and _p95 from the endpoint, not begun early; chunk_ms_p50 and _p99 from
a chunk's last sample until it is in the K/V cache; tok_s of all answers, answer_tok_s_p50 of one;
busy_share of the engine's thread; late_ms_max; failed; in_time, on_target), summary (by model the
most sessions in time and on target), recognition (by Whisper and sessions in a pass: chunk_ms_p50,
cpu_chunk_ms_p50 of one, ratio_to_cpu), encoders (by pass: launched_ms_p50, recorded_ms_p50, ratio,
recorded_error), targets, stages (seconds, error), complete, seconds.

`--out FILE` has all that is known so far after each stage. `--dry-run` needs no GPU: it prints the
plan with sizes and expected memory. `--device cpu --model tiny` runs the stages of engines on the
CPU, in plain torch, to try this command out. On a machine without headstart's other dependencies:
`python -m headstart.benchmarks.gpu`; what it needs there is in the plan (`needs`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.gpu import kernels
from headstart.benchmarks.gpu.kernels import NoGpuError
from headstart.benchmarks.gpu.stages import GRACE_S, Ended, Lines, Stage, rows_file, run

LIMIT_S = 480.0
KERNELS, PERCEPTION = "kernels", "perception"
SHARES = {KERNELS: 1.7, PERCEPTION: 0.6, "small": 1.1, "3b": 1.1, "7b": 1.4, "qwen2-vl-7b": 1.2}
"""Of the time, by stage; what one leaves is the next ones'."""
STANDARD = tuple(name for name in SHARES if name not in (KERNELS, PERCEPTION))
MODEL_NAMES = (*STANDARD, "tiny", "tiny-packed")
"""Those of `models`, which is imported by stages and plans alone: it takes all of `NEEDS`."""
LEAST_S = 15.0
NEEDS = (
    *("torch", "triton", "numpy"),
    *("cv2", "gguf", "httpx", "jinja2", "msgspec", "tokenizers", "zmq"),
)
"""Modules that stages import; kernels do with the first three."""
TARGETS: dict[str, Any] = {
    "paged_attention_share": 0.8,
    "first_token_ms": {"1": 40.0, "32": 100.0},
}
"""`paged_attention_share`: of the roofline, decoding."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured, and where. `kernels`, `perception`: whether those too."""

    device: str = "cuda"
    models: tuple[str, ...] = STANDARD
    sessions: tuple[int, ...] = (1, 8, 32)
    seconds: float = 6.0
    limit_s: float = LIMIT_S
    kernels: bool = True
    perception: bool = False
    out: Path | None = None

    def stages(self) -> list[Stage]:
        """In order. On the CPU there are no kernels to run."""
        found = []
        if self.kernels and self.device != "cpu":
            module = "headstart.benchmarks.gpu.kernels"
            found.append(Stage(KERNELS, module, ("--device", self.device), SHARES[KERNELS]))
        if self.perception:
            module = "headstart.benchmarks.gpu.perception"
            where = ("--device", self.device)
            found.append(Stage(PERCEPTION, module, where, SHARES[PERCEPTION]))
        levels = ",".join(map(str, self.sessions))
        for name in self.models:
            where = ("--device", self.device)
            how = ("--sessions", levels, "--seconds", str(self.seconds))
            module = "headstart.benchmarks.gpu.sessions"
            found.append(Stage(name, module, (name, *where, *how), SHARES.get(name, 1.0)))
        return found


def limit_of(stage: Stage, left: Sequence[Stage], left_s: float) -> float:
    """A stage's share of the time that is left for it and `left`, the ones behind it."""
    whole = stage.share + sum(other.share for other in left)
    return max((left_s - GRACE_S) * stage.share / whole, 0.0)


@dataclass(slots=True)
class Result:
    """What has been measured so far."""

    known: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    rows: list[Any] = field(default_factory=list)
    models: list[Any] = field(default_factory=list)
    sessions: list[Any] = field(default_factory=list)
    recognition: list[Any] = field(default_factory=list)
    encoders: list[Any] = field(default_factory=list)
    stages: dict[str, Any] = field(default_factory=dict)

    def add(self, stage: Stage, ended: Ended) -> None:
        self.stages[stage.name] = {"seconds": round(ended.seconds, 1), "error": ended.error}
        for row in ended.rows:
            if "check" in row:
                self.checks[row["check"]] = row["found"]
            elif "kernel" in row:
                self.rows.append(row)
            elif "recognition" in row:
                self.recognition.append(row)
            elif "encoder" in row:
                self.encoders.append(row)
            elif "sessions" in row:
                self.sessions.append(row)
            elif "model" in row:
                self.models.append(row)
            else:
                self.known |= row

    def summary(self) -> dict[str, Any]:
        """By model: the most sessions whose chunks were in time, and whose answers were too."""
        found: dict[str, Any] = {}
        for row in self.sessions:
            most = found.setdefault(row["model"], {"in_time": 0, "on_target": 0})
            for key in most:
                if row.get(key):
                    most[key] = max(most[key], row["sessions"])
        return found

    def whole(self, seconds: float) -> dict[str, Any]:
        return {
            **self.known,
            "complete": not any(stage["error"] for stage in self.stages.values()),
            "summary": self.summary(),
            "targets": TARGETS,
            "stages": self.stages,
            "models": self.models,
            "sessions": self.sessions,
            "recognition": self.recognition,
            "encoders": self.encoders,
            "checks": self.checks,
            "rows": self.rows,
            "seconds": round(seconds, 1),
        }


def measure(options: Options, as_json: bool) -> int:
    """Run all stages and print the result; 1 if it is not complete. Raises NoGpuError."""
    if options.device != "cpu":
        kernels.need_gpu()
    began_s = time.monotonic()
    result, stages = Result(), options.stages()
    # A killed stage's compiler may still write there.
    folder = tempfile.TemporaryDirectory(prefix="headstart-bench-", ignore_cleanup_errors=True)
    with folder as name, _terminable():
        try:
            for number, stage in enumerate(stages):
                left_s = options.limit_s - (time.monotonic() - began_s)
                limit_s = limit_of(stage, stages[number + 1 :], left_s)
                report.say(f"{stage.name}: at most {limit_s:.0f} s")
                ended = Ended([], 0.0, "not reached")
                if limit_s >= min(LEAST_S, options.limit_s / 2):
                    ended = run(stage, Path(name), limit_s)
                result.add(stage, ended)
                for row in ended.rows:
                    report.say(json.dumps(row))
                if ended.error:
                    report.say(f"{stage.name}: {ended.error}")
                _keep(options.out, result.whole(time.monotonic() - began_s))
        except KeyboardInterrupt:
            for stage in stages:
                if stage.name not in result.stages:
                    rows = Lines(rows_file(stage, Path(name))).read()
                    result.add(stage, Ended(rows, 0.0, "interrupted"))
    whole = result.whole(time.monotonic() - began_s)
    _keep(options.out, whole)
    report.finish("gpu", whole, as_json=as_json)
    return 0 if whole["complete"] else 1


@contextmanager
def _terminable() -> Iterator[None]:
    """Within it SIGTERM, of `timeout` say, is a KeyboardInterrupt: what is known is printed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _keep(out: Path | None, whole: dict[str, Any]) -> None:
    """On disk, at once or not at all."""
    if out is None:
        return
    part = out.with_name(out.name + ".part")
    part.write_text(json.dumps(whole) + "\n")
    os.replace(part, out)


def plan(options: Options) -> dict[str, Any]:
    """What would run; of models nothing where modules are missing. Raises NoGpuError where Triton
    is."""
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    stages, left_s, steps = options.stages(), options.limit_s, []
    for number, stage in enumerate(stages):
        limit_s = limit_of(stage, stages[number + 1 :], left_s)
        left_s -= limit_s
        steps.append({"stage": stage.name, "limit_s": round(limit_s, 1), "module": stage.module})
    return {
        "dry_run": True,
        "stages": steps,
        "sessions": list(options.sessions),
        "seconds_each": options.seconds,
        "targets": TARGETS,
        "models": [] if missing else [_model_plan(name) for name in options.models],
        **({} if missing or not options.perception else _perception_plan()),
        "needs": list(NEEDS),
        "missing": missing,
        "rows": kernels.plan() if any(stage.name == KERNELS for stage in stages) else [],
    }


def _perception_plan() -> dict[str, Any]:
    """What is recognised with, and which passes of encoders are timed."""
    from headstart.benchmarks.gpu import perception

    return perception.plan()


def _model_plan(name: str) -> dict[str, Any]:
    """Sizes of a model, and the least time of its decode steps by device."""
    from headstart.benchmarks.gpu.models import MODELS, expected

    known = expected(MODELS[name])
    return {
        "model": name,
        "about": MODELS[name].about,
        "weights_bytes": known.weights_bytes,
        "step_bytes": known.step_bytes,
        "kv_pool_bytes": known.kv_pool_bytes,
        "kv_bytes_per_token": known.kv_bytes_per_token,
        "kv_tokens": known.kv_pool_bytes // known.kv_bytes_per_token,
        "total_bytes": known.total_bytes,
        "decode_step_ms": {
            device: round(known.step_ms(datasheet.gb_s), 2)
            for device, datasheet in kernels.DEVICES.items()
        },
    }


def show(options: Options, as_json: bool) -> int:
    """Print the plan."""
    found = plan(options)
    for row in found["rows"]:
        bounds = ", ".join(f"{name} {us}" for name, us in row["bound_us"].items())
        report.say(f"{row['kernel']} {row['shape']}: {row['bytes'] / 1e6:.2f} MB, {bounds} us")
    for step in found["stages"]:
        report.say(f"stage {step['stage']}: at most {step['limit_s']:.0f} s")
    for each in found.get("recognition", ()):
        counts, mb = ", ".join(map(str, each["together"])), each["weights_bytes"] / 1e6
        report.say(
            f"recognition, Whisper {each['whisper']}: weights {mb:.0f} MB; {counts} sessions in a "
            "pass, beside the CPU"
        )
    for each in found.get("encoders", ()):
        report.say(f"encoders of {each['model']}, with and without graphs: {each['passes']}")
    for model in found["models"]:
        report.say(
            f"{model['model']}, {model['about']}: weights {model['weights_bytes'] / 1e9:.1f} GB, "
            f"K/V {model['kv_pool_bytes'] / 1e9:.1f} GB of {model['kv_tokens']} tokens; a decode "
            f"step reads its weights in {model['decode_step_ms']['H200']} ms on an H200"
        )
    if found["missing"]:
        report.say(f"stages of models cannot run: {', '.join(found['missing'])} not installed")
    report.finish("gpu", found, as_json=as_json)
    return 0


def options_of(
    device: str, models: str, sessions: str, seconds: float, out: str, limit_s: float = LIMIT_S
) -> Options:
    """From the command line. Raises ValueError naming what is wrong."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?", device):
        raise ValueError(f"expected device cpu, cuda or cuda:N, got {device}")
    names = tuple(models.split(",")) if models else STANDARD
    others = (KERNELS, PERCEPTION)
    unknown = [name for name in names if name not in (*others, *MODEL_NAMES)]
    if unknown:
        expected = ", ".join([*others, *MODEL_NAMES])
        raise ValueError(f"expected models of {expected}, got {unknown[0]}")
    counts = [int(part) if part.isdecimal() else 0 for part in sessions.split(",")]
    if min(counts) < 1:
        raise ValueError(f"expected numbers of sessions such as 1,8,32, got {sessions}")
    if not 0 < seconds <= limit_s:
        raise ValueError(f"expected seconds above 0, within the limit, got {seconds:g}")
    return Options(
        device=device,
        models=tuple(name for name in names if name not in others),
        sessions=tuple(counts),
        seconds=seconds,
        limit_s=limit_s,
        kernels=not models or KERNELS in names,
        perception=PERCEPTION in names or (not models and device != "cpu"),
        out=Path(out) if out else None,
    )


def main() -> None:
    """For machines without headstart's command line."""
    parser = argparse.ArgumentParser(prog="python -m headstart.benchmarks.gpu", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="print what would run")
    parser.add_argument("--json", action="store_true", help="nothing but the JSON line on stdout")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--model", default="", help="those to measure, and kernels; default: all")
    parser.add_argument("--sessions", default="1,8,32", help="numbers of live sessions")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each number of sessions")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="of all together")
    parser.add_argument("--out", default="", help="file with all that is known so far")
    given = parser.parse_args()
    try:
        options = options_of(
            given.device, given.model, given.sessions, given.seconds, given.out, given.limit_s
        )
        run_it = show if given.dry_run else measure
        sys.exit(run_it(options, given.json))
    except (NoGpuError, ValueError) as error:
        sys.exit(str(error))
