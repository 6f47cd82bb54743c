"""Batches that follow a target time: encoder batches, and steps, while the machine is more or less
busy.

The encoder is that of `encoders` in int8; its batches are taken from an `EncodeQueue` in which
MOST_PICTURES pictures of SIDE_PX x SIDE_PX always wait. Steps are a packaged model's: one session
decodes, READERS others have text to be read, and a `Scheduler` with a budget of MOST_TOKENS plans.
Each goes through PHASES without a pause, with what it has learnt: alone, beside BUSY processes that
compute, and alone again, so many batches in each.

`rows`, one for each subject ("encoder", "steps"), target (ms; None: always the most) and phase:

    size_p50            pictures, or tokens, of a batch
    ms_p50, ms_p95      what a batch took: as long a step holds up who decodes
    within_band         share of the batches that took the target +-20 %
    over_band           share that took longer
    settled_after       batches until the first within the band
    per_s               pictures, or tokens, a second

The first SETTLING batches of a phase count for `settled_after` only.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headstart.benchmarks import report
from headstart.benchmarks.engine.encoders import VOCABULARY, write_model
from headstart.benchmarks.harness.in_process import paths_of
from headstart.engine.api import Image
from headstart.engine.config import MIB, EngineConfig
from headstart.engine.kvcache.make_cache import make_cache
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.checkpoint.words import byte_words
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception import samples
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.source import ModelSource
from headstart.engine.process.load import load_model
from headstart.engine.process.model_directory import loaded
from headstart.engine.scheduling.batch_size import BAND, BatchSize
from headstart.engine.scheduling.encode_queue import EncodeQueue
from headstart.engine.scheduling.runner import Runner
from headstart.engine.scheduling.scheduler import Request, Scheduler
from headstart.kernels.native import set_threads

PHASES = ("alone", "busy", "alone again")
BUSY = 2
SETTLING = 6
TARGET_MS = 400.0
SIDE_PX = 256
PICTURE_TOKENS = (SIDE_PX // 16) ** 2
MOST_PICTURES = 8
MOST_TOKENS = 128
READERS = 4
READ_TOKENS = 768  # of a reader, which then begins anew: a step's length depends on the context
LIMIT_TOKENS = 2_048
# Until whoever started it is gone, however that ended. Its id is an argument: a parent that ends
# before this has begun would never be missed.
COMPUTE = (
    "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent: sum(range(100_000))"
)

Row = dict[str, Any]
Batch = tuple[int, float]
"""Its size, and ms."""
Work = Callable[[], Batch]


def run(model: str, batches: int, *, baseline: bool, as_json: bool) -> None:
    """Measure and report. `baseline`: without a target as well, whose batches take seconds each on
    a busy machine."""
    targets_ms = (TARGET_MS, None) if baseline else (TARGET_MS,)
    torch.set_num_threads(EngineConfig().threads)
    set_threads(EngineConfig().threads)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        encoder = _encoder(Path(name))
        for target_ms in targets_ms:
            rows += phases("encoder", target_ms, encoding(encoder, target_ms), batches)
    for target_ms in targets_ms:
        rows += phases("steps", target_ms, stepping(model, target_ms), batches)
    result = {"model": model, "batches": batches, "busy": BUSY, "band": BAND, "rows": rows}
    report.finish("target", result, as_json=as_json)


def phases(subject: str, target_ms: float | None, work: Work, batches: int) -> list[Row]:
    """The rows of one subject and target."""
    rows = []
    for phase in PHASES:
        with _busy(BUSY if phase == "busy" else 0):
            done = [work() for _ in range(SETTLING + batches)]
        row = {"subject": subject, "target_ms": target_ms, "phase": phase}
        rows.append({**row, **summary(done, target_ms)})
        report.say(str(rows[-1]))
    return rows


def summary(done: Sequence[Batch], target_ms: float | None) -> Row:
    """What the batches of a phase were like, in order."""
    counted = done[SETTLING:]
    times_ms = [ms for _, ms in counted]
    row: Row = {
        "size_p50": statistics.median_low(size for size, _ in counted),
        "ms_p50": round(statistics.median(times_ms), 1),
        "ms_p95": round(report.percentile(times_ms, 95), 1),
        "per_s": round(sum(size for size, _ in counted) / sum(times_ms) * 1e3, 1),
    }
    if target_ms is not None:
        low, high = target_ms * (1 - BAND), target_ms * (1 + BAND)
        inside = [low <= ms <= high for _, ms in done]
        row["within_band"] = round(statistics.fmean(inside[SETTLING:]), 3)
        row["over_band"] = round(statistics.fmean(ms > high for ms in times_ms), 3)
        row["settled_after"] = inside.index(True) if True in inside else None
    return row


def encoding(encoder: ModelImageEncoder, target_ms: float | None) -> Work:
    """Batches of pictures, as the encoder's thread takes and encodes them."""
    together = BatchSize(MOST_PICTURES, target_ms or 0.0)
    queue: EncodeQueue[Image] = EncodeQueue(MOST_PICTURES * PICTURE_TOKENS, together)
    shown = Image(SIDE_PX, SIDE_PX, samples.picture(3, SIDE_PX).tobytes())
    number = 0

    def work() -> Batch:
        nonlocal number
        while len(queue) < MOST_PICTURES:
            number += 1
            queue.push(
                Image(SIDE_PX, SIDE_PX, shown.rgb),
                f"session-{number % MOST_PICTURES}",
                tokens=PICTURE_TOKENS,
                level=SIDE_PX,
                due_ns=number,
                now_ns=number,
            )
        began_ns = time.monotonic_ns()
        batch = queue.take(number)
        encoder.features(batch, [b""] * len(batch), live=False)
        took_ns = time.monotonic_ns() - began_ns
        together.observe(len(batch), took_ns)
        return len(batch), took_ns / 1e6

    return work


