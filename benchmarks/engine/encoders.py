"""How long pictures of one session hold up another one's answer: encoded within the engine's steps,
and beside them.

A model of Pixtral's kind with random weights (sizes below; what it says is noise, what it costs is
not). Session "teller" decodes; after BEFORE tokens session "viewer" shows PICTURES pictures of
256 x 256 in one message, 1,088 tokens, and asks about them. In turns, with encoders "within",
"beside", beside with their weights in int8, and in a "process" of their own.

Keys: ratio (the longest wait of the teller's next token, within ÷ beside), and for each of
`within`, `beside`, `int8`, `process`: wait_ms_max and wait_ms_p50 (while the viewer's question is
open), wait_ms_before (p50 of BEFORE tokens), step_ms_max (the longest step), steps_max (the most
steps between two of the teller's tokens), viewer_ms (from the question to its first token),
teller_tokens (decoded meanwhile), encode_ms (one picture by itself). Medians over `repeats`.
encode_ratio (encode_ms, as published ÷ int8), process_ratio (encode_ms, process ÷ thread),
feature_error (of int8, a picture it was not calibrated on, as a share of the embeddings), same_bits
(whether the process's embeddings are those of the thread),
known_ms (a picture that another engine has shown), video_tokens, parameters. memory: for `float`
and `int8` encoders the proportional set size in MB of 1 and of 2 engines, with their encoder in a
`thread` or as a `process` (its own included).
"""

from __future__ import annotations

import contextlib
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import torch
from safetensors.torch import save_file
from torch import Tensor

from headstart.benchmarks import report
from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.engine import Engine
from headstart.engine.interfaces import View
from headstart.engine.models.checkpoint.tensors import RandomTensors, Tensors, renamed
from headstart.engine.models.checkpoint.words import byte_words
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception import samples
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.source import ModelSource
from headstart.engine.process.model_directory import assemble_source

PICTURES = 4
SIDE_PX = 256
BEFORE = 24
MAX_TOKENS = 2_000
VOCABULARY = 152_064  # of the stand-in tokenizer
SIZES: dict[str, Any] = {
    "model_type": "llava",
    "vision_feature_layer": -1,
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "hidden_act": "silu",
    },
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "vocab_size": VOCABULARY,
        "sliding_window": None,
    },
}
TELL = api.Sampling(repetition_penalty=1.0, temperature=1.0, seed=1, max_tokens=MAX_TOKENS)
LOOK = api.Sampling(repetition_penalty=1.0, max_tokens=1)


FORMS = {
    "within": EngineConfig(encoders="within"),
    "beside": EngineConfig(encoders="beside"),
    "int8": EngineConfig(encoders="beside", encoder_weights="int8"),
    "process": EngineConfig(encoders="beside"),
}
ENGINES = (1, 2)


