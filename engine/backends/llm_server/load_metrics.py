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


def load_of(page: str) -> Load | None:
    """The load that a page of metrics tells; None if it has none of the names."""
    found = dict(_samples(page.splitlines()))
    waiting = _first(found, _WAITING)
    if waiting is None and _first(found, _RUNNING) is None:
        return None
    kv_share = _first(found, _KV_SHARE) or 0.0
    return Load(waiting=round(waiting or 0.0), kv_share=min(kv_share, 1.0))


def _first(found: dict[str, float], names: Iterable[str]) -> float | None:
    return next((found[name] for name in names if name in found), None)


def _samples(lines: Iterable[str]) -> Iterable[tuple[str, float]]:
    """Names and values of the samples that are numbers of at least 0; one name's samples, such as
    of several engines of one server, are added up."""
    sums: dict[str, float] = {}
    for line in lines:
        head, _, value = line.rpartition(" ")
        name = head.partition("{")[0].strip()
        if name.startswith("#") or not name:
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number) and number >= 0:
            sums[name] = sums.get(name, 0.0) + number
    return sums.items()
