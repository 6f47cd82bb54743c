"""The engine process: `python -m headstart.engine --endpoint ADDRESS --model NAME`.

With `--serve-encoder ADDRESS` in place of `--endpoint` it is an encoder process instead, which
encodes the pictures of engines with `--encoder-url ADDRESS`, and has no decoder.

Exit codes: 0 stopped by a signal or because the gateway ended; 2 the settings are invalid; 3 it was
drained (SIGUSR1): its last session is gone.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from headstart.engine.api.keys import BadKeys
from headstart.engine.config import (
    CHOICES,
    LLM_CHOICES,
    EngineConfig,
    LlmServerConfig,
    process_default,
)
from headstart.engine.errors import BadSettings, EngineError
from headstart.engine.process.ipc import GatewayLink
from headstart.engine.process.start_clock import StartClock
from headstart.engine.process.torch_import import import_torch, load_libraries
from headstart.engine.process.unused_memory import limit_arenas
from headstart.kernels.errors import KernelSetupError

if TYPE_CHECKING:
    from headstart.engine.api import ModelInfo
    from headstart.engine.encoders.server import EncoderServer
    from headstart.engine.engine import Engine

log = logging.getLogger("headstart.engine")

EXIT_BROKEN = 1
EXIT_REFUSED = 2
EXIT_DRAINED = 3
MIB = 1 << 20


def main() -> None:
    """Load the model and serve until stopped."""
    clock = StartClock()
    limit_arenas()
    gc.disable()  # what is loaded stays: looking through it again and again takes a tenth of it all
    arguments = _arguments()
    logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stderr)
    if arguments.cores:
        os.sched_setaffinity(0, arguments.cores)
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # before torch makes its pool
    # numpy's pool waits for work by spinning, and gets none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if arguments.serve_encoder is not None:
        _encode(arguments)
        return
    try:
        link = GatewayLink(arguments.endpoint, arguments.name, arguments.keys)
    except BadKeys as error:
        log.error("%s", error)
        sys.exit(EXIT_REFUSED)

    def drain(_number: int, _frame: FrameType | None) -> None:
        if link.model is None:
            sys.exit(EXIT_DRAINED)  # still loading: it has no session
        link.draining = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        if link.model is None:
            sys.exit(0)  # still loading: nothing to clean up
        link.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGUSR1, drain)
    try:
        _serve(link, arguments, clock)
    except (EngineError, KernelSetupError) as error:
        log.error("%s", error)
        sys.exit(EXIT_REFUSED)
    finally:
        link.close()
    if link.left:
        sys.exit(EXIT_DRAINED)


def _encode(arguments: argparse.Namespace) -> None:
    """Be an encoder process."""
    from headstart.engine.process.encoder_process import serve_encoder

    def loaded(server: EncoderServer) -> None:
        _collect_again()

        def stop(_number: int, _frame: FrameType | None) -> None:
            server.stopping = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

    for number in (signal.SIGTERM, signal.SIGINT):  # still loading: nothing to clean up
        signal.signal(number, lambda _number, _frame: sys.exit(0))
    try:
        config = _config(arguments)
        ended = serve_encoder(config, arguments.serve_encoder, arguments.keys, loaded)
    except (EngineError, KernelSetupError) as error:
        log.error("%s", error)
        sys.exit(EXIT_REFUSED)
    sys.exit(0 if ended else EXIT_BROKEN)


def _serve(link: GatewayLink, arguments: argparse.Namespace, clock: StartClock) -> None:
    link.loading("libraries", 0, 0)  # torch, which takes seconds to import
    config = _config(arguments)
    if config.encoder_url is not None and (arguments.llm or config.is_packaged):
        expected = "none: only model directories have an encoder process"
        raise BadSettings("encoder_url", expected, config.encoder_url)
    if arguments.llm is not None:
        engine, model = _behind_llm_server(link, arguments, config)
    elif config.is_packaged:
        engine, model = _packaged(link, arguments.ears, config, clock)
    else:
        engine, model = _own_model(link, arguments.ears, config)
    log.info("%s is ready after %.1f s", model.name, model.load_s)
    _collect_again()
    link.serve(engine, model)


def _collect_again() -> None:
    """Collect garbage from now on, without looking through what is loaded. One collection before
    that frees the cycles that loading left, such as the mapped header of a GGUF file. It skips the
    objects that imports made, most of all: they were frozen before, and hardly any is garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _config(arguments: argparse.Namespace) -> EngineConfig:
    """Raises `BadSettings`."""
    return EngineConfig(
        model=arguments.model,
        ears_language=arguments.ears_language,
        ears_sessions=arguments.ears_sessions,
        chunk_ms=arguments.chunk_ms,
        ears_device=arguments.ears_device,
        adapter=arguments.adapter,
        kv_pool_bytes=arguments.kv_pool_mib * MIB,
        kv_dtype=arguments.kv_dtype,
        kv_vision_dtype=arguments.kv_vision_dtype,
        device=arguments.device,
        offload_bytes=arguments.offload_mib * MIB,
        idle_after_s=arguments.idle_after_s,
        heard_together=arguments.heard_together,
        recognition=arguments.recognition,
        token_budget=arguments.token_budget,
        step_target_ms=arguments.step_target_ms,
        encoders=arguments.encoders,
        encoder_weights=arguments.encoder_weights,
        encoder_budget_tokens=arguments.encoder_budget_tokens,
        encoded_together=arguments.encoded_together,
        encoder_target_ms=arguments.encoder_target_ms,
        encoder_url=arguments.encoder_url,
        encoder_keys=arguments.encoder_keys,
        encoder_limit_s=arguments.encoder_limit_s,
        encoder_cache_bytes=arguments.encoder_cache_mib * MIB,
        encoder_cache_ttl_s=arguments.encoder_cache_ttl_s,
        packed_cache_bytes=arguments.packed_cache_mib * MIB,
        prefix_sharing=not arguments.no_prefix_sharing,
        weights=arguments.weights,
        size=arguments.size,
        tail=arguments.tail,
        transcribe=arguments.transcribe,
        reading=arguments.reading,
        kv_text_kept=arguments.kv_text_kept,
        still_detail=arguments.still_detail,
        frame_pooling=arguments.frame_pooling,
        frame_tokens=arguments.frame_tokens,
        pooled_frames=arguments.pooled_frames,
        **({"threads": arguments.threads} if arguments.threads else {}),
    )


