"""What a node's steps take, and what it costs: measured here for the CPU, published for GPUs.

A step that prefills P tokens and decodes B answers with C tokens of context in all takes

    step_ms + P * prefill_ms + B * decode_ms + C * context_ms

GPUs decode Llama 3.1 8B (L40S: Llama 7B) in FP8. Three of the four numbers are solved from NVIDIA's
tables of throughput. In `perf-overview.md` a request of 2,048 tokens in and 128 out takes 37.1 ms
of an H100, one of 128 and 128 takes 4.52 ms: the difference is 1,920 tokens of prefill. Requests of
128 in and 2,048 out, and of 2,048 and 2,048, decode at a mean context of 1,152 and 3,072 tokens:
their difference is attention over 1,920 tokens. `step_ms` is the time between two tokens of a
single stream. tests/benchmarks/simulation/test_costs.py does these sums again.
"""

from __future__ import annotations

from dataclasses import dataclass

TRT_OVERVIEW = (
    "https://github.com/NVIDIA/TensorRT-LLM/blob/00f37686aa854010d68bcbd0f4ab000221541ca6"
    "/docs/source/performance/perf-overview.md"
)
TRT_FIRST = (
    "https://github.com/NVIDIA/TensorRT-LLM/blob/138f96d45f90b9667426f7c47297d8c06bafac73"
    "/docs/source/performance.md"
)
NIM = "https://docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance"
PRICES = "https://www.mercatus-ai.com/blog/cloud-gpu-pricing"
PRICES_L40S = "https://aihardwareindex.com/blog/h100-vs-a100-vs-l40s-the-cost-per-token-analysis"


LONGEST_FINAL_S = 28.0  # of a longer turn the final pass hears the end (docs/hearing.md)


@dataclass(frozen=True, slots=True)
class EarsCosts:
    """Speech recognition on two cores. A chunk's pass takes `chunk_ms`; the final pass
    `final_ms` and `final_ms_per_s` for each second that it hears again."""

    chunk_ms: float
    final_ms: float
    final_ms_per_s: float

    def final_pass_ms(self, speech_s: float) -> float:
        """The final pass over a turn of `speech_s`."""
        return self.final_ms + self.final_ms_per_s * min(speech_s, LONGEST_FINAL_S)


@dataclass(frozen=True, slots=True)
class NodeKind:
    """One kind of node.

    Attributes:
        ears_here: whether recognition runs in the same steps, as in our own engine. Otherwise it
            runs on cores of its own, which are paid for by the second.
        ahead: tokens that are sent ahead at once; a server caches whole blocks.
        kv_tokens: tokens of K/V that fit.
        token_budget: tokens of a step.
        capacity: sessions that admission lets in, from the sizing below.
        usd_per_hour: rent of a node.
        sources: where the numbers come from.
    """

    name: str
    step_ms: float
    prefill_ms: float
    decode_ms: float
    context_ms: float
    kv_tokens: int
    token_budget: int
    ahead: int
    capacity: int
    usd_per_hour: float
    ears_here: bool
    sources: tuple[str, ...]


CPU_CORE_USD_PER_HOUR = 0.05  # an assumption: list prices of general-purpose vCPUs

# 112 ms of processor time for a second of speech in chunks, on one thread (2026-11-29). The final
# pass (docs/hearing.md): both threads' 102 ms for 2 s, 162 for 4, 207 for 6, 335 for 10, halved.
EARS = EarsCosts(chunk_ms=56.0, final_ms=23.0, final_ms_per_s=14.5)

CPU = NodeKind(
    name="cpu",
    step_ms=17.4,  # docs/numbers.md: 38 tokens a second of one stream, and
    prefill_ms=8.9,  # docs/log.md: 109 to 115 tokens a second of prefill; a row costs as much
    decode_ms=8.9,
    context_ms=0.0005,
    kv_tokens=21_840,  # 512 MiB at 24,576 bytes a token
    token_budget=64,
    ahead=1,
    capacity=4,
    usd_per_hour=2 * CPU_CORE_USD_PER_HOUR,
    ears_here=True,
    sources=("headstart bench decode", "headstart bench wer"),
)
H100 = NodeKind(
    name="h100",
    step_ms=4.63,
    prefill_ms=0.01697,
    decode_ms=0.0145,
    context_ms=2.47e-5,
    kv_tokens=900_000,  # 60 of 80 GB at 65,536 bytes a token (FP8)
    token_budget=8192,
    ahead=16,
    capacity=800,
    usd_per_hour=3.00,  # the middle of 2.50 to 3.50
    ears_here=False,
    sources=(TRT_OVERVIEW, NIM, PRICES),
)
H200 = NodeKind(
    name="h200",
    step_ms=4.63,  # not published for one stream: an H100's, which is an upper bound
    prefill_ms=0.01645,
    decode_ms=0.0200,
    context_ms=1.48e-5,
    kv_tokens=1_800_000,  # 120 of 141 GB
    token_budget=8192,
    ahead=16,
    capacity=1600,
    usd_per_hour=4.00,  # the middle of 3.50 to 4.50
    ears_here=False,
    sources=(TRT_OVERVIEW, NIM, PRICES),
)
L40S = NodeKind(
    name="l40s",
    step_ms=10.1,
    prefill_ms=0.0307,
    decode_ms=0.053,
    context_ms=3.5e-4,  # a model without grouped queries: four times the K/V
    kv_tokens=130_000,  # 35 of 48 GB at 262,144 bytes a token
    token_budget=4096,
    ahead=16,
    capacity=150,
    usd_per_hour=0.87,
    ears_here=False,
    sources=(TRT_FIRST, PRICES_L40S),
)
KINDS = {kind.name: kind for kind in (CPU, H100, H200, L40S)}


def step_ms(kind: NodeKind, prefill: int, decode: int, context: int) -> float:
    """Milliseconds of a step with so many tokens of prefill and rows of decoding, over `context`
    tokens in all rows together."""
    tokens = prefill * kind.prefill_ms + decode * kind.decode_ms
    return kind.step_ms + tokens + context * kind.context_ms
