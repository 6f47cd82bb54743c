"""llama.cpp's own HTTP server (OpenAI-compatible), by the wheel `xllamacpp`, in its environment.

    python llamacpp_server.py MODEL.gguf PORT [--name NAME] [--threads 1] [--slots 1]
                              [--context-tokens 4096] [--max-tokens N] [--greedy]

Prints its address when it answers; ends with its standard input. Imports nothing of ours.
"""

from __future__ import annotations

import argparse
import os
import sys

import xllamacpp


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    parser.add_argument("--name", help="what the model is called in requests")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1, help="requests served at the same time")
    parser.add_argument("--context-tokens", type=int, default=4096, help="of each slot")
    parser.add_argument("--max-tokens", type=int, help="of answers to requests that do not say")
    parser.add_argument("--greedy", action="store_true", help="for requests that do not say")
    serve(parser.parse_args())


def serve(wanted: argparse.Namespace) -> None:
    """Until standard input ends."""
    settings = xllamacpp.CommonParams()
    settings.model.path = wanted.model
    if wanted.name:
        settings.model_alias = {wanted.name}
    settings.hostnames, settings.port = ["127.0.0.1"], wanted.port
    settings.n_parallel, settings.n_ctx = wanted.slots, wanted.context_tokens * wanted.slots
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = wanted.threads
    if wanted.max_tokens is not None:
        settings.n_predict = wanted.max_tokens
    if wanted.greedy:
        settings.sampling.temp = 0.0
    settings.warmup = False
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # its destructor would wait for connections that clients keep open


if __name__ == "__main__":
    main()
