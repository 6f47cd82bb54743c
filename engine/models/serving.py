"""An engine from a model directory: tokenizer, chat template, encoders and decoder of one model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from engine import api
from engine.blocks import BlockPool
from engine.cache import KvCache, paged
from engine.chat import ChatFormat
from engine.config import EngineConfig
from engine.core import Engine, EngineParts
from engine.errors import BadWeights
from engine.faculties import Faculties
from engine.models.decoders import in_int8, in_torch
from engine.models.directory import ModelDirectory
from engine.models.families import Loading, load
from engine.models.interface import StreamModel, TailPolicy
from engine.models.senses import ModelEars, ModelEyes
from engine.room import room_over
from engine.runner import Runner
from engine.sampling import SamplerFactory
from engine.scheduler import Scheduler
from engine.session import Emit
from engine.stream import Stream
from engine.tokenizer import Tokenizer
from kernels.native import set_threads

Report = Callable[[str, int, int], None]


def assemble_directory(
    folder: Path, config: EngineConfig, emit: Emit, report: Report
) -> tuple[Engine, api.ModelInfo]:
    """Load everything. Raises `BadWeights`, naming the file, the field or the tensor, or another
    `EngineError`."""
    began_s = time.monotonic()
    torch.set_num_threads(config.threads)
    set_threads(config.threads)
    report("tokenizer", 0, 0)
    tokenizer, chat = words_of(folder)
    how = Loading(
        dtype=torch.float32 if config.weights == "fp32" else torch.bfloat16,
        answer_opening=chat.assistant_open,
        progress=lambda done, total: report("weights", done, total),
        build=in_int8 if config.weights == "int8" else in_torch,
    )
    model = load(folder, how)
    spec = model.spec.decoder
    cache, pool = paged(spec, config)
    context_tokens = min(config.max_context_tokens, spec.context_tokens)
    parts = _parts(model, config, (cache, pool), (tokenizer, chat), context_tokens)
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    info = api.ModelInfo(
        name=folder.name,
        context_tokens=context_tokens,
        kv_bytes_per_token=cache.bytes_per_token,
        kv_pool_bytes=cache.pool_bytes,
        weights_bytes=stored,
        load_s=time.monotonic() - began_s,
    )
    return Engine(parts, emit), info


def _parts(
    model: StreamModel,
    config: EngineConfig,
    memory: tuple[KvCache, BlockPool],
    words: tuple[Tokenizer, ChatFormat],
    context_tokens: int,
) -> EngineParts:
    vocab_size, reach = model.spec.decoder.vocab_size, model.spec.decoder.context_tokens
    (cache, pool), (tokenizer, chat) = memory, words
    faculties = Faculties(
        chat=chat,
        tokenizer=tokenizer,
        ears=ModelEars(model, TailPolicy(config.tail)),
        eyes=ModelEyes(model),
        new_sampler=SamplerFactory(vocab_size),
        stop_ids=frozenset(chat.stop_ids),
        kv_bytes_per_token=cache.bytes_per_token,
    )
    return EngineParts(
        faculties=faculties,
        pool=pool,
        runner=Runner(model.decoder, cache),
        scheduler=Scheduler(config.token_budget),
        room=room_over(cache, pool, config),
        new_stream=lambda name: Stream(
            name, pool, vocab_size, context_tokens, model.new_positions(), reach
        ),
        clock=time.monotonic_ns,
        heard_together=config.heard_together,
    )


def words_of(folder: Path) -> tuple[Tokenizer, ChatFormat]:
    """tokenizer.json, and the chat template from where its makers put it."""
    directory = ModelDirectory(folder)
    settings = directory.optional("tokenizer_config.json")
    if settings is None:
        raise BadWeights(folder / "tokenizer_config.json", "file", "there to be one", "none")
    eos = settings.values.get("eos_token")
    spelled = eos["content"] if isinstance(eos, dict) else settings.text("eos_token")
    tokenizer = Tokenizer.from_json(folder / "tokenizer.json", spelled)
    jinja, other = folder / "chat_template.jinja", directory.optional("chat_template.json")
    if jinja.exists():
        return tokenizer, ChatFormat.from_template(jinja.read_text(), tokenizer, jinja)
    source = other if other is not None and "chat_template" in other else settings
    template = source.text("chat_template")
    return tokenizer, ChatFormat.from_template(template, tokenizer, source.path)
