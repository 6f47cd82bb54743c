"""llama.cpp's own HTTP server (OpenAI-compatible), by the wheel `xllamacpp`, in its environment.

    python llama_server.py MODEL.gguf PORT THREADS MAX_TOKENS

Greedy, and at most MAX_TOKENS of an answer, for requests that do not say. Prints its address when
it answers; ends with its standard input. Imports nothing of ours.
"""

from __future__ import annotations

import os
import sys

import xllamacpp


def main(path: str, port: int, threads: int, max_tokens: int) -> None:
    """Serve until standard input ends."""
    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.n_ctx, settings.n_parallel = 4096, 1  # one speaker: its prompt stays cached
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.sampling.temp, settings.n_predict = 0.0, max_tokens
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # its destructor would wait for connections that clients keep open


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