def _packaged(
    link: GatewayLink, ears_name: str | None, config: EngineConfig, clock: StartClock
) -> tuple[Engine, ModelInfo]:
    """An engine on packaged weights by name, fetched if necessary."""
    progress = _FetchProgress(link)
    with clock.stage("imports"):
        from headstart.engine.asr.named import AUTO, find_recognizer
        from headstart.engine.process.header import read_header
        from headstart.engine.weights import resolve_model

        if on_cpu := config.device in ("auto", "cpu"):
            load_libraries()
    named = None if ears_name == AUTO else ears_name
    ears = find_recognizer(named, progress) if named else None
    reading = config.reading != "off"
    found = resolve_model(config.model, progress, ears=ears, reading=reading)
    header = read_header(found.llm, link.loading, clock)
    with clock.stage("imports"):
        if on_cpu:
            import_torch()
        from headstart.engine.asr.chosen import candidates
        from headstart.engine.process.assemble import ModelPaths, assemble
    gc.freeze()
    paths = ModelPaths.of(found, config.adapter)
    if ears_name == AUTO:
        *better, last = candidates(paths.ears, config.ears_language)
        paths = replace(paths, ears=last, better_ears=tuple(better))
    return assemble(paths, config, link.send, link.loading, clock, header)


def _own_model(
    link: GatewayLink, ears_name: str | None, config: EngineConfig
) -> tuple[Engine, ModelInfo]:
    """An engine on a model directory, or on random weights."""
    from headstart.engine.models.perception.captions import find_transcriber
    from headstart.engine.models.source import source_of
    from headstart.engine.process.model_directory import assemble_source
    from headstart.engine.process.stills import find_detectors

    source = source_of(config)
    assert source is not None
    progress = _FetchProgress(link)
    ears = find_transcriber(config.transcribe, ears_name, config.ears_language, progress)
    detectors = find_detectors(config.still_detail, progress)
    return assemble_source(source, config, link.send, link.loading, ears, detectors)


def _behind_llm_server(
    link: GatewayLink, arguments: argparse.Namespace, config: EngineConfig
) -> tuple[Engine, ModelInfo]:
    """An engine with a packaged model's recogniser and labeller, and an LLM server's decoder."""
    from headstart.engine.asr.chosen import candidates
    from headstart.engine.asr.named import AUTO, find_recognizer
    from headstart.engine.process.llm_server import assemble_llm_server
    from headstart.engine.weights import resolve_senses

    server = LlmServerConfig(
        urls=tuple(arguments.llm),
        model=arguments.llm_model,
        key_env=arguments.llm_key_env,
        tokenizer=arguments.tokenizer,
        window_tokens=arguments.window_tokens,
        sessions=arguments.llm_sessions,
        senses=arguments.senses,
    )
    progress = _FetchProgress(link)
    auto = arguments.ears == AUTO
    ears = find_recognizer(arguments.ears, progress) if arguments.ears and not auto else None
    reading = config.reading != "off"
    senses = resolve_senses(config.model, progress, ears=ears, reading=reading)
    hearing = candidates(senses.ears, config.ears_language) if auto else (senses.ears,)
    return assemble_llm_server(server, senses, hearing, config, link.send, link.loading)


