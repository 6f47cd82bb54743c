"""How long pictures of one session hold up another one's answer: encoded within the engine's steps,
and beside them.

A model of Pixtral's kind with random weights (sizes below; what it says is noise, what it costs is
not). Session "teller" decodes; after BEFORE tokens session "viewer" shows PICTURES pictures of
256 x 256 in one message, 1,088 tokens, and asks about them. In turns, with encoders "within",
"beside", and beside with their weights in int8.

Keys: ratio (the longest wait of the teller's next token, within ÷ beside), and for each of
`within`, `beside`, `int8`: wait_ms_max and wait_ms_p50 (while the viewer's question is open),
wait_ms_before (p50 of BEFORE tokens), step_ms_max (the longest step), steps_max (the most steps
between two of the teller's tokens), viewer_ms (from the question to its first token), teller_tokens
(decoded meanwhile), encode_ms (one picture by itself). Medians over `repeats`. encode_ratio
(encode_ms, as published ÷ int8), feature_error (of int8, a picture it was not calibrated on, as a
share of the embeddings), video_tokens, parameters.
"""

from __future__ import annotations

import select
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from headstart.benchmarks import report
from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.engine import Engine
from headstart.engine.interfaces import View
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import RandomTensors, Tensors
from headstart.engine.models.checkpoint.words import byte_words
from headstart.engine.models.families import Loading
from headstart.engine.models.perception import samples
from headstart.engine.models.perception.clips import encode_picture
from headstart.engine.models.perception.interface import StreamModel, VideoFrame
from headstart.engine.models.pixtral import Pixtral
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
}


def run(repeats: int, *, as_json: bool) -> None:
    """Measure in turns and report."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in FORMS}
    made = {name: Bench(config) for name, config in FORMS.items()}
    for number in range(repeats):
        for name, bench in made.items():
            runs[name].append(bench.measure())
            report.say(f"{number + 1} of {repeats}, {name}: {runs[name][-1]}")
    rows = {name: _medians(runs[name]) for name in FORMS}
    for name, bench in made.items():
        rows[name]["encode_ms"] = bench.encode_ms()
    exact, int8 = (made[name].embeddings() for name in ("beside", "int8"))
    for bench in made.values():
        bench.engine.close()
    report.finish(
        "encoders",
        {
            "ratio": _ratio(rows["within"], rows["beside"], "wait_ms_max"),
            "encode_ratio": _ratio(rows["beside"], rows["int8"], "encode_ms"),
            "feature_error": round(float((int8 - exact).norm() / exact.norm()), 4),
            **rows,
            "video_tokens": PICTURES * (SIDE_PX // 16) * (SIDE_PX // 16 + 1),
            "parameters": made["within"].parameters,
            "repeats": repeats,
        },
        as_json=as_json,
    )


def _ratio(one: dict[str, float], other: dict[str, float], key: str) -> float:
    return round(one[key] / other[key], 2)


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(run[key] for run in runs), 1) for key in runs[0]}


class Bench:
    """An engine with the encoders of `form`."""

    def __init__(self, form: EngineConfig) -> None:
        self.events: list[api.Event] = []
        self.parameters = 0
        config = replace(form, weights="dummy", kv_pool_bytes=128 << 20)
        source = ModelSource("pixtral", lambda: byte_words(VOCABULARY), self._load, _built)
        self.engine, _ = assemble_source(source, config, self.events.append, lambda *told: None)

    def _load(self, how: Loading) -> StreamModel:
        tensors = RandomTensors(how.dtype)
        self.model = _built(how, tensors)
        self.parameters = tensors.nbytes // how.dtype.itemsize
        return self.model

    def embeddings(self) -> Tensor:
        """Of one picture, [tokens, hidden]."""
        frame = VideoFrame(samples.picture(99, SIDE_PX))
        ((_, cells),) = encode_picture(self.model, frame, live=True).units
        return cells

    def encode_ms(self) -> float:
        """The time that one picture takes by itself."""
        encoder = self.engine.parts.services.image_encoder
        stream = self.engine.parts.new_stream("encode")

        def encode() -> float:
            began_s = time.monotonic()
            view: View = encoder.encode_image(_picture(time.monotonic_ns()), stream)
            assert view.ids
            return time.monotonic() - began_s

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


def _built(how: Loading, tensors: Tensors) -> StreamModel:
    return Pixtral(tensors, Config(Path("pixtral"), SIZES), build=how.build)


def _picture(seed: int) -> api.Image:
    rgb = np.random.default_rng(seed).integers(0, 256, (SIDE_PX, SIDE_PX, 3), np.uint8)
    return api.Image(SIDE_PX, SIDE_PX, rgb.tobytes())
