"""K and V in fewer bytes: what is lost, what stays the same, what it saves, beside full precision.

`rows`, one for each storage type, the first of which is what the others are held against:

    bytes_per_token         K and V of one token in all layers, scales included
    logit_error_max, _mean  over all words of the vocabulary behind each of a text's first TOKENS
                            tokens (the fifty questions, one behind the other), and `logit_std`,
                            how far logits spread
    divergence              of the distributions over the next token there, nats, on average
    top_same                share of those places where the likeliest token is the same
    answers_same            share of the fifty questions (`answers`) whose greedy answer is equal
    first_8_same            ... whose first eight tokens are
    decode_tok_s            one stream, behind TOKENS tokens and, `_long`, behind LONG_TOKENS
    ttft_60s_ms             endpoint to first token with 60 s heard, no early answer (`ttft`)

`image_share`: tokens of pictures among those that a question about a picture is answered from;
`mixed_saves` and `all_saves`: share of the bytes that the narrowest type saves there, taken for the
pictures alone and for everything.
"""

from __future__ import annotations

import statistics
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import photos, report, ttft
from benchmarks.answers import QUESTIONS
from benchmarks.chat import Chat, Reply
from benchmarks.in_process import Live, paths_of
from engine.config import KV_DTYPES, EngineConfig
from engine.decoder.load import LoadedModel, load_model
from engine.scheduler import Plan, Work
from engine.stream import Stream

KINDS = KV_DTYPES
TOKENS = 256
LONG_TOKENS = 4096
LONG_STEPS = 24
FIRST = 8
CONTEXT_S = 60.0

Row = dict[str, Any]
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Asked:
    """One of the fifty questions and its answer; `pictured`: about a picture that was shown."""

    reply: Reply
    pictured: bool


def run(model: str, repeats: int, kinds: Sequence[str], *, as_json: bool) -> None:
    """Measure each kind by itself, one model in memory at a time."""
    rows: list[Row] = []
    logits: list[Tensor] = []
    answers: list[list[Asked]] = []
    for kind in kinds:
        report.say(f"{kind}: logits and speed")
        row, these, encode = _decoder(model, kind)
        logits.append(these)
        report.say(f"{kind}: answers, and {CONTEXT_S:g} s of speech")
        live = Live(model, kv_dtype=kind)
        answers.append(_answers(live))
        row["ttft_60s_ms"] = round(ttft.context(live, CONTEXT_S, repeats)["plain_ms"], 1)
        row |= _errors(logits[0], these) | _agreement(encode, answers[0], answers[-1])
        rows.append({"kv_dtype": kind, **row})
        report.say(str(rows[-1]))
    result = {"model": model, "tokens": TOKENS, "long_tokens": LONG_TOKENS, "rows": rows}
    report.finish("kv", result | _pictures(answers[0], rows), as_json=as_json)


def _decoder(model: str, kind: str) -> tuple[Row, Tensor, Encode]:
    """Bytes and speeds, logits [TOKENS, vocab_size], and what makes tokens of words."""
    config = EngineConfig(model=model, kv_dtype=kind)
    loaded = load_model(paths_of(model).llm, config)
    torch.set_num_threads(config.threads)
    dialogs = tomllib.loads(QUESTIONS.read_text())["dialog"]
    said = "\n".join(question["say"] for dialog in dialogs for question in dialog["ask"])
    stream = loaded.new_stream("text")
    rows, times_s = [], []
    for token in loaded.tokenizer.encode(said)[:TOKENS]:
        stream.append([token])
        began_s = time.perf_counter()
        rows.append(_step(loaded, stream).clone())
        times_s.append(time.perf_counter() - began_s)
    stream.close()
    row: Row = {
        "bytes_per_token": loaded.cache.bytes_per_token,
        "decode_tok_s": round(1 / statistics.median(times_s), 1),
        "decode_tok_s_long": round(1 / _long_step_s(loaded), 1),
    }
    return row, torch.stack(rows), loaded.tokenizer.encode


def _step(model: LoadedModel, stream: Stream) -> Tensor:
    return model.runner.step(Plan((Work(stream, stream.pending, True, 0),))).logits[stream]


def _long_step_s(model: LoadedModel) -> float:
    """Seconds of one decode step behind LONG_TOKENS tokens, whose K and V nobody computed: their
    values make no difference to the time."""
    model.cache.fill(0.5)
    stream = model.new_stream("long")
    stream.append([1] * LONG_TOKENS)
    stream.make_room(LONG_TOKENS)
    stream.advance(LONG_TOKENS)
    times_s = []
    for _ in range(LONG_STEPS):
        stream.append([1])
        began_s = time.perf_counter()
        _step(model, stream)
        times_s.append(time.perf_counter() - began_s)
    stream.close()
    return statistics.median(times_s)


def _answers(live: Live) -> list[Asked]:
    """Answers to the fifty questions; the held-out ones stay so."""
    pictures = {photo.name: photo for photo in photos.load()}
    answers = []
    for number, dialog in enumerate(tomllib.loads(QUESTIONS.read_text())["dialog"]):
        if dialog.get("held", False):
            continue
        chat = Chat(live, f"dialog-{number}")
        if "see" in dialog:
            chat.show(pictures[dialog["see"]].image)
        answers += [Asked(chat.say(q["say"]), "see" in dialog) for q in dialog["ask"]]
        chat.close()
    return answers


def _errors(exact: Tensor, logits: Tensor) -> Row:
    error = (logits - exact).abs()
    p, q = exact.log_softmax(1), logits.log_softmax(1)
    return {
        "logit_error_max": round(float(error.max()), 3),
        "logit_error_mean": round(float(error.mean()), 4),
        "logit_std": round(float(exact.std()), 2),
        "divergence": round(float((p.exp() * (p - q)).sum(1).mean()), 5),
        "top_same": round(float((exact.argmax(1) == logits.argmax(1)).float().mean()), 3),
    }


def _agreement(encode: Encode, exact: list[Asked], answers: list[Asked]) -> Row:
    pairs = [(a.reply.text, b.reply.text) for a, b in zip(exact, answers, strict=True)]
    first = [encode(a)[:FIRST] == encode(b)[:FIRST] for a, b in pairs]
    return {
        "questions": len(pairs),
        "answers_same": round(sum(a == b for a, b in pairs) / len(pairs), 3),
        "first_8_same": round(sum(first) / len(pairs), 3),
    }


def _pictures(answers: list[Asked], rows: list[Row]) -> Row:
    """What narrow K and V save where a picture is talked about: its own, and everybody's."""
    usages = [asked.reply.usage for asked in answers if asked.pictured]
    image = sum(usage.input_image for usage in usages)
    share = image / sum(u.input_text + u.input_audio + u.input_image for u in usages)
    saved = 1 - min(row["bytes_per_token"] for row in rows) / rows[0]["bytes_per_token"]
    return {
        "image_share": round(share, 3),
        "mixed_saves": round(share * saved, 3),
        "all_saves": round(saved, 3),
    }
