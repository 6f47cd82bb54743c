"""Builds an engine from a model directory: tokenizer, chat template, encoders and decoder."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch

from headstart.engine import api
from headstart.engine.api.keys import BadKeys
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.projection import calibrate, int8_projections
from headstart.engine.decoder.sampling import SamplerFactory
from headstart.engine.device.choice import CPU, device_of, place_of, recognising_device
from headstart.engine.encoders.client import EncoderClient
from headstart.engine.encoders.elsewhere import VisionElsewhere
from headstart.engine.encoders.messages import identity_of
from headstart.engine.engine import Engine, EngineParts
from headstart.engine.errors import BadSettings
from headstart.engine.interfaces import ModelServices, SpeechRecognizer, StillEncoder
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.make_cache import make_cache
from headstart.engine.kvcache.storage import KvCache
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.checkpoint.parts import VISION, Digest
from headstart.engine.models.checkpoint.words import Words
from headstart.engine.models.families import Loading
from headstart.engine.models.footprint import check_fits
from headstart.engine.models.perception.captions import CaptionedRecognizer
from headstart.engine.models.perception.interface import StreamModel, TailPolicy
from headstart.engine.models.perception.picture_sizes import frame_size, still_size
from headstart.engine.models.perception.samples import encode_samples
from headstart.engine.models.perception.senses import ModelImageEncoder, ModelRecognizer
from headstart.engine.models.placed import placed
from headstart.engine.models.pooled import pooled, pooled_frame
from headstart.engine.models.source import ModelSource, loading_of, vision_settings
from headstart.engine.process.encoder_thread import EncoderThread, PictureInThread
from headstart.engine.process.local_parts import local_parts, thinning_of
from headstart.engine.process.recognizer import chosen_recognizer
from headstart.engine.process.stills import still_encoder
from headstart.engine.process.warm_up import record_steps, warm_up
from headstart.engine.scheduling.batch_size import BatchSize
from headstart.engine.scheduling.encode_queue import EncodeQueue
from headstart.engine.scheduling.runner import Runner
from headstart.engine.session.session import Emit
from headstart.kernels.native import limit_threads_here, set_threads

log = logging.getLogger("headstart.engine")

Report = Callable[[str, int, int], None]

FIRST_ENCODER_S = 120.0
"""How long an engine that is being loaded waits for its encoder process."""

# An audio unit longer than this is prefilled while it is open (measured in docs/models.md).
LONGEST_CLOSED_MS = 1000


def assemble_source(
    source: ModelSource,
    config: EngineConfig,
    emit: Emit,
    report: Report,
    transcriber: Sequence[Path] = (),
    detectors: Mapping[str, Path] = MappingProxyType({}),
) -> tuple[Engine, api.ModelInfo]:
    """Load everything and run it once. `transcriber`: folder of a Whisper to transcribe with,
    several if one is to be chosen (`engine.asr.chosen`). `detectors`: for
    `still_detail` (`engine.process.stills`).

    Raises `BadWeights` naming the file, field or tensor, or another `EngineError`.
    """
    began_s = time.monotonic()
    device, place = device_of(config), place_of(config)
    hears_on = recognising_device(config, device) if transcriber else CPU
    torch.set_num_threads(config.threads)
    set_threads(config.threads)
    report("tokenizer", 0, 0)  # first: it is small and may be wrong
    words = source.words()
    how = replace(
        loading_of(config),
        answer_opening=words.chat.assistant_open,
        progress=partial(report, "weights"),
    )
    if config.encoder_url is not None:
        how = replace(how, left_out=VISION, digest=Digest())
    weights_bytes = check_fits(source, how, config.kv_pool_bytes, *batch_of(config))
    with one_thread():
        stills = loaded(source, how, report, pictures=config.encoder_url is None)
        client = None
        if config.encoder_url is not None:
            client = _encoder_client(stills, how, config, report)
            stills = VisionElsewhere(stills, client)
        model = pooled(stills, config)
    spec = model.spec.decoder
    cache, pool = make_cache(spec, config) if place is None else place.make_cache(spec, config)
    held_tokens = pool.num_tokens
    context_tokens = min(config.max_context_tokens, spec.context_tokens, held_tokens)
    own = ModelRecognizer(model, tail_of(model, config))
    recognizer: SpeechRecognizer = own
    chosen = None
    if transcriber:
        report("transcriber", 0, 0)
        chosen = chosen_recognizer(transcriber, config, hears_on)
        recognizer = _with_words(own, model, chosen.recognizer)
    eyes = ModelImageEncoder(model, stills), still_encoder(stills, config, detectors)
    parts = _parts(model, recognizer, eyes, client, config, (cache, pool), words, context_tokens)
    engine = Engine(parts, emit)
    record_steps(model.decoder, cache)
    warm_up(engine, model, report, hears=model.spec.audio is not None or bool(transcriber))
    info = api.ModelInfo(
        name=source.name,
        context_tokens=context_tokens,
        kv_bytes_per_token=cache.bytes_per_token,
        kv_pool_bytes=cache.pool_bytes,
        weights_bytes=weights_bytes,
        load_s=time.monotonic() - began_s,
        still=still_size(
            model.spec.vision, context_tokens, by_regions=config.still_detail == "regions"
        ),
        frame=frame_size(model.spec.vision),
        pooled_frame=pooled_frame(model, config),
        ears=chosen.directory.name if chosen else "",
        ears_reason=chosen.reason if chosen else "",
        device=device.name,
        device_reason=device.reason,
        ears_device=chosen.device if chosen else "",
    )
    return engine, info


def batch_of(config: EngineConfig) -> tuple[int, int]:
    """The most pictures that are encoded at a time, and the most tokens of these."""
    return config.encoded_together, config.encoder_budget_tokens


def loaded(
    source: ModelSource,
    how: Loading,
    report: Report,
    *,
    pictures: bool = True,
    sounds: bool = True,
) -> StreamModel:
    """The model, its encoders where `how` says, and in int8 if it says so: calibrated on samples of
    what it has weights for."""
    if not how.int8_encoders:
        return placed(source.load(how), how.encoders)
    with int8_projections() as made:
        model = source.load(how)
    report("calibration", 0, 0)
    found = calibrate(made, partial(encode_samples, model, pictures=pictures, sounds=sounds))
    log.info(
        "encoders: %d of %d projections in int8 (%.2f %% off, at most %.2f), %d in float",
        found.projections - found.in_float,
        found.projections,
        100 * found.error_mean,
        100 * found.error_max,
        found.in_float,
    )
    return model


def _encoder_client(
    model: StreamModel, how: Loading, config: EngineConfig, report: Report
) -> EncoderClient:
    """The connection to the encoder process, which loads at the same time. Raises `BadSettings`."""
    if model.spec.vision is None:
        expected = f"thread: {model.spec.family} takes no pictures"
        raise BadSettings("encoder", expected, "process")
    assert config.encoder_url is not None
    assert how.digest is not None
    try:
        client = EncoderClient(
            config.encoder_url,
            identity_of(how.digest.hex(), vision_settings(config)),
            f"{os.uname().nodename}:{os.getpid()}",
            config.encoder_keys,
            config.encoder_limit_s,
        )
    except BadKeys as error:
        raise BadSettings("encoder_url", f"usable ({error})", config.encoder_url) from error
    if not client.wait(partial(report, "encoder process", 0, 0), FIRST_ENCODER_S):
        log.error("no encoder process after %.0f s: pictures fail until it comes", FIRST_ENCODER_S)
    return client


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one core: loading is many short operations, and two threads that synchronise
    after each take three times as long when another process wants a core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _with_words(
    recognizer: ModelRecognizer, model: StreamModel, words: SpeechRecognizer
) -> SpeechRecognizer:
    return words if model.spec.audio is None else CaptionedRecognizer(recognizer, words)


def _parts(
    model: StreamModel,
    recognizer: SpeechRecognizer,
    eyes: tuple[ModelImageEncoder, StillEncoder | None],
    client: EncoderClient | None,
    config: EngineConfig,
    memory: tuple[KvCache, BlockPool],
    words: Words,
    context_tokens: int,
) -> EngineParts:
    vocab_size, reach = model.spec.decoder.vocab_size, model.spec.decoder.context_tokens
    cache, pool = memory
    runner = Runner(model.decoder, cache, observes=config.kv_text_kept < 1)
    encoder, beside = eyes[0], None
    if config.encoders == "beside" and model.spec.vision is not None:
        beside = _encoder_thread(encoder, client, config)
    services = ModelServices(
        chat=words.chat,
        tokenizer=words.tokenizer,
        recognizer=recognizer,
        image_encoder=beside or encoder,
        stills=eyes[1],
        new_sampler=SamplerFactory(vocab_size),
        stop_ids=frozenset(words.chat.stop_ids),
        kv_bytes_per_token=cache.bytes_per_token,
        kv_narrow_bytes_per_token=cache.narrow_bytes_per_token,
        encoding=beside,
        thinning=thinning_of(config, runner),
    )

    def new_stream(name: str) -> Stream:
        held, positions = pool.num_tokens, model.new_positions()
        return Stream(name, pool, vocab_size, context_tokens, positions, reach, held=held)

    return local_parts(services, runner, pool, new_stream, words.tokenizer.mark_tokens(), config)


def _encoder_thread(
    encoder: ModelImageEncoder, client: EncoderClient | None, config: EngineConfig
) -> EncoderThread:
    together = BatchSize(config.encoded_together, config.encoder_target_ms)
    queue: EncodeQueue[PictureInThread] = EncodeQueue(config.encoder_budget_tokens, together)
    return EncoderThread(encoder, queue, prepare=partial(_prepare, config.threads), remote=client)


def _prepare(threads: int) -> None:
    """The encoder's thread has torch threads of its own; the kernels' are left to the decoder."""
    torch.set_num_threads(threads)
    limit_threads_here(1)


def tail_of(model: StreamModel, config: EngineConfig) -> TailPolicy:
    """The configured tail policy; "auto" depends on the length of the model's audio unit."""
    if config.tail != "auto":
        return TailPolicy(config.tail)
    heard = model.spec.audio
    long = heard is not None and heard.unit_ms > LONGEST_CLOSED_MS
    return TailPolicy.PROVISIONAL if long else TailPolicy.CLOSED
