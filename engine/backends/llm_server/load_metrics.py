"""What an LLM server's `/metrics` says of its load, in the names of vLLM, SGLang and llama.cpp.

The format is Prometheus' text: `name{labels} value` a line. Names as in their documentation: vLLM
"Production metrics", SGLang "Production metrics", llama.cpp `tools/server/README.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from headstart.engine.placement import Load

_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
_KV_SHARE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
_NAMES = frozenset((*_RUNNING, *_WAITING, *_KV_SHARE))
MAX_WAITING = 1_000_000
"""What a page tells beyond is taken for so many."""


def load_of(page: str) -> Load | None:
    """The load that a page of metrics tells; None if it has none of the names. Of a server with
    several engines: what waits in all, and the mean share of their K/V memory in use."""
    found = _samples(page.splitlines())
    waiting = _first(found, _WAITING)
    if waiting is None and _first(found, _RUNNING) is None:
        return None
    shares = _first(found, _KV_SHARE) or [0.0]
    kv_share = sum(min(share, 1.0) for share in shares) / len(shares)
    return Load(waiting=round(min(sum(waiting or []), MAX_WAITING)), kv_share=kv_share)


def _first(found: dict[str, list[float]], names: Iterable[str]) -> list[float] | None:
    return next((found[name] for name in names if name in found), None)


def _samples(lines: Iterable[str]) -> dict[str, list[float]]:
    """The values of our names that are numbers of at least 0; a name has several if its server
    has several engines. A time that stands behind a value is ignored."""
    found: dict[str, list[float]] = {}
    for line in lines:
        name = line.partition("{")[0].partition(" ")[0]
        if name not in _NAMES:
            continue
        values = line.removeprefix(name).rpartition("}")[2].split()
        try:
            number = float(values[0])
        except (IndexError, ValueError):
            continue
        if math.isfinite(number) and number >= 0:
            found.setdefault(name, []).append(number)
    return found
