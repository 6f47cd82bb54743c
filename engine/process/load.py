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
from headstart.engine.decoder.decoder import Decoder
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.storage import KvCache, make_cache
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.packed_weights import WeightSource, load_weights
from headstart.engine.process.start_clock import StartClock
from headstart.engine.scheduling.runner import Runner
from headstart.engine.weights import home
from headstart.engine.weights.packed_store import PackedStore
from headstart.kernels.native import default_backend

Progress = Callable[[str, int, int], None]  # what is loading, done, total (0: unknown)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder with everything it needs; `context_tokens` is the limit of one session."""

    spec: DecoderSpec
    decoder: Decoder
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
    clock: StartClock | None = None,
) -> LoadedModel:
    """Read and validate everything, weights last; `adapter`: a LoRA's folder; `clock` gets the
    stages. Raises `BadWeights` or `UnsupportedModel`."""
    report = progress or (lambda what, done, total: None)
    clock = clock or StartClock()
    report("header", 0, 0)
    with clock.stage("decoder header"):
        file = GgufFile(path)
        spec = DecoderSpec.from_gguf(file)
    report("tokenizer", 0, 0)
    with clock.stage("tokenizer"):
        tokenizer = Tokenizer.from_gguf(file)
        chat = ChatFormat.from_gguf(file, tokenizer)
    backend = default_backend() if config.backend == "auto" else config.backend
    lora = None if adapter is None else Adapter(adapter, spec)
    with clock.stage("decoder weights"):
        weights = load_weights(
            WeightSource(file, spec, backend, lora, adapter),
            PackedStore(home(), config.packed_cache_bytes),
            report,
        )
    file.close()  # the packed copies are ours: release the mapped pages
    context_tokens = min(config.max_context_tokens, spec.context_tokens)
    decoder = Decoder(spec, weights, backend)
    cache, pool = make_cache(spec, config)
    runner = Runner(decoder, cache, observes=config.kv_text_kept < 1)
    return LoadedModel(spec, decoder, tokenizer, chat, cache, pool, runner, context_tokens)
