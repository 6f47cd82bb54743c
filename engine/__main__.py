"""The engine process: `python -m headstart.engine --endpoint ADDRESS --model NAME`.

With `--serve-encoder ADDRESS` in place of `--endpoint` it is an encoder process instead, which
encodes the pictures of engines with `--encoder-url ADDRESS`, and has no decoder.

Exit codes: 0 stopped by a signal or because the gateway ended; 1 an encoder process that cannot go
on; 2 the settings are invalid; 3 it was
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
from types import FrameType
from typing import TYPE_CHECKING

from headstart.engine.api import LIBRARIES
from headstart.engine.api.keys import BadKeys
from headstart.engine.config import EngineConfig
from headstart.engine.errors import BadSettings, EngineError
from headstart.engine.process.ipc import GatewayLink
from headstart.engine.process.options import engine_config, parse_options, server_config
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


def main() -> None:
    """Load the model and serve until stopped."""
    clock = StartClock()
    limit_arenas()
    gc.disable()  # what is loaded stays: looking through it again and again takes a tenth of it all
    arguments = parse_options(__doc__)
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
    _end_on_signals(link)
    refused = False
    try:
        _serve(link, arguments, clock)
    except (EngineError, KernelSetupError) as error:
        log.error("%s", error)
        refused = True
    finally:
        link.close()
    if refused:
        # At once: a library that a thread is still loading may crash while Python shuts down.
        logging.shutdown()
        os._exit(EXIT_REFUSED)
    if link.left:
        sys.exit(EXIT_DRAINED)


def _end_on_signals(link: GatewayLink) -> None:
    """Stop on SIGTERM and SIGINT, drain on SIGUSR1."""

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
        config = engine_config(arguments)
        ended = serve_encoder(config, arguments.serve_encoder, arguments.keys, loaded)
    except (EngineError, KernelSetupError) as error:
        log.error("%s", error)
        sys.exit(EXIT_REFUSED)
    sys.exit(0 if ended else EXIT_BROKEN)


def _serve(link: GatewayLink, arguments: argparse.Namespace, clock: StartClock) -> None:
    link.loading(LIBRARIES, 0, 0)  # torch, which takes seconds to import
    config = engine_config(arguments)
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

    progress = _FetchProgress(link)
    auto = arguments.ears == AUTO
    ears = find_recognizer(arguments.ears, progress) if arguments.ears and not auto else None
    reading = config.reading != "off"
    senses = resolve_senses(config.model, progress, ears=ears, reading=reading)
    hearing = candidates(senses.ears, config.ears_language) if auto else (senses.ears,)
    return assemble_llm_server(
        server_config(arguments), senses, hearing, config, link.send, link.loading
    )


class _FetchProgress:
    """Sends download progress to the gateway."""

    def __init__(self, link: GatewayLink) -> None:
        self._link = link

    def note(self, text: str) -> None:
        log.info("%s", text)

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        self._link.loading(f"fetching {weight}", done_bytes, total_bytes)


if __name__ == "__main__":
    main()
