"""llama.cpp's HTTP server: `python llamacpp_server.py MODEL.gguf NAME PORT SLOTS CONTEXT`.

Run by the Python of an environment that has `xllamacpp`; prints one line when it listens, and ends
when its standard input does.
"""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Serve until standard input ends."""
    model, name, port, slots, context_tokens = sys.argv[1:6]
    xllamacpp = importlib.import_module("xllamacpp")  # of this environment, not of ours
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.model_alias = {name}
    settings.hostnames, settings.port = ["127.0.0.1"], int(port)
    settings.n_parallel = int(slots)
    settings.n_ctx = int(context_tokens) * int(slots)
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.endpoint_metrics = True
    settings.warmup = False
    server = xllamacpp.Server(settings)
    print(f"listening on {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
