"""Models in their published sizes, loaded from a directory with random weights, answer about a
picture: what they say is noise, what they take is not.

The directory is written first (`random_directory`), if memory and disk suffice, and kept for the
next run; then a process of its own loads it as `headstart serve --model DIR` does, and answers one
message with a picture of SIDE_PX x SIDE_PX and a question.

Keys: model, parameters, disk_bytes, weights (form of the decoder's), encoder_weights, load_s (until
the first step), weights_bytes (computed before anything is loaded), rss_bytes and uss_bytes
(resident, with and without pages of the files; behind the answer), peak_bytes (resident, at any
time), prompt_tokens, picture_tokens, ttft_ms (from the message to the answer's first token),
stages_ms (of that time, by stage), answer_tokens, decode_tok_s, answer.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from headstart.benchmarks import report
from headstart.benchmarks.engine.random_directory import CONFIGS, describe, write_weights
from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.models.decoder.choice import in_int8
from headstart.engine.models.footprint import check_fits
from headstart.engine.models.perception import samples
from headstart.engine.models.source import loading_of, source_of
from headstart.engine.process.model_directory import assemble_source, batch_of
from headstart.talk.long_file.report import peak_bytes

SIDE_PX = 448
QUESTION = "What is in this picture?"
ANSWER_TOKENS = 16
# Pixtral's K and V of a token are 327,680 bytes in fp32, its picture 812 tokens.
KV_POOL_BYTES = 1 << 30
SAMPLING = api.Sampling(repetition_penalty=1.0, max_tokens=ANSWER_TOKENS)


def run(model: str, folder: Path, encoder_weights: str, *, as_json: bool) -> None:
    """Write the directory if it is not there, load it, ask, and report. Raises, before weights are
    written: `ValueError` for another model, `BadSettings`, `NotEnoughMemory`, `DirectoryFailed`."""
    if model not in CONFIGS:
        raise ValueError(f"expected one of {', '.join(CONFIGS)}, got {model}")
    place = folder / model
    config = _config(place, encoder_weights)
    shapes = describe(place, CONFIGS[model])
    _check_memory(config)
    parameters = write_weights(place, shapes, CONFIGS[model])
    disk_bytes = sum(path.stat().st_size for path in place.glob("*.safetensors"))
    argv = [sys.executable, "-m", "headstart.benchmarks.engine.published"]
    child = subprocess.run(
        [*argv, str(place), encoder_weights], stdout=subprocess.PIPE, text=True, check=False
    )
    if child.returncode:
        raise SystemExit(f"{model} did not answer: its process ended with {child.returncode}")
    found = json.loads(child.stdout.splitlines()[-1])
    result = {"model": model, "parameters": parameters, "disk_bytes": disk_bytes, **found}
    report.finish("published", result, as_json=as_json)


def answered(folder: Path, encoder_weights: str = "auto") -> dict[str, Any]:
    """Load a directory in this process and ask. All keys but those of the directory."""
    config = _config(folder, encoder_weights)
    source = source_of(config)
    assert source is not None
    events: list[api.Event] = []
    began_s = time.monotonic()
    engine, info = assemble_source(source, config, events.append, _progress())
    load_s = time.monotonic() - began_s
    report.say(f"loaded in {load_s:.0f} s: {info.weights_bytes / 1e9:.1f} GB of weights")
    engine.receive(api.Open("one", "Be brief."))
    events.clear()
    rgb = samples.picture(1, SIDE_PX)
    shown = api.Image(SIDE_PX, SIDE_PX, rgb.tobytes())
    item = api.Item("u1", api.Role.USER, (shown, api.Text(QUESTION)))
    asked_s = time.monotonic()
    engine.receive(api.AddItem("one", item))
    engine.receive(api.Respond("one", 1, "a1", SAMPLING))
    first_s = None
    while not any(isinstance(event, api.Finished) for event in events):
        if not engine.step():
            select.select(engine.wake_fds, [], [], 1.0)
        answer = engine.sessions["one"].answer
        if first_s is None and answer is not None and answer.tokens:
            first_s = time.monotonic()
    (finished,) = [event for event in events if isinstance(event, api.Finished)]
    for failed in (event for event in events if isinstance(event, api.Failed)):
        raise SystemExit(f"{failed.about} failed: {failed.code} {failed.message}")
    memory = psutil.Process().memory_full_info()
    engine.close()
    if first_s is None:
        raise SystemExit(f"no answer: {finished.code} {finished.message}")
    spans = next((event.spans for event in events if isinstance(event, api.Delta)), ())
    stages_ns: Counter[str] = Counter()
    for span in spans:
        stages_ns[span.stage] += span.end_ns - span.start_ns
    usage = finished.usage
    return {
        "weights": "int8" if loading_of(config).build is in_int8 else "bf16",
        "encoder_weights": "int8" if encoder_weights == "int8" else "bf16",
        "load_s": round(load_s, 1),
        "weights_bytes": info.weights_bytes,
        "rss_bytes": memory.rss,
        "uss_bytes": memory.uss,
        "peak_bytes": peak_bytes(),
        "prompt_tokens": usage.input,
        "picture_tokens": usage.input_image,
        "ttft_ms": round((first_s - asked_s) * 1e3),
        "stages_ms": {stage: round(ns / 1e6) for stage, ns in stages_ns.items()},
        "answer_tokens": usage.output,
        "decode_tok_s": finished.decode_tok_s,
        "answer": finished.text,
    }


def _config(folder: Path, encoder_weights: str) -> EngineConfig:
    return EngineConfig(
        model=str(folder), encoder_weights=encoder_weights, kv_pool_bytes=KV_POOL_BYTES
    )


def _check_memory(config: EngineConfig) -> None:
    """Raises `NotEnoughMemory` as loading will, by the sizes alone."""
    source = source_of(replace(config, weights="dummy"))
    assert source is not None
    check_fits(source, loading_of(config), config.kv_pool_bytes, *batch_of(config))


def _progress() -> Callable[[str, int, int], None]:
    """Tells each tenth of what is loaded."""
    told: set[tuple[str, int]] = set()

    def report_progress(what: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if (what, tenth) not in told:
            told.add((what, tenth))
            report.say(f"{what}: {10 * tenth} %" if total else what)

    return report_progress


def _child(folder: str, encoder_weights: str) -> None:
    print(json.dumps(answered(Path(folder), encoder_weights)), flush=True)


if __name__ == "__main__":
    _child(*sys.argv[1:])
