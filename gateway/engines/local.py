"""Engine processes of this machine: their command lines, and each one's share of its cores.

Several engines here would otherwise each start a thread for every core. Each gets a block of
neighbouring cores of its own, so that no engine's step waits for another's threads, and K/V and
weights stay in the memory next to them. With fewer cores than engines each has one thread, and none
is tied to a core. Where `CUDA_VISIBLE_DEVICES` names several GPUs, each engine sees one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.gateway.engine_link import EngineLink
from headstart.gateway.runtime.child_process import ChildProcess, Pipes
from headstart.gateway.settings import Settings

CUDA = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Share:
    """What of this machine one of several engines may use. `cores` empty: all; `threads` 0: as many
    as there are cores; `gpu` empty: those that there are."""

    cores: tuple[int, ...] = ()
    threads: int = 0
    gpu: str = ""


def shares(
    engines: int,
    cores: Sequence[int],
    threads: int = 0,
    gpus: Sequence[str] = (),
    *,
    pin: bool = True,
) -> list[Share]:
    """One for each engine. `cores`: those of this process, in order; `threads`: of each engine; 0:
    by its share. `pin` False: a share is a number of threads, and no core is named."""
    if engines <= 1:
        return [Share(threads=threads)] * engines
    blocks = [
        tuple(cores[i * len(cores) // engines : (i + 1) * len(cores) // engines])
        for i in range(engines)
    ]
    if len(cores) < engines:
        blocks = [()] * engines
    seen = [gpus[i % len(gpus)] if len(gpus) > 1 else "" for i in range(engines)]
    return [
        Share(block if pin else (), threads or len(block) or 1, gpu)
        for block, gpu in zip(blocks, seen, strict=True)
    ]


def shares_here(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[Share]:
    """Those of the engines in the settings, on this machine."""
    can_pin = sys.platform == "linux"
    cores = sorted(os.sched_getaffinity(0)) if can_pin else list(range(os.cpu_count() or 1))
    gpus = [gpu for gpu in environment.get(CUDA, "").split(",") if gpu]
    return shares(
        settings.engines, cores, settings.threads, gpus, pin=settings.pin_engines and can_pin
    )


def names(settings: Settings) -> list[str]:
    """Of the engines in the settings: a single one is just "engine"."""
    base = settings.engine_name or "engine"
    count = settings.engines
    return [base] if count == 1 else [f"{base}-{number}" for number in range(1, count + 1)]


def name_elsewhere(settings: Settings) -> str:
    """What `headstart engine` calls itself, so that two on one machine differ; with keys it is
    known by its key."""
    if settings.engine_name is not None or settings.engine_keys is not None:
        return settings.engine_name or ""
    host = re.sub(r"[^a-z0-9]+", "-", os.uname().nodename.lower()).strip("-")[:20]
    return f"{host or 'engine'}-{os.getpid()}".replace("--", "-")


def engine_argv(
    settings: Settings,
    endpoint: str,
    name: str = "",
    share: Share | None = None,
    encoder: str | None = None,
) -> list[str]:
    """The command line of an engine process; `encoder`: address of the encoder process here."""
    share = share or Share(threads=settings.threads)
    module = "headstart.gateway.fake_engine" if settings.engine == "fake" else "headstart.engine"
    argv = [sys.executable, "-P", "-m", module, "--endpoint", endpoint, *_model_argv(settings)]
    if settings.engine == "local":
        argv += _encoder_arguments(settings, encoder)
    argv += ["--name", name] if name else []
    argv += ["--cores", ",".join(map(str, share.cores))] if share.cores else []
    if share.threads:
        argv += ["--threads", str(share.threads)]
    return argv + shlex.split(settings.engine_args)


def _encoder_arguments(settings: Settings, encoder: str | None) -> list[str]:
    if encoder is not None:
        return ["--encoder-url", encoder]
    if settings.encoder_url is None:
        return []
    keys = [] if settings.engine_keys is None else ["--encoder-keys", str(settings.engine_keys)]
    return ["--encoder-url", settings.encoder_url, *keys]


def wants_encoder(settings: Settings) -> bool:
    """Whether an encoder process is to be started beside the engines of this machine."""
    wanted = settings.encoder == "process" and settings.encoder_url is None
    return wanted and settings.engine == "local" and settings.engines > 0


def encoder_process(
    settings: Settings, address: str, keys: Path | None = None, name: str = "encoder"
) -> ChildProcess:
    """A supervised encoder process: it has the engines' model and settings, and any core."""
    argv = [sys.executable, "-P", "-m", "headstart.engine", "--serve-encoder", address]
    argv += _model_argv(settings)
    argv += ["--threads", str(settings.threads)] if settings.threads else []
    argv += ["--keys", str(keys)] if keys is not None else []
    argv += shlex.split(settings.engine_args)
    return ChildProcess(name, argv, environment=engine_environment(settings))


