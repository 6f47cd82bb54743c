"""The models that `headstart bench gpu` measures, and the engines that decode them.

`small` is its GGUF file if that is fetched, else one of random codes (`packed`); its words come
from a script, and its frames are notes of a fixed length, since its recogniser and labeller are the
CPU's. The others are full sizes with random bf16 weights: what they take is what they cost.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headstart.benchmarks.gpu.packed import SMALL, TINY, PackedSizes, write
from headstart.benchmarks.harness.scripted_words import ScriptedRecognizer
from headstart.engine import api
from headstart.engine.backends.local import LocalBackend
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.sampling import SamplerFactory
from headstart.engine.device.choice import step_sampler_of
from headstart.engine.device.decoder import DeviceDecoder
from headstart.engine.engine import Engine, EngineParts
from headstart.engine.interfaces import ModelServices, View
from headstart.engine.kvcache.storage import kv_bytes_per_token
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.checkpoint.text_config import decoder_spec
from headstart.engine.models.footprint import weights_bytes
from headstart.engine.models.sizes import QWEN2_VL, config_of
from headstart.engine.models.source import loading_of, source_of
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.process.model_directory import assemble_source
from headstart.engine.process.warm_up import record_steps
from headstart.engine.scheduling.admission import admission_over
from headstart.engine.scheduling.runner import Runner
from headstart.engine.scheduling.scheduler import Scheduler
from headstart.engine.weights import WeightsMissing, locate

GIB = 1 << 30
SMALL_WEIGHTS = "qwen2.5-coder-0.5b"
NOTE_TOKENS = 24
"""Of a frame that `small` sees: about what labels and colours come to."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One model. `packed`: sizes of a GGUF file; else `size` is a published one (`--size`), which
    `hears` by itself, or gets words from the script too."""

    name: str
    about: str
    pool_gib: float
    size: str = ""
    packed: PackedSizes | None = None
    hears: bool = True

    def config(self, device: str) -> EngineConfig:
        """Settings of the engine, on `device` cpu, cuda or cuda:N."""
        on_cpu = device == "cpu"
        return EngineConfig(
            device=device,
            backend="device" if on_cpu else "auto",
            weights="auto" if self.packed else "dummy",
            size=self.size or None,
            kv_pool_bytes=int(self.pool_gib * GIB),
            token_budget=64 if on_cpu else 1024,
            transcribe="off",
            reading="off",
            encoders="beside",
        )


MODELS = {
    "small": Measured("small", "0.5 billion weights as in its GGUF file", 8, packed=SMALL),
    "3b": Measured("3b", "Qwen2.5-Omni-3B's sizes", 24, size="3b"),
    "7b": Measured("7b", "Qwen2.5-Omni-7B's sizes", 32, size="7b"),
    "qwen2-vl-7b": Measured("qwen2-vl-7b", "Qwen2-VL-7B's sizes", 32, size=QWEN2_VL, hears=False),
    "tiny": Measured("tiny", "an Omni of two layers, to try this with", 0.0625, size="tiny"),
    "tiny-packed": Measured("tiny-packed", "two layers as in a GGUF file", 0.0625, packed=TINY),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The memory that a model will take, without its encoders' working memory. `step_bytes`: of the
    weights that each decode step reads, the decoder's but for its embedding."""

    weights_bytes: int
    step_bytes: int
    kv_pool_bytes: int
    kv_bytes_per_token: int

    def step_ms(self, gb_s: float) -> float:
        """The least time of a decode step, from memory of that speed."""
        return self.step_bytes / gb_s / 1e6

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_pool_bytes


def expected(model: Measured) -> Expected:
    """Computed from sizes; nothing is made."""
    pool = int(model.pool_gib * GIB)
    if model.packed is not None:
        sizes = model.packed
        head_dim = sizes.hidden // sizes.heads
        each = kv_bytes_per_token(sizes.layers, sizes.kv_heads, head_dim, "bf16")
        return Expected(sizes.weights_bytes, sizes.step_bytes, pool, each)
    config = model.config("cpu")
    source = source_of(config)
    assert source is not None
    spec = decoder_spec(config_of(model.size).part("text_config"))
    each = kv_bytes_per_token(spec.layers, spec.kv_heads, spec.head_dim, "bf16")
    return Expected(weights_bytes(source, loading_of(config)), _step_bytes(spec), pool, each)