def run(repeats: int, *, as_json: bool) -> None:
    """Measure in turns and report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = write_model(folder)
        address = f"ipc://{folder}/encoder.sock"
        with encoder(folder, address):
            found = _measured(folder, address, repeats)
        found["memory"] = {
            form: _memory(folder, arguments)
            for form, arguments in (("float", ()), ("int8", ("--encoder-weights", "int8")))
        }
    report.finish("encoders", {**found, "parameters": parameters}, as_json=as_json)


def _measured(folder: Path, address: str, repeats: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in FORMS}
    forms = {**FORMS, "process": replace(FORMS["process"], encoder_url=address)}
    made = {name: Bench(config, folder) for name, config in forms.items()}
    for number in range(repeats):
        for name, bench in made.items():
            runs[name].append(bench.measure())
            report.say(f"{number + 1} of {repeats}, {name}: {runs[name][-1]}")
    rows = {name: _medians(runs[name]) for name in FORMS}
    for name, bench in made.items():
        rows[name]["encode_ms"] = bench.encode_ms()
    rows["process"]["known_ms"] = made["process"].encode_ms(known=True)
    exact, int8, there = (made[name].embeddings() for name in ("beside", "int8", "process"))
    for bench in made.values():
        bench.engine.close()
    return {
        "ratio": _ratio(rows["within"], rows["beside"], "wait_ms_max"),
        "encode_ratio": _ratio(rows["beside"], rows["int8"], "encode_ms"),
        "process_ratio": _ratio(rows["process"], rows["beside"], "encode_ms"),
        "feature_error": round(float((int8 - exact).norm() / exact.norm()), 4),
        "same_bits": bool(torch.equal(there, exact)),
        **rows,
        "video_tokens": PICTURES * (SIDE_PX // 16) * (SIDE_PX // 16 + 1),
        "repeats": repeats,
    }


def _memory(folder: Path, arguments: Sequence[str]) -> dict[str, dict[str, float]]:
    """MB, by number of engines."""
    found: dict[str, dict[str, float]] = {"thread": {}, "process": {}}
    address = f"ipc://{folder}/shared.sock"
    for count in ENGINES:
        found["thread"][str(count)] = _pss_mb(folder, count, None, arguments)
        with encoder(folder, address, *arguments) as process:
            found["process"][str(count)] = _pss_mb(folder, count, address, arguments, process)
        report.say(f"memory of {count} engines, {arguments}: {found}")
    return found


def _pss_mb(
    folder: Path,
    count: int,
    address: str | None,
    arguments: Sequence[str],
    *others: subprocess.Popen[str],
) -> float:
    """Of so many engines that have encoded a picture, and of `others`."""
    argv = [
        sys.executable,
        "-m",
        "headstart.benchmarks.engine.encoders",
        str(folder),
        address or "",
    ]
    with contextlib.ExitStack() as stack:
        engines = [
            stack.enter_context(
                subprocess.Popen(
                    [*argv, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(count)
        ]
        for engine in engines:
            assert engine.stdout is not None
            assert engine.stdout.readline(), "an engine did not start"
        whole = [psutil.Process(each.pid).memory_full_info().pss for each in (*engines, *others)]
        for engine in engines:
            engine.kill()
    return float(round(sum(whole) / 1e6, 1))


@contextlib.contextmanager
def encoder(folder: Path, address: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An encoder process, ready."""
    argv = [sys.executable, "-P", "-m", "headstart.engine", "--serve-encoder", address]
    with subprocess.Popen(
        [*argv, "--model", str(folder), *arguments], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            told: list[str] = []
            for line in process.stderr:
                told.append(line)
                if "is ready" in line:
                    break
            assert told, "the encoder process said nothing"
            assert "is ready" in told[-1], "".join(told)
            yield process
        finally:
            process.kill()


def write_model(folder: Path) -> int:
    """The model as a directory, in bf16; its number of weights."""
    (folder / "config.json").write_text(json.dumps(SIZES))
    ends = [{"content": "[IMG_BREAK]", "id": 12}, {"content": "[IMG_END]", "id": 13}]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": ends}))
    (folder / "tokenizer_config.json").write_text("{}")
    saved = Recorded(torch.bfloat16)
    load(folder, Loading(torch.bfloat16, tensors=lambda *_: saved))
    save_file(saved.tensors, folder / "model.safetensors")
    return sum(tensor.numel() for tensor in saved.tensors.values())


class Recorded(RandomTensors):
    """Random weights that are kept by the names of a checkpoint."""

    NAMES: ClassVar[dict[str, str]] = {
        "vision.": "vision_tower.",
        "projector.": "multi_modal_projector.",
        "decoder.": "language_model.model.",
    }

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.tensors: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = super().take(name, *shape)
        self.tensors[renamed(name, self.NAMES) or name] = tensor
        return tensor


def _ratio(one: dict[str, float], other: dict[str, float], key: str) -> float:
    return round(one[key] / other[key], 2)


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(run[key] for run in runs), 1) for key in runs[0]}


