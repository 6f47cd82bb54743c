"""What `torch.compile` gains for each encoder, and what it costs (Inductor; it needs a C++
compiler): a vision tower with random weights, and Whisper's encoder.

Pixtral's tower (12 layers of 512 in bf16, as published weights are, and in fp32) at 256 x 256, and
the encoder of whisper-tiny.en on 30 s: exact in torch, and as it is served, one native call on int8
weights. Each size of a picture is a graph of its own, so `first_s` is paid again for another one.

Keys, for `vision_bf16`, `vision_fp32` and `whisper`: eager_ms, compiled_ms, ratio (eager ÷
compiled), first_s (the first call of the compiled one), error (as a share of the output) and
pays_after (calls until the first one is paid back; 0: never). `whisper` also has served_ms.
compiler: the C++ compiler that was found.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.benchmarks import report
from headstart.benchmarks.engine.encoders import SIDE_PX, SIZES
from headstart.engine.asr.named import find_recognizer
from headstart.engine.asr.whisper.checkpoint import load_checkpoint
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.parts import NOT_VISION, PartTensors
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.pixtral import Pixtral

CALLS = 5
THIRTY_S_FRAMES = 3_000
COMPILERS = ("g++", "clang++", "c++")


def run(*, as_json: bool) -> None:
    """Measure and report. Ends the process with a message where there is no compiler."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise SystemExit("torch.compile needs a C++ compiler: install g++")
    found: dict[str, Any] = {
        "vision_fp32": _vision(torch.float32),
        "whisper": _whisper(),
        "vision_bf16": _vision(torch.bfloat16),
        "compiler": Path(compiler).name,
        "threads": torch.get_num_threads(),
    }
    report.finish("compile", found, as_json=as_json)


def _vision(dtype: torch.dtype) -> dict[str, float]:
    tensors = PartTensors(RandomTensors(dtype), dtype, NOT_VISION)
    tower = Pixtral(tensors, Config(Path("pixtral"), SIZES)).tower
    return _compared(f"vision {dtype}", tower.encode, torch.randn(3, SIDE_PX, SIDE_PX))


def _whisper() -> dict[str, float]:
    folder = find_recognizer("whisper-tiny.en")
    exact, served = (load_checkpoint(folder, exact=exact).encoder for exact in (True, False))
    features = torch.randn(exact.settings.mels, THIRTY_S_FRAMES)
    found = _compared("whisper", exact, features)
    return {**found, "served_ms": _ms(partial(served, features))}


def _compared(name: str, encode: Callable[[Tensor], Tensor], given: Tensor) -> dict[str, float]:
    compiled = torch.compile(encode)
    with torch.inference_mode():
        wanted = encode(given)
        eager_ms = _ms(partial(encode, given))
        began_s = time.monotonic()
        got = compiled(given)
        first_s = time.monotonic() - began_s
        compiled_ms = _ms(partial(compiled, given))
    gain_s = (eager_ms - compiled_ms) / 1e3
    found = {
        "eager_ms": eager_ms,
        "compiled_ms": compiled_ms,
        "ratio": round(eager_ms / compiled_ms, 2),
        "first_s": round(first_s, 1),
        "error": float((got - wanted).norm() / wanted.norm()),
        "pays_after": round(first_s / gain_s) if gain_s > 0 else 0,
    }
    report.say(f"{name}: {found}")
    return found


def _ms(run: Callable[[], Tensor]) -> float:
    def once() -> float:
        began_s = time.monotonic()
        run()
        return time.monotonic() - began_s

    return round(report.median_ms(once, CALLS), 1)
