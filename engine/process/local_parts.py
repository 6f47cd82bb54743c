"""The parts of an engine that decodes itself, whatever its weights are read from."""

from __future__ import annotations

import time

from headstart.engine.backends.local import LocalBackend
from headstart.engine.config import EngineConfig
from headstart.engine.device.choice import step_sampler_of
from headstart.engine.engine import EngineParts
from headstart.engine.interfaces import ModelServices, Thinning
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.process.recognizer import heard_together, recognition_worker
from headstart.engine.scheduling.admission import admission_over
from headstart.engine.scheduling.runner import Runner
from headstart.engine.scheduling.scheduler import Scheduler
from headstart.engine.session.session import NewStream


def local_parts(
    services: ModelServices,
    runner: Runner,
    pool: BlockPool,
    new_stream: NewStream,
    marks: frozenset[int],
    config: EngineConfig,
) -> EngineParts:
    """`runner` decodes, over the cache whose blocks are those of `pool`. `marks`: the tokens that
    end a sentence."""
    admission = admission_over(runner.cache, pool, config)
    worker = recognition_worker(services.recognizer, config, runner.decoder)
    backend = LocalBackend(
        runner,
        Scheduler(config.token_budget, step_target_ms=config.step_target_ms),
        admission,
        next(iter(services.chat.user_close), None),
        time.monotonic_ns,
        marks,
        step_sampler_of(runner.decoder),
        holds=worker is None,
    )
    return EngineParts(
        services=services,
        pool=pool,
        backend=backend,
        admission=admission,
        new_stream=new_stream,
        clock=time.monotonic_ns,
        heard_together=heard_together(services.recognizer, config),
        recognition_worker=worker,
    )


def thinning_of(config: EngineConfig, runner: Runner) -> Thinning | None:
    """Eviction of words by attention, if the settings say so; `runner` must observe queries."""
    return Thinning(config.kv_text_kept, runner.attention) if config.kv_text_kept < 1 else None