class _FetchProgress:
    """Sends download progress to the gateway."""

    def __init__(self, link: GatewayLink) -> None:
        self._link = link

    def note(self, text: str) -> None:
        log.info("%s", text)

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        self._link.loading(f"fetching {weight}", done_bytes, total_bytes)


def _cores(text: str) -> tuple[int, ...]:
    return tuple(int(core) for core in text.split(","))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headstart.engine", description=__doc__)
    _add_process(parser)
    _add_model(parser.add_argument_group("model"))
    _add_llm_server(parser.add_argument_group("LLM server"))
    _add_hearing(parser.add_argument_group("speech recognition"))
    _add_pictures(parser.add_argument_group("pictures"))
    _add_memory(parser.add_argument_group("memory"))
    _add_steps(parser.add_argument_group("steps"))
    return parser.parse_args()


def _add_setting(
    group: argparse._ArgumentGroup,
    flag: str,
    meaning: str,
    of: type[EngineConfig | LlmServerConfig] = EngineConfig,
) -> None:
    """An option with the default, type and values of a setting, which is named like it; one of
    bytes is in MiB here, and those of LLM servers are named `--llm-…`, or as the setting."""
    name = flag.removeprefix("--").replace("-", "_")
    if of is LlmServerConfig:
        name = name.removeprefix("llm_")
    if name.endswith("_mib"):
        default = process_default(f"{name.removesuffix('_mib')}_bytes", of) // MIB
    else:
        default = process_default(name, of)
    kind = str if default is None else type(default)
    choices = CHOICES.get(name, LLM_CHOICES.get(name))
    group.add_argument(flag, default=default, type=kind, choices=choices, help=meaning)


def _add_process(parser: argparse.ArgumentParser) -> None:
    role = parser.add_mutually_exclusive_group(required=True)
    role.add_argument("--endpoint", help="ZeroMQ address of the gateway")
    encoder = "be an encoder process for engines, at this ZeroMQ address"
    role.add_argument("--serve-encoder", metavar="ADDRESS", help=encoder)
    parser.add_argument("--name", default="", help="its name among the engines of the gateway")
    keys = "folder of CURVE keys, made by `headstart keys`; needed beyond this machine"
    parser.add_argument("--keys", type=Path, help=keys)
    cores = "the cores it may use, such as 0,1,2; default: those of its parent"
    parser.add_argument("--cores", type=_cores, default=(), help=cores)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores this process may use")


def _add_model(group: argparse._ArgumentGroup) -> None:
    models = "medium, small, tiny, or a model directory"
    _add_setting(group, "--model", models)
    _add_setting(group, "--weights", "form of a model directory's weights")
    sizes = "with dummy weights: 3b, 7b, qwen2-vl-7b or tiny, in place of a directory"
    _add_setting(group, "--size", sizes)
    lora = "folder of a LoRA for the language model (PEFT); auto: the model's own; off: none"
    _add_setting(group, "--adapter", lora)
    _add_setting(group, "--device", "what decodes: auto, cpu, cuda or cuda:N")
    _add_setting(group, "--tail", "how much of an open audio unit a model directory reads")


def _add_llm_server(group: argparse._ArgumentGroup) -> None:
    llm = "URL of an LLM server that decodes in place of the model; again for each of several"
    group.add_argument("--llm", action="append", help=llm)
    model = "which model of the LLM server; default: its only one"
    _add_setting(group, "--llm-model", model, LlmServerConfig)
    key = "environment variable with the LLM server's key"
    _add_setting(group, "--llm-key-env", key, LlmServerConfig)
    most = "most sessions at each LLM server; 0: no limit"
    _add_setting(group, "--llm-sessions", most, LlmServerConfig)
    tokenizer = "tokenizer of the LLM server's model: a folder, or a GGUF file"
    _add_setting(group, "--tokenizer", tokenizer, LlmServerConfig)
    senses = "whether pictures and sounds go to the LLM server's model; auto: if it takes them"
    _add_setting(group, "--senses", senses, LlmServerConfig)
    window = "context that sessions ask for of an LLM server; 0: what there is"
    _add_setting(group, "--window-tokens", window, LlmServerConfig)


