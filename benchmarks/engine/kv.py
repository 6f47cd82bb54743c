"""K and V in fewer bytes: error, unchanged answers and savings, beside full precision.

`rows`, one for each storage type; the first is the baseline of the others:

    bytes_per_token         K and V of one token in all layers, scales included
    logit_error_max, _mean  over all words of the vocabulary behind each of a text's first TOKENS
                            tokens (the fifty questions, one behind the other), and `logit_std`,
                            how far logits spread
    divergence              of the distributions over the next token there, nats, on average
    top_same                share of those places where the likeliest token is the same
    answers_same            share of the fifty questions (`answers`) whose greedy answer is equal
    first_8_same            ... whose first eight tokens are
    decode_tok_s            one stream, behind TOKENS tokens and, `_long`, behind LONG_TOKENS
    ttft_60s_ms             a turn's last SUFFIX_TOKENS tokens and the first of the answer, behind
                            HEARD_TOKENS: what is left at the endpoint after 60 s of speech (`ttft`
                            times the whole session)

`image_share`: tokens of pictures among those that a question about a picture is answered from;
`mixed_saves` and `all_saves`: share of the bytes that the narrowest type saves there, taken for the
pictures alone and for everything.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headstart.benchmarks import report
from headstart.benchmarks.engine import kv_modality
from headstart.benchmarks.harness.chat import Chat, Reply
from headstart.benchmarks.harness.in_process import Live, paths_of
from headstart.benchmarks.inputs import photos
from headstart.benchmarks.inputs.questions import dialogs
from headstart.engine.config import KV_DTYPES, EngineConfig
from headstart.engine.kvcache.make_cache import make_cache
from headstart.engine.kvcache.storage import kv_bytes_per_token
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.scheduling.runner import Runner
from headstart.engine.scheduling.scheduler import Plan, Work
from headstart.kernels.native import set_threads

KINDS = KV_DTYPES
ROOM_TOKENS = 1024  # beside the long context
TOKENS = 256
LONG_TOKENS = 4096
FIRST = 8
HEARD_TOKENS = 284  # of a session after a minute of the bundled monologue
SUFFIX_TOKENS = 12

Row = dict[str, Any]
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Asked:
    """One of the fifty questions and its answer; `pictured`: it is about a picture."""

    reply: Reply
    pictured: bool


def run(
    model: str, repeats: int, kinds: Sequence[str], *, by_modality: bool, as_json: bool
) -> None:
    """Measure logits and steps alternately, so that all kinds run under the same machine load; then
    one session of each. `by_modality`: `kv_modality` in place of that."""
    if by_modality:
        kv_modality.run(model, as_json=as_json)
        return
    report.say("logits and speed")
    rows, encode = _decoder(model, repeats, kinds)
    answers: list[list[Asked]] = []
    for row in rows:
        kind = row["kv_dtype"]
        report.say(f"{kind}: answers")
        live = Live(model, kv_dtype=kind)
        answers.append(_answers(live))
        row |= _agreement(encode, answers[0], answers[-1])
        report.say(str(row))
    result = {"model": model, "tokens": TOKENS, "long_tokens": LONG_TOKENS, "rows": rows}
    report.finish("kv", result | _pictures(answers[0], rows), as_json=as_json)


class Lane:
    """One kind of storage under the shared decoder."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, kind: str) -> None:
        self.kind = kind
        spec = loaded.spec
        token_bytes = kv_bytes_per_token(spec.layers, spec.kv_heads, spec.head_dim, kind)
        pool_bytes = (LONG_TOKENS + ROOM_TOKENS) * token_bytes
        settings = replace(config, kv_dtype=kind, kv_pool_bytes=pool_bytes)
        self.cache, pool = make_cache(spec, settings)
        self._runner = Runner(loaded.decoder, self.cache)
        self.stream = Stream(kind, pool, spec.vocab_size, loaded.context_tokens)
        self.times_s: list[float] = []

    def step(self, *tokens: int) -> Tensor:
        """Logits [vocab_size] behind some more tokens."""
        self.stream.append(tokens)
        began_s = time.perf_counter()
        work = Work(self.stream, len(tokens), True, 0)
        logits = self._runner.step(Plan((work,))).logits[self.stream]
        self.times_s.append(time.perf_counter() - began_s)
        return logits

    def pretend(self, tokens: int) -> None:
        """Start over behind `tokens` tokens whose K and V are uninitialised; their values do not
        affect the time."""
        self.stream.truncate(0)
        self.cache.fill(0.5)
        self.stream.append([1] * tokens)
        self.stream.reserve(tokens)
        self.stream.advance(tokens)

    def median_s(self) -> float:
        """Median of the steps since the last call."""
        median_s = statistics.median(self.times_s)
        self.times_s.clear()
        return median_s


