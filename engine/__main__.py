"""The engine process: `python -m engine --endpoint ADDRESS --model NAME`.

Exit codes: 0 told to stop (or the gateway is gone), 2 these settings can never work.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from engine.errors import EngineError
from engine.link import Link

log = logging.getLogger("headstart.engine")

EXIT_REFUSED = 2
MIB = 1 << 20


def main() -> None:
    """Load the model, then serve until stopped."""
    arguments = _arguments()
    logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stderr)
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # before torch makes its pool
    link = Link(arguments.endpoint)

    def stop(_number: int, _frame: FrameType | None) -> None:
        if link.model is None:
            sys.exit(0)  # still loading: nothing to put in order
        link.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        _serve(link, arguments)
    except EngineError as error:
        log.error("%s", error)
        sys.exit(EXIT_REFUSED)
    finally:
        link.close()


def _serve(link: Link, arguments: argparse.Namespace) -> None:
    link.loading("libraries", 0, 0)
    # torch takes seconds to import: only now, when the gateway has heard from us.
    from engine.assemble import ModelPaths, assemble
    from engine.config import EngineConfig
    from engine.ears.chosen import find_ears
    from engine.weights import resolve_model

    config = EngineConfig(
        model=arguments.model,
        ears_language=arguments.ears_language,
        kv_pool_bytes=arguments.kv_pool_mib * MIB,
        kv_dtype=arguments.kv_dtype,
        offload_bytes=arguments.offload_mib * MIB,
        idle_after_s=arguments.idle_after_s,
        heard_together=arguments.heard_together,
        prefix_sharing=not arguments.no_prefix_sharing,
        weights=arguments.weights,
        tail=arguments.tail,
        **({"threads": arguments.threads} if arguments.threads else {}),
    )
    if Path(config.model, "config.json").is_file():
        from engine.models.serving import assemble_directory

        engine, model = assemble_directory(Path(config.model), config, link.send, link.loading)
        log.info("%s is ready after %.1f s", model.name, model.load_s)
        link.serve(engine, model)
        return
    progress = _FetchProgress(link)
    ears = find_ears(arguments.ears, progress) if arguments.ears else None
    resolved = resolve_model(config.model, progress, ears=ears)
    paths = ModelPaths(
        name=resolved.name,
        llm=resolved.llm,
        ears=resolved.ears,
        eyes=resolved.eyes,
        class_names=resolved.names,
        faces=resolved.faces,
    )
    engine, model = assemble(paths, config, link.send, link.loading)
    log.info("%s is ready after %.1f s", model.name, model.load_s)
    link.serve(engine, model)


class _FetchProgress:
    """A download's progress on its way to whoever waits."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def note(self, text: str) -> None:
        log.info("%s", text)

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        self._link.loading(f"fetching {weight}", done_bytes, total_bytes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    parser.add_argument("--endpoint", required=True, help="ZeroMQ address of the gateway")
    models = "medium, small, tiny, or a model directory"
    parser.add_argument("--model", default="small", help=models)
    parser.add_argument("--weights", default="bf16", choices=("bf16", "fp32", "int8"))
    parser.add_argument("--tail", default="provisional", choices=("closed", "provisional"))
    parser.add_argument("--ears", help="a Whisper's folder or weights; none: the model's own")
    parser.add_argument("--ears-language", default="en", help="code such as en, or auto")
    parser.add_argument("--kv-pool-mib", type=int, default=256, help="memory of the KV cache")
    parser.add_argument("--kv-dtype", default="fp32", choices=("fp32", "fp16", "int8", "fp8"))
    offload = "host memory for K and V of idle sessions"
    parser.add_argument("--offload-mib", type=int, default=256, help=offload)
    idle = "seconds without anything to do before a session is idle"
    parser.add_argument("--idle-after-s", type=float, default=5.0, help=idle)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores this process may use")
    apart = "compute equal beginnings for each session anew"
    parser.add_argument("--no-prefix-sharing", action="store_true", help=apart)
    together = "sessions whose sound shares one pass of the ears"
    parser.add_argument("--heard-together", type=int, default=1, help=together)
    return parser.parse_args()


if __name__ == "__main__":
    main()
