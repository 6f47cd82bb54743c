"""Loads a GGUF file into a runnable model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.adapter import Adapter
from headstart.engine.decoder.decoder import Decoder, TextDecoder
from headstart.engine.decoder.weights import WeightLoader
from headstart.engine.device.choice import place_of
from headstart.engine.device.decoder import DeviceDecoder
from headstart.engine.device.place import Place
from headstart.engine.device.weights import GgufSource, load
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.storage import KvCache, make_cache
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.runner import Runner
from headstart.kernels.native import default_backend

Progress = Callable[[str, int, int], None]  # what is loading, done, total (0: unknown)


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
            name, self.pool, spec.vocab_size, self.context_tokens, reach=spec.context_tokens
        )


def load_model(
    path: Path,
    config: EngineConfig,
    progress: Progress | None = None,
    adapter: Path | None = None,
) -> LoadedModel:
    """Read and validate everything, weights last; `adapter`: a LoRA's folder. Raises `BadWeights`,
    `UnsupportedModel` or `NoDevice`."""
    place = place_of(config)
    report = progress or (lambda what, done, total: None)
    report("header", 0, 0)
    file = GgufFile(path)
    spec = DecoderSpec.from_gguf(file)
    report("tokenizer", 0, 0)
    tokenizer = Tokenizer.from_gguf(file)
    chat = ChatFormat.from_gguf(file, tokenizer)
    lora = None if adapter is None else Adapter(adapter, spec)
    decoder = _decoder(file, spec, config, place, lora, report)
    file.close()  # the packed copies are ours: release the mapped pages
    context_tokens = min(config.max_context_tokens, spec.context_tokens)
    cache, pool = make_cache(spec, config) if place is None else place.make_cache(spec, config)
    runner = Runner(decoder, cache, observes=config.kv_text_kept < 1)
    return LoadedModel(spec, decoder, tokenizer, chat, cache, pool, runner, context_tokens)


def _decoder(
    file: GgufFile,
    spec: DecoderSpec,
    config: EngineConfig,
    place: Place | None,
    lora: Adapter | None,
    report: Progress,
) -> TextDecoder:
    def tick(done: int, total: int) -> None:
        report("weights", done, total)

    if place is not None:
        return DeviceDecoder(
            spec, load(GgufSource(file, spec, place, lora), spec, place, tick), place
        )
    backend = default_backend() if config.backend == "auto" else config.backend
    return Decoder(spec, WeightLoader(file, spec, backend, lora).load(tick), backend)