def _model_argv(settings: Settings) -> list[str]:
    """Which model, and how it is run."""
    argv = ["--model", settings.model]
    argv += ["--kv-pool-mib", str(settings.kv_pool_mib), "--kv-dtype", settings.kv_dtype]
    argv += ["--device", settings.device, "--ears-device", settings.ears_device]
    argv += ["--ears-language", settings.ears_language, "--adapter", settings.adapter]
    argv += ["--reading", settings.reading, "--frame-pooling", settings.frame_pooling]
    argv += ["--still-detail", settings.still_detail]
    argv += ["--kv-vision-dtype", settings.kv_vision_dtype]
    argv += ["--kv-text-kept", str(settings.kv_text_kept)]
    argv += ["--frame-tokens", str(settings.frame_tokens)]
    argv += ["--pooled-frames", str(settings.pooled_frames)]
    argv += ["--packed-cache-mib", str(settings.packed_cache_mib)]
    if settings.ears is not None:
        argv += ["--ears", settings.ears]
        argv += ["--ears-sessions", str(settings.ears_sessions)]
        argv += ["--chunk-ms", str(settings.chunk_ms)]
    argv += ["--weights", settings.weights, "--tail", settings.tail]
    argv += ["--transcribe", settings.transcribe]
    if settings.size is not None:
        argv += ["--size", settings.size]
    if settings.llm is not None and settings.engine == "local":
        for url in settings.llm_urls:
            argv += ["--llm", url]
        argv += ["--llm-sessions", str(settings.llm_sessions), "--senses", settings.senses]
        argv += ["--window-tokens", str(settings.window_tokens)]
        named = {"model": settings.llm_model, "key-env": settings.llm_key_env}
        named |= {"tokenizer": settings.tokenizer}
        for option, value in named.items():
            flag = f"--{option}" if option == "tokenizer" else f"--llm-{option}"
            argv += [flag, value] if value is not None else []
    return argv


def engine_environment(settings: Settings, share: Share | None = None) -> dict[str, str]:
    """Of an engine process: ours, with its `share` of cores and GPUs (default: all)."""
    share = share or Share(threads=settings.threads)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if share.threads:
        environment["OMP_NUM_THREADS"] = str(share.threads)
    if share.gpu:
        environment[CUDA] = share.gpu
    return environment


def engine_process(
    settings: Settings,
    endpoint: str,
    link: EngineLink | None = None,
    *,
    name: str = "engine",
    share: Share | None = None,
    encoder: str | None = None,
) -> ChildProcess:
    """A supervised engine process; `link` owns its address and is told when it dies. Without one it
    connects to a gateway elsewhere, with the keys of the settings. `encoder`: address of the
    encoder process here."""

    @contextlib.contextmanager
    def connect() -> Iterator[Pipes]:
        if link is not None:
            link.check_address()
        yield Pipes()

    def lost(how: str) -> None:
        if link is not None:
            link.lost(f"it ended: {how}")

    argv = engine_argv(settings, endpoint, name, share, encoder)
    if link is None and settings.engine_keys is not None:
        argv += ["--keys", str(settings.engine_keys)]
    environment = engine_environment(settings, share)
    called = name or "engine"
    return ChildProcess(called, argv, environment=environment, connect=connect, on_exit=lost)
