"""llama.cpp's server with the weights of ours, for the peers.

Its threads wait for each other by spinning, so beside other work a thread a core can be slower than
one alone, by far. Both are tried before a run, and the quicker one serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.peers import settings
from headstart.benchmarks.peers.child import child, free_port
from headstart.benchmarks.peers.environments import Environments
from headstart.benchmarks.peers.merged_weights import merged
from headstart.engine.process.assemble import ModelPaths
from headstart.engine.weights import resolve_model

SCRIPT = Path(__file__).parents[1] / "llm_servers" / "llamacpp_server.py"

PROBE_TOKENS = 12
PROBE_WAIT_S = 20.0
PROBES = ("What is the capital of Spain?", "How many legs does a dog have?")


@dataclass(frozen=True)
class Llama:
    """A server that is ready. `url`: its OpenAI-compatible base."""

    url: str
    threads: int


@contextlib.asynccontextmanager
async def serving(environments: Environments, logs: Path) -> AsyncIterator[Llama]:
    """The server, with as many threads as are quickest. Raises `PeerFailed`."""
    python = await asyncio.to_thread(environments.python, "llama")
    weights = await asyncio.to_thread(weights_of_ours, environments.folder / "weights")
    took_s: dict[int, float] = {}
    for threads in range(1, settings.THREADS + 1):
        async with _server(python, weights, logs, threads) as url:
            took_s[threads] = await asyncio.to_thread(_probe_s, url)
    best = min(took_s, key=took_s.__getitem__)
    report.say(
        "llama.cpp answers the probes in "
        + ", ".join(f"{took_s[n]:.2f} s with {n} threads" for n in took_s)
    )
    async with _server(python, weights, logs, best) as url:
        yield Llama(url, best)


@contextlib.asynccontextmanager
async def _server(python: Path, weights: Path, logs: Path, threads: int) -> AsyncIterator[str]:
    port = free_port()
    argv = [str(python), "-P", str(SCRIPT), str(weights), str(port), "--greedy"]
    argv += ["--threads", str(threads), "--max-tokens", str(settings.MAX_TOKENS)]
    async with child("llama.cpp", argv, logs / "llama.log") as server:
        url = f"http://127.0.0.1:{port}"
        await server.until(lambda: _healthy(url), "a loaded model")
        yield f"{url}/v1"


def _probe_s(url: str) -> float:
    """Seconds for two short answers, after one that is not counted; infinite if that takes longer
    than `PROBE_WAIT_S`."""
    try:
        _ask(url, "Hello.", PROBE_WAIT_S)
        return sum(_ask(url, text, PROBE_WAIT_S) for text in PROBES)
    except TimeoutError:
        return float("inf")


def _ask(url: str, text: str, wait_s: float) -> float:
    """Seconds by its own clock. Raises TimeoutError."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}],
        "temperature": settings.TEMPERATURE,
        "max_tokens": PROBE_TOKENS,
    }
    request = urllib.request.Request(
        f"{url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=wait_s) as response:
        timings = json.load(response)["timings"]
    return float(timings["prompt_ms"] + timings["predicted_ms"]) / 1000


def weights_of_ours(folder: Path) -> Path:
    """The model's GGUF with its LoRA merged in; made in `folder` once. Raises `BadWeights`."""
    paths = ModelPaths.of(resolve_model(settings.MODEL))
    if paths.adapter is None:
        return paths.llm
    target = folder / f"{paths.name}.gguf"
    if not target.exists():
        report.say("merging the model's LoRA into a GGUF for llama.cpp (once)")
    return merged(paths.llm, paths.adapter, target)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False
