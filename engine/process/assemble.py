"""Builds an engine from packaged weights: decoder, recogniser, image encoder."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from headstart.engine import api
from headstart.engine.asr.chosen import ChosenRecognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.adapter import chosen_adapter
from headstart.engine.decoder.sampling import SamplerFactory
from headstart.engine.device.choice import Choice, device_of, recognising_device
from headstart.engine.engine import Engine, EngineParts
from headstart.engine.errors import BadSettings
from headstart.engine.interfaces import ModelServices, View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.cached_labeller import CachedLabeller
from headstart.engine.process.header import Header
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.process.local_parts import local_parts, thinning_of
from headstart.engine.process.picture_reader import frame_size, reader_of, still_size
from headstart.engine.process.recognizer import chosen_recognizer
from headstart.engine.process.start_clock import StartClock
from headstart.engine.process.unused_memory import give_back, trim_heap
from headstart.engine.process.warm_up import record_steps
from headstart.engine.session.session import Emit
from headstart.engine.vision import Connector, FrameLabeller, FrameLabels
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.reading.background import BackgroundReader
from headstart.engine.weights import ResolvedModel
from headstart.kernels.native import default_backend, set_threads

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ModelPaths:
    """The files of one model."""

    name: str
    llm: Path
    ears: Path
    eyes: Path
    class_names: Path
    faces: Path | None = None
    reading: Path | None = None
    adapter: Path | None = None  # a LoRA of the language model
    better_ears: tuple[Path, ...] | None = None  # in place of `ears` where there is time for them

    @classmethod
    def of(cls, found: ResolvedModel, adapter: str = "auto") -> ModelPaths:
        """The files of a packaged model; `adapter` as in `EngineConfig.adapter`."""
        return cls(
            name=found.name,
            llm=found.llm,
            ears=found.ears,
            eyes=found.eyes,
            class_names=found.names,
            faces=found.faces,
            reading=found.reading,
            adapter=chosen_adapter(adapter, found.adapter),
        )

    @property
    def weights_bytes(self) -> int:
        """Size on disk of all files."""
        parts = (self.llm, self.ears, self.eyes, self.faces, self.reading, self.adapter)
        files = (f for p in parts if p for f in (p.rglob("*") if p.is_dir() else (p,)))
        return sum(f.stat().st_size for f in files if f.is_file())


class LabelledImageEncoder:
    """`headstart.engine.interfaces.ImageEncoder` over the image network and the connector."""

    def __init__(self, labeller: CachedLabeller, connector: Connector) -> None:
        self._labeller = labeller
        self._connector = connector

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        """Visual tokens of a picture in `stream`; stills and live frames are treated alike."""
        projected = self._connector.project(self._labeller.label(image, stream.share_domain))
        ids = stream.soft.intern(projected.embeddings.numpy())
        return View(tuple(ids), projected.text, key=projected.text)


def assemble(
    paths: ModelPaths,
    config: EngineConfig,
    emit: Emit,
    report: Report,
    clock: StartClock | None = None,
    header: Header | None = None,
) -> tuple[Engine, api.ModelInfo]:
    """Load everything, in three threads, and run it once. `clock` gets the stages; `header`: the
    decoder's, if it has been read.

    Raises `BadWeights`, which names the file that is wrong, or another `EngineError`.
    """
    clock = clock or StartClock()
    began_s = time.monotonic()
    require_no_pooling(config)
    device = device_of(config)  # first: nothing is loaded in vain
    hears_on = recognising_device(config, device)
    # The kernels have threads of their own; torch's would compete with them.
    native = "reference" not in (config.backend, default_backend())
    torch.set_num_threads(1 if native else config.threads)
    set_threads(config.threads)
    with ThreadPoolExecutor(2, "load") as pool:
        report("ears", 0, 0)
        hearing = pool.submit(_recognizer, paths, config, hears_on, clock)
        if paths.better_ears is not None:
            wait([hearing])  # it times them, which nothing may disturb
            hearing.result()
        seeing = pool.submit(_eyes, paths, config, clock)
        report("language model", 0, 0)
        model = load_model(paths.llm, config, report, paths.adapter, clock, header)
        report("ears", 0, 0)
        chosen = hearing.result()
        report("eyes", 0, 0)
        labeller, reader = seeing.result()
    paths = replace(paths, ears=chosen.directory)
    labels_cache = EncoderCache[FrameLabels](
        config.encoder_cache_bytes, config.encoder_cache_ttl_s, clock=time.monotonic_ns
    )
    eyes = LabelledImageEncoder(
        CachedLabeller(labeller, labels_cache),
        Connector(model.tokenizer.encode, model.decoder.embed, model.spec.hidden),
    )
    engine = Engine(_parts(model, chosen.recognizer, eyes, reader, config), emit)
    with clock.stage("warm-up"):
        give_back()
        record_steps(model.decoder, model.cache)
        _warm_up(engine, chosen.recognizer, report)
        trim_heap()
    info = api.ModelInfo(
        name=paths.name,
        context_tokens=model.context_tokens,
        kv_bytes_per_token=model.cache.bytes_per_token,
        kv_pool_bytes=model.cache.pool_bytes,
        weights_bytes=paths.weights_bytes,
        load_s=time.monotonic() - began_s,
        load_stages_s=clock.stages_s(),
        still=still_size(reader),
        frame=frame_size(reader),
        ears=paths.ears.name,
        ears_reason=chosen.reason,
        device=device.name,
        device_reason=device.reason,
        ears_device=chosen.device,
    )
    return engine, info


def require_no_pooling(config: EngineConfig) -> None:
    """Raises `BadSettings` if pictures shall have fewer tokens, or smaller K/V: notes on them have
    no more than words, and are words."""
    if config.still_detail != "full":
        expected = "full: a packaged model gets notes on its pictures, not their tokens"
        raise BadSettings("still_detail", expected, config.still_detail)
    if config.frame_pooling not in ("auto", "off"):
        expected = "auto or off: a packaged model gets notes on its pictures, not their tokens"
        raise BadSettings("frame_pooling", expected, config.frame_pooling)
    if config.kv_vision_dtype != "same":
        expected = "same: a packaged model gets notes on its pictures, which are words"
        raise BadSettings("kv_vision_dtype", expected, config.kv_vision_dtype)


def _recognizer(
    paths: ModelPaths, config: EngineConfig, device: Choice, clock: StartClock
) -> ChosenRecognizer:
    with clock.stage("recogniser"):
        return chosen_recognizer((*(paths.better_ears or ()), paths.ears), config, device)


def _eyes(
    paths: ModelPaths, config: EngineConfig, clock: StartClock
) -> tuple[FrameLabeller, BackgroundReader | None]:
    with clock.stage("eyes"):
        labeller = FrameLabeller.load(paths.eyes, paths.class_names, paths.faces)
        return labeller, reader_of(paths.reading, config)


def _parts(
    model: LoadedModel,
    recognizer: WhisperRecognizer,
    eyes: LabelledImageEncoder,
    reader: BackgroundReader | None,
    config: EngineConfig,
) -> EngineParts:
    services = ModelServices(
        chat=model.chat,
        tokenizer=model.tokenizer,
        recognizer=recognizer,
        image_encoder=eyes,
        new_sampler=SamplerFactory(model.spec.vocab_size),
        stop_ids=frozenset(model.chat.stop_ids),
        kv_bytes_per_token=model.cache.bytes_per_token,
        reader=reader,
        thinning=thinning_of(config, model.runner),
    )
    marks = model.tokenizer.mark_tokens()
    return local_parts(services, model.runner, model.pool, model.new_stream, marks, config)


def _warm_up(engine: Engine, recognizer: WhisperRecognizer, report: Report) -> None:
    """Run every path once, so that the first user does not pay for cold caches."""
    report("warm-up", 0, 0)
    recognizer.recognize(recognizer.open(), np.zeros(api.SAMPLE_RATE_HZ, np.float32))
    session = "warm-up"
    engine.receive(api.Open(session, "Be brief."))
    sampling = api.Sampling(max_tokens=2)
    engine.receive(api.Respond(session, generation=1, item_id="warm-up", sampling=sampling))
    while engine.step():
        report("warm-up", 0, 0)
    engine.receive(api.Close(session))
