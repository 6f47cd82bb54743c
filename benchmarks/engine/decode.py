"""Decode and prefill speed of one stream on the same weights: ours beside llama.cpp, alternating.

Keys: ours_tok_s, llamacpp_tok_s, ratio, ours_prefill_tok_s, llamacpp_prefill_tok_s, prefill_ratio,
bandwidth_share (weight bytes read per token x tok/s ÷ the read bandwidth measured in this run),
read_gb_s. Without xllamacpp (the `bench` extra) its keys are null.
"""

from __future__ import annotations

import statistics
import time

import torch

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import paths_of
from headstart.benchmarks.references.engines import LlamaCppPeer
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.decoder import Decoder
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.scheduling.scheduler import Plan, Work

TOKENS = 64
PREFILL_TOKENS = 128
READ_BYTES = 256 << 20


def run(model: str, repeats: int, *, as_json: bool) -> None:
    """Measure alternately, so that both run under the same machine load."""
    paths = paths_of(model)
    ours = load_model(paths.llm, EngineConfig(model=model))
    assert isinstance(ours.decoder, Decoder)  # auto decodes on the CPU
    weights_bytes = ours.decoder.weights.nbytes
    torch.set_num_threads(EngineConfig().threads)
    peer = LlamaCppPeer.load(paths.llm)
    kinds = ("ours", "ours_prefill", "peer", "peer_prefill")
    speeds: dict[str, list[float]] = {kind: [] for kind in kinds}
    read_gb_s = [_read_gb_s()]
    for _ in range(repeats):
        speeds["ours"].append(_decode_tok_s(ours))
        speeds["ours_prefill"].append(_prefill_tok_s(ours))
        if peer is not None:
            speeds["peer"].append(peer.decode_tok_s(TOKENS))
            speeds["peer_prefill"].append(peer.prefill_tok_s(PREFILL_TOKENS))
        read_gb_s.append(_read_gb_s())
    medians = {k: statistics.median(v) if v else None for k, v in speeds.items()}
    decode, prefill = medians["ours"], medians["ours_prefill"]
    assert decode is not None
    assert prefill is not None
    bandwidth = statistics.median(read_gb_s)
    report.finish(
        "decode",
        {
            "model": paths.name,
            "ratio": _ratio(decode, medians["peer"]),
            "prefill_ratio": _ratio(prefill, medians["peer_prefill"]),
            "ours_tok_s": round(decode, 1),
            "llamacpp_tok_s": _rounded(medians["peer"]),
            "ours_prefill_tok_s": round(prefill, 1),
            "llamacpp_prefill_tok_s": _rounded(medians["peer_prefill"]),
            "bandwidth_share": round(weights_bytes * decode / 1e9 / bandwidth, 3),
            "read_gb_s": round(bandwidth, 1),
        },
        as_json=as_json,
    )


def _step(model: LoadedModel, stream: Stream) -> int:
    result = model.runner.step(Plan((Work(stream, stream.pending, True, 0),)))
    return int(result.logits[stream].argmax())


def _decode_tok_s(model: LoadedModel) -> float:
    stream = model.new_stream("decode")
    stream.append(model.tokenizer.encode("Count from one to a hundred in words."))
    token = _step(model, stream)
    began_s = time.perf_counter()
    for _ in range(TOKENS):
        stream.append([token])
        token = _step(model, stream)
    took_s = time.perf_counter() - began_s
    stream.close()
    return TOKENS / took_s


def _prefill_tok_s(model: LoadedModel) -> float:
    stream = model.new_stream("prefill")
    stream.append([1000 + i % 5000 for i in range(PREFILL_TOKENS)])
    began_s = time.perf_counter()
    _step(model, stream)
    took_s = time.perf_counter() - began_s
    stream.close()
    return PREFILL_TOKENS / took_s


def _read_gb_s() -> float:
    """Read bandwidth of all threads: the sum of an array larger than any cache."""
    array = torch.ones(READ_BYTES // 4)
    array.sum()
    began_s = time.perf_counter()
    array.sum()
    return READ_BYTES / (time.perf_counter() - began_s) / 1e9


def _ratio(ours: float, theirs: float | None) -> float | None:
    return None if theirs is None else round(ours / theirs, 2)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