def _step_bytes(spec: DecoderSpec) -> int:
    """In bf16."""
    attention = 2 * spec.hidden * (spec.q_width + spec.kv_width)
    layer = attention + 3 * spec.hidden * spec.ffn
    return 2 * (spec.layers * layer + spec.vocab_size * spec.hidden)


class Notes:
    """Frames as notes of `NOTE_TOKENS` words (`headstart.engine.interfaces.ImageEncoder`)."""

    def __init__(self, vocab_size: int) -> None:
        self._ids = [number * 7 % vocab_size for number in range(8, 8 + NOTE_TOKENS)]

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        key = str(image.rgb[:8].hex())
        return View(tuple(self._ids), f"picture {image.width} x {image.height}", key=key)


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine with its model. `weights`: where they are from; `load_s`: until the first step."""

    engine: Engine
    weights: str
    load_s: float

    def recorded(self) -> tuple[int, str | None]:
        """How many sizes of decode steps are CUDA graphs, and why no more can be."""
        backend = self.engine.parts.backend
        runner = backend.runner if isinstance(backend, LocalBackend) else None
        if not isinstance(runner, Runner) or not isinstance(runner.decoder, DeviceDecoder):
            return 0, None
        return runner.decoder.recordings(runner.cache)


def loaded(model: Measured, device: str, emit: Callable[[api.Event], None]) -> Loaded:
    """Raises an `EngineError`, such as `NoDevice` or `NotEnoughMemory`."""
    began_s = time.monotonic()
    config = model.config(device)
    if model.packed is not None:
        with _file(model) as (path, origin):  # mapped, so it need not last
            decoded = load_model(path, config)
        record_steps(decoded.decoder, decoded.cache)
        engine = _on_packed(decoded, config, emit)
    else:
        source = source_of(config)
        assert source is not None
        engine, _ = assemble_source(source, config, emit, lambda *_: None)
        if not model.hears:
            services = replace(engine.parts.services, recognizer=ScriptedRecognizer())
            engine = Engine(replace(engine.parts, services=services), emit)
        origin = "random bf16"
    return Loaded(engine, origin, time.monotonic() - began_s)


@contextmanager
def _file(model: Measured) -> Iterator[tuple[Path, str]]:
    """A GGUF file of the model's, and where it is from. One that is made is deleted."""
    fetched = _fetched() if model.packed is SMALL else None
    if fetched is not None:
        yield fetched, "fetched"
        return
    assert model.packed is not None
    with tempfile.TemporaryDirectory(prefix="headstart-bench-") as folder:
        yield write(Path(folder) / f"{model.name}.gguf", model.packed), "random codes"


def _fetched() -> Path | None:
    try:
        return locate(SMALL_WEIGHTS)
    except WeightsMissing:
        return None


def _on_packed(
    model: LoadedModel, config: EngineConfig, emit: Callable[[api.Event], None]
) -> Engine:
    services = ModelServices(
        chat=model.chat,
        tokenizer=model.tokenizer,
        recognizer=ScriptedRecognizer(),
        image_encoder=Notes(model.spec.vocab_size),
        new_sampler=SamplerFactory(model.spec.vocab_size),
        stop_ids=frozenset(model.chat.stop_ids),
        kv_bytes_per_token=model.cache.bytes_per_token,
    )
    admission = admission_over(model.cache, model.pool, config)
    end = next(iter(model.chat.user_close), None)
    marks, sampler = model.tokenizer.mark_tokens(), step_sampler_of(model.decoder)
    scheduler = Scheduler(config.token_budget)
    backend = LocalBackend(
        model.runner, scheduler, admission, end, time.monotonic_ns, marks, sampler
    )
    parts = EngineParts(
        services=services,
        pool=model.pool,
        backend=backend,
        admission=admission,
        new_stream=model.new_stream,
        clock=time.monotonic_ns,
    )
    return Engine(parts, emit)