def _in_turns(lanes: Sequence[Lane], behind: int, steps: int, tokens: int) -> list[float]:
    """Median step time in s of each kind, for steps of `tokens` behind `behind` other tokens."""
    for lane in lanes:
        lane.pretend(behind)
    for _ in range(steps):
        for lane in lanes:
            lane.step(*[1] * tokens)
            lane.stream.truncate(behind)
    return [lane.median_s() for lane in lanes]


def _decoder(model: str, repeats: int, kinds: Sequence[str]) -> tuple[list[Row], Encode]:
    """One row per kind, and the tokenizer's encode function."""
    config = EngineConfig(model=model)
    loaded = load_model(paths_of(model).llm, config)
    set_threads(config.threads)
    torch.set_num_threads(1)
    said = "\n".join(question["say"] for dialog in dialogs() for question in dialog["ask"])
    lanes = [Lane(loaded, config, kind) for kind in kinds]
    errors: dict[str, list[Error]] = {kind: [] for kind in kinds}
    for token in loaded.tokenizer.encode(said)[:TOKENS]:
        logits = [lane.step(token) for lane in lanes]
        for lane, these in zip(lanes, logits, strict=True):
            errors[lane.kind].append(Error.of(logits[0], these))
    times_s = zip(
        lanes,
        [lane.median_s() for lane in lanes],
        _in_turns(lanes, LONG_TOKENS, repeats, 1),
        _in_turns(lanes, HEARD_TOKENS, repeats, SUFFIX_TOKENS),
        strict=True,
    )
    rows = [
        {
            "kv_dtype": lane.kind,
            "bytes_per_token": lane.cache.bytes_per_token,
            "decode_tok_s": round(1 / step_s, 1),
            "decode_tok_s_long": round(1 / long_s, 1),
            "ttft_60s_ms": round(turn_s * 1000, 1),
            **_errors(errors[lane.kind]),
        }
        for lane, step_s, long_s, turn_s in times_s
    ]
    return rows, loaded.tokenizer.encode


@dataclass(frozen=True)
class Error:
    """Error of the logits at one position, and their spread."""

    most: float
    mean: float
    std: float
    divergence: float
    top_same: bool

    @classmethod
    def of(cls, exact: Tensor, logits: Tensor) -> Error:
        error = (logits - exact).abs()
        p, q = exact.log_softmax(0), logits.log_softmax(0)
        return cls(
            most=float(error.max()),
            mean=float(error.mean()),
            std=float(exact.std()),
            divergence=float((p.exp() * (p - q)).sum()),
            top_same=bool(exact.argmax() == logits.argmax()),
        )


def _errors(errors: list[Error]) -> Row:
    return {
        "logit_error_max": round(max(error.most for error in errors), 3),
        "logit_error_mean": round(statistics.fmean(error.mean for error in errors), 4),
        "logit_std": round(statistics.fmean(error.std for error in errors), 2),
        "divergence": round(statistics.fmean(error.divergence for error in errors), 5),
        "top_same": round(statistics.fmean(error.top_same for error in errors), 3),
    }


def _answers(live: Live) -> list[Asked]:
    """Answers to the fifty questions; the held-out ones are not used."""
    pictures = {photo.name: photo for photo in photos.load()}
    answers = []
    for number, dialog in enumerate(dialogs()):
        if dialog.get("held", False):
            continue
        chat = Chat(live, f"dialog-{number}")
        if "see" in dialog:
            chat.show(pictures[dialog["see"]].image)
        answers += [Asked(chat.say(q["say"]), "see" in dialog) for q in dialog["ask"]]
        chat.close()
    return answers


def _agreement(encode: Encode, exact: list[Asked], answers: list[Asked]) -> Row:
    pairs = [(a.reply.text, b.reply.text) for a, b in zip(exact, answers, strict=True)]
    first = [encode(a)[:FIRST] == encode(b)[:FIRST] for a, b in pairs]
    return {
        "questions": len(pairs),
        "answers_same": round(sum(a == b for a, b in pairs) / len(pairs), 3),
        "first_8_same": round(sum(first) / len(pairs), 3),
    }


def _pictures(answers: list[Asked], rows: list[Row]) -> Row:
    """Bytes saved by narrow K and V in a conversation about a picture: its own, and all."""
    usages = [asked.reply.usage for asked in answers if asked.pictured]
    image = sum(usage.input_image for usage in usages)
    share = image / sum(u.input_text + u.input_audio + u.input_image for u in usages)
    saved = 1 - min(row["bytes_per_token"] for row in rows) / rows[0]["bytes_per_token"]
    return {
        "image_share": round(share, 3),
        "mixed_saves": round(share * saved, 3),
        "all_saves": round(saved, 3),
    }