def stepping(model: str, target_ms: float | None) -> Work:
    """Steps of a decoder, as the engine plans and runs them."""
    config = EngineConfig(model=model, kv_pool_bytes=MIB * 512)
    words = load_model(paths_of(model).llm, config)
    cache, pool = make_cache(words.spec, config)
    runner = Runner(words.decoder, cache)
    scheduler = Scheduler(MOST_TOKENS, step_target_ms=target_ms or 0.0)
    text = words.tokenizer.encode("Long texts are read in pieces, each within a step. " * 80)
    teller, *readers = (
        Stream(f"stream-{number}", pool, words.spec.vocab_size, LIMIT_TOKENS)
        for number in range(1 + READERS)
    )
    teller.append(text[:32])

    def work() -> Batch:
        if len(teller) > READ_TOKENS:
            teller.truncate(32)
        if not teller.pending:
            teller.append([text[len(teller) % len(text)]])
        for reader in readers:
            if not reader.pending:
                reader.truncate(0)
                reader.append(text[:READ_TOKENS])
        requests = [Request(teller, 0, generating=True), *(Request(r, 1) for r in readers)]
        began_ns = time.monotonic_ns()
        plan = scheduler.plan(requests, began_ns)
        runner.step(plan)
        took_ns = time.monotonic_ns() - began_ns
        scheduler.observe(plan, took_ns)
        return plan.decode_tokens + plan.prefill_tokens, took_ns / 1e6

    return work


def _encoder(folder: Path) -> ModelImageEncoder:
    """In int8, calibrated as an engine does it."""
    write_model(folder)

    def built(how: Loading, tensors: Tensors) -> StreamModel:
        return load(folder, replace(how, tensors=lambda *_: tensors))

    source = ModelSource("pixtral", lambda: byte_words(VOCABULARY), partial(load, folder), built)
    how = Loading(torch.bfloat16, int8_encoders=True)
    return ModelImageEncoder(loaded(source, how, lambda *_: None))


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that compute, at this one's priority."""
    argv = [sys.executable, "-c", COMPUTE, str(os.getpid())]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(argv))
            stack.callback(process.kill)  # before it is waited for
        yield
