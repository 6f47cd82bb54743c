"""Loads a GGUF file into a runnable model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.adapter import Adapter
from headstart.engine.decoder.decoder import Decoder, TextDecoder
from headstart.engine.device.choice import place_of
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.make_cache import make_cache
from headstart.engine.kvcache.storage import KvCache
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.header import Header, Progress, read_header
from headstart.engine.process.packed_weights import WeightSource, load_weights
from headstart.engine.process.start_clock import StartClock
from headstart.engine.scheduling.runner import Runner
from headstart.engine.weights import home
from headstart.engine.weights.packed_store import PackedStore
from headstart.kernels.native import default_backend


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder with everything it needs; `context_tokens` is the limit of one session."""

    spec: DecoderSpec
    decoder: TextDecoder
    tokenizer: Tokenizer
    chat: ChatFormat
    cache: KvCache
    pool: BlockPool
    runner: Runner
    context_tokens: int

    def new_stream(self, name: str) -> Stream:
        spec = self.spec
        return Stream(
            name,
            self.pool,
            spec.vocab_size,
            self.context_tokens,
            reach=spec.context_tokens,
            held=self.pool.num_tokens,
        )


def load_model(
    path: Path,
    config: EngineConfig,
    progress: Progress | None = None,
    adapter: Path | None = None,
    clock: StartClock | None = None,
    header: Header | None = None,
) -> LoadedModel:
    """Read and validate everything, weights last; `adapter`: a LoRA's folder; `clock` gets the
    stages; `header`: that of the file, if it has been read. Raises `BadWeights`, `UnsupportedModel`
    or `NoDevice`."""
    place = place_of(config)
    report = progress or (lambda what, done, total: None)
    clock = clock or StartClock()
    if header is None:
        header = read_header(path, report, clock)
    file, spec = header.file, header.spec
    backend = default_backend() if config.backend == "auto" else config.backend
    lora = None if adapter is None else Adapter(adapter, spec)
    decoder: TextDecoder
    with clock.stage("decoder weights"):
        if place is None:
            source = WeightSource(file, spec, backend, lora, adapter)
            store = PackedStore(home(), config.packed_cache_bytes)
            decoder = Decoder(spec, load_weights(source, store, report), backend)
        else:
            from headstart.engine.device.decoder import DeviceDecoder
            from headstart.engine.device.weights import GgufSource
            from headstart.engine.device.weights import load as load_onto_device

            on_device = load_onto_device(
                GgufSource(file, spec, place, lora), spec, place, partial(report, "weights")
            )
            decoder = DeviceDecoder(spec, on_device, place)
    file.close()  # the packed copies are ours: release the mapped pages
    cache, pool = make_cache(spec, config) if place is None else place.make_cache(spec, config)
    held_tokens = pool.num_tokens
    context_tokens = min(config.max_context_tokens, spec.context_tokens, held_tokens)
    runner = Runner(decoder, cache, observes=config.kv_text_kept < 1)
    return LoadedModel(
        spec, decoder, header.tokenizer, header.chat, cache, pool, runner, context_tokens
    )
