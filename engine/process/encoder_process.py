"""The encoder process: a model directory's vision without its decoder, served to engines.

    python -m headstart.engine --serve-encoder ADDRESS --model DIRECTORY ...

It takes the command line of the engines that it serves, so that it has their model and settings.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import zmq

from headstart.engine.api.keys import BadKeys
from headstart.engine.config import MIB, EngineConfig
from headstart.engine.encoders.messages import Picture, identity_of
from headstart.engine.encoders.model_encoder import ModelEncoder
from headstart.engine.encoders.server import EncoderJob, EncoderServer
from headstart.engine.errors import BadSettings
from headstart.engine.models.checkpoint.parts import NOT_VISION, Digest
from headstart.engine.models.decoder.choice import in_torch
from headstart.engine.models.footprint import check_fits
from headstart.engine.models.perception.interface import ModelSpec
from headstart.engine.models.source import loading_of, vision_settings, vision_source_of
from headstart.engine.process.model_directory import batch_of, loaded, one_thread
from headstart.engine.scheduling.batch_size import BatchSize
from headstart.engine.scheduling.encode_queue import EncodeQueue
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.kernels.native import set_threads

log = logging.getLogger("headstart.engine")

WAITING_PICTURES = 64
"""Of one engine, which itself has one batch under way, and a picture within a step."""
CACHED_PICTURES = 16  # of the largest size
MOST_CACHED_BYTES = 256 * MIB
_FLOAT_BYTES = 4


def make_encoder(config: EngineConfig, endpoint: str, keys: Path | None = None) -> EncoderServer:
    """Load what encodes pictures and bind the address. Raises `BadSettings`, `BadWeights` or
    `NotEnoughMemory`."""
    began_s = time.monotonic()
    config = replace(config, device="cpu")  # where the encoders of a process run
    torch.set_num_threads(config.threads)
    set_threads(config.threads)
    source, digest = vision_source_of(config), Digest()
    how = replace(loading_of(config), build=in_torch, left_out=NOT_VISION, digest=digest)
    weights_bytes = check_fits(source, how, 0, *batch_of(config))
    with one_thread():
        model = loaded(source, how, _silent, sounds=False)
    if model.spec.vision is None:
        raise BadSettings("encoder", f"thread: {source.name} takes no pictures", "process")
    cache = EncoderCache[tuple[list[Picture] | None]](
        cache_bytes(model.spec, config), config.encoder_cache_ttl_s, clock=time.monotonic_ns
    )
    together = BatchSize(config.encoded_together, config.encoder_target_ms)
    queue = EncodeQueue[EncoderJob](config.encoder_budget_tokens, together, WAITING_PICTURES)
    identity = identity_of(digest.hex(), vision_settings(config))
    try:
        server = EncoderServer(
            endpoint,
            ModelEncoder(model),
            identity,
            queue,
            cache,
            keys=keys,
            prepare=partial(torch.set_num_threads, config.threads),
        )
    except (BadKeys, zmq.ZMQError) as error:
        raise BadSettings("serve_encoder", f"an address to serve at ({error})", endpoint) from error
    log.info(
        "the encoder of %s is ready after %.1f s: %.0f MB of weights, %s",
        source.name,
        time.monotonic() - began_s,
        weights_bytes / 1e6,
        identity,
    )
    return server


def cache_bytes(spec: ModelSpec, config: EngineConfig) -> int:
    """Room for some pictures of the largest size, or what the settings say, if that is more."""
    assert spec.vision is not None
    tokens = math.ceil(spec.vision.max_pixels / spec.vision.side_px**2)
    pictures = CACHED_PICTURES * tokens * spec.decoder.hidden * _FLOAT_BYTES
    return max(config.encoder_cache_bytes, min(pictures, MOST_CACHED_BYTES))


def serve_encoder(
    config: EngineConfig,
    endpoint: str,
    keys: Path | None,
    made: Callable[[EncoderServer], None],
) -> bool:
    """Serve until it is stopped; `made` gets the server, to stop it. False: it cannot go on."""
    server = make_encoder(config, endpoint, keys)
    made(server)
    server.serve()
    server.close()
    return server.stopping


def _silent(what: str, done: int, total: int) -> None:
    """Nobody waits for its progress."""