def _add_hearing(group: argparse._ArgumentGroup) -> None:
    ears = "Whisper for speech recognition: a folder, packaged weights, or auto: the largest that "
    group.add_argument("--ears", help=ears + "keeps up; default: the model's own")
    _add_setting(group, "--ears-language", "language code such as en, or auto")
    at_once = "simultaneous speakers that --ears auto must keep up with"
    _add_setting(group, "--ears-sessions", at_once)
    _add_setting(group, "--chunk-ms", "duration of an audio chunk")
    _add_setting(group, "--transcribe", "whether a Whisper transcribes beside a model directory")
    together = "sessions whose audio shares one recogniser pass, at most; 0: by load and device"
    _add_setting(group, "--heard-together", together)
    device = "what recognises speech: auto (the GPU that decodes, if one does), or as --device"
    _add_setting(group, "--ears-device", device)
    where = "where the recogniser runs: in a thread beside the decoder's steps, within them, or "
    _add_setting(group, "--recognition", where + "auto: beside if a GPU decodes or recognises")


def _add_pictures(group: argparse._ArgumentGroup) -> None:
    _add_setting(group, "--reading", "whether a packaged model reads what is written in pictures")
    detail = "resolution of a picture in a message to a model directory; asked: by the question"
    _add_setting(group, "--still-detail", detail)
    pooling = "how a model directory's camera frames become fewer tokens; auto: if asked for"
    _add_setting(group, "--frame-pooling", pooling)
    fewer = "tokens of a frame, or of a group of frames, with --frame-pooling mean or merge"
    _add_setting(group, "--frame-tokens", fewer)
    units = "vision units that --frame-pooling makes one group of"
    _add_setting(group, "--pooled-frames", units)
    where = "where a model directory encodes pictures: beside the steps, or within them"
    _add_setting(group, "--encoders", where)
    form = "int8: weights of a model directory's encoders in int8, calibrated when loaded"
    _add_setting(group, "--encoder-weights", form)
    most = "tokens of the pictures in one batch of an encoder beside"
    _add_setting(group, "--encoder-budget-tokens", most)
    together = "pictures of one size in one batch of an encoder beside"
    _add_setting(group, "--encoded-together", together)
    kept = "what encoders made of pictures that may come again, MiB; 0: as little as is needed"
    _add_setting(group, "--encoder-cache-mib", kept)
    unused = "seconds without use after which that is given up"
    _add_setting(group, "--encoder-cache-ttl-s", unused)
    near = "duration to keep such batches near, by fewer pictures; 0: none"
    _add_setting(group, "--encoder-target-ms", near)
    elsewhere = "address of an encoder process, which encodes a model directory's pictures"
    group.add_argument("--encoder-url", metavar="ADDRESS", help=elsewhere)
    keys = "folder of CURVE keys for the encoder process; needed beyond this machine"
    group.add_argument("--encoder-keys", type=Path, help=keys)
    longest = "seconds that the encoder process may take for a picture"
    _add_setting(group, "--encoder-limit-s", longest)


def _add_memory(group: argparse._ArgumentGroup) -> None:
    _add_setting(group, "--kv-pool-mib", "memory of the KV cache")
    _add_setting(group, "--kv-dtype", "storage of K and V")
    _add_setting(group, "--kv-vision-dtype", "storage of pictures' K and V")
    kept = "share of the words of past turns whose K/V stay; those with least attention go"
    _add_setting(group, "--kv-text-kept", kept)
    offload = "host memory for K/V of idle sessions"
    _add_setting(group, "--offload-mib", offload)
    idle = "seconds without work before a session counts as idle"
    _add_setting(group, "--idle-after-s", idle)
    packed = "size of the folder of packed weights, MiB; 0: pack anew at each start"
    _add_setting(group, "--packed-cache-mib", packed)
    no_sharing = "do not share K/V of equal prefixes between sessions"
    group.add_argument("--no-prefix-sharing", action="store_true", help=no_sharing)


def _add_steps(group: argparse._ArgumentGroup) -> None:
    budget = "tokens that the decoder takes per step"
    _add_setting(group, "--token-budget", budget)
    target = "duration to keep steps near, by fewer tokens than the budget; 0: none"
    _add_setting(group, "--step-target-ms", target)


if __name__ == "__main__":
    main()