class Bench:
    """An engine with the encoders of `form`."""

    def __init__(self, form: EngineConfig, folder: Path) -> None:
        self.events: list[api.Event] = []
        self._folder = folder
        config = replace(form, model=str(folder), kv_pool_bytes=128 << 20)
        source = ModelSource("pixtral", lambda: byte_words(VOCABULARY), self._load, self._built)
        self.engine, _ = assemble_source(source, config, self.events.append, lambda *told: None)

    def _load(self, how: Loading) -> StreamModel:
        return load(self._folder, how)

    def _built(self, how: Loading, tensors: Tensors) -> StreamModel:
        return load(self._folder, replace(how, tensors=lambda *_: tensors))

    def embeddings(self) -> Tensor:
        """Of one picture, [tokens, hidden]."""
        stream = self.engine.parts.new_stream("embeddings")
        rgb = samples.picture(99, SIDE_PX)
        view = self.engine.parts.services.image_encoder.encode_image(
            api.Image(SIDE_PX, SIDE_PX, rgb.tobytes()), stream
        )
        soft = [token for token in view.ids if token >= VOCABULARY]
        found = torch.from_numpy(np.stack([stream.soft.vector(token) for token in soft]))
        stream.close()
        return found

    def encode_ms(self, *, known: bool = False) -> float:
        """The time that one picture takes by itself, or one that is `known`."""
        encoder = self.engine.parts.services.image_encoder
        stream = self.engine.parts.new_stream("encode")

        def encode() -> float:
            began_s = time.monotonic()
            shown = _picture(7 if known else time.monotonic_ns())
            view: View = encoder.encode_image(shown, stream)
            assert view.ids
            return time.monotonic() - began_s

        if known:
            encode()
        took_ms = report.median_ms(encode, 3)
        stream.close()
        return round(took_ms, 1)

    def measure(self) -> dict[str, float]:
        """One run on fresh sessions."""
        engine = self.engine
        for name in ("teller", "viewer"):
            engine.receive(api.Open(name, "Be brief."))
        item = api.Item("u1", api.Role.USER, (api.Text("Tell me a story."),))
        engine.receive(api.AddItem("teller", item))
        engine.receive(api.Respond("teller", 1, "a1", TELL))
        before = self._decode(BEFORE, None)
        pictures = tuple(_picture(time.monotonic_ns() + n) for n in range(PICTURES))
        item = api.Item("u1", api.Role.USER, (*pictures, api.Text("What is this?")))
        asked_s = time.monotonic()
        engine.receive(api.AddItem("viewer", item))
        engine.receive(api.Respond("viewer", 1, "a1", LOOK))
        meanwhile = self._decode(MAX_TOKENS, "viewer")
        viewer_ms = (time.monotonic() - asked_s) * 1e3
        for name in ("teller", "viewer"):
            engine.receive(api.Close(name))
        return {
            "wait_ms_max": max(meanwhile.waits_ms),
            "wait_ms_p50": statistics.median(meanwhile.waits_ms),
            "wait_ms_before": statistics.median(before.waits_ms),
            "step_ms_max": max(meanwhile.steps_ms),
            "steps_max": max(meanwhile.steps),
            "viewer_ms": viewer_ms,
            "teller_tokens": len(meanwhile.waits_ms),
        }

    def _decode(self, tokens: int, until: str | None) -> Waits:
        """Step until the teller has so many more tokens, or until `until` has answered."""
        engine, found = self.engine, Waits()
        last = _tokens(engine)
        at_s = [time.monotonic()]
        since = 0
        self.events.clear()
        while len(at_s) <= tokens:
            began_s = time.monotonic()
            if engine.step():
                found.steps_ms.append((time.monotonic() - began_s) * 1e3)
                since += 1
            else:
                select.select(engine.wake_fds, [], [], 1.0)
            if (now := _tokens(engine)) > last:
                last = now
                at_s.append(time.monotonic())
                found.steps.append(since)
                since = 0
            finished = [e.session for e in self.events if isinstance(e, api.Finished)]
            assert "teller" not in finished, "the story ended before the question was answered"
            if until in finished:
                break
        found.waits_ms = [(after - before) * 1e3 for before, after in pairwise(at_s)]
        return found


class Waits:
    """Of one stretch: times between the teller's tokens, of all steps, and steps between tokens."""

    def __init__(self) -> None:
        self.waits_ms: list[float] = []
        self.steps_ms: list[float] = []
        self.steps: list[int] = []


def _tokens(engine: Engine) -> int:
    answer = engine.sessions["teller"].answer
    return 0 if answer is None else len(answer.tokens)


def _picture(seed: int) -> api.Image:
    rgb = np.random.default_rng(seed).integers(0, 256, (SIDE_PX, SIDE_PX, 3), np.uint8)
    return api.Image(SIDE_PX, SIDE_PX, rgb.tobytes())


def _child(folder: str, address: str, *arguments: str) -> None:
    """An engine that has encoded a picture, and then waits to be killed."""
    form = FORMS["int8" if arguments else "beside"]
    bench = Bench(replace(form, encoder_url=address or None), Path(folder))
    bench.encode_ms()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _child(*sys.argv[1:])
