"""K and V of pictures in int8 beside words in fp32, against one type for both.

`rows`, one for each decoder, context and kind of storage, `fp32` first, which the others are held
against:

    decoder           the packaged model's, or `random`: RANDOM_LAYERS layers of the flagship's 3B
                      decoder at full width, random weights in int8, whose next tokens mean nothing
    context           of pictures: `still` (one of so many parts), or `video` (eight frames of
                      `picture_tokens` / 8 parts, three words between them)
    kv_bytes, saved   the K and V of all of it, and the share of fp32's that is saved
    ideal             what is saved if every part of a picture lay in a narrow block
    logit_error_mean, divergence, top_same   as of `kv`, at each of STEPS tokens of fp32's answer to
                      each question behind the pictures
    answers_same      questions whose first STEPS tokens are all the same

`borders`: the share of pictures' parts in blocks of theirs alone, the mean over all places of a
picture in its first block, by arithmetic: pictures of so many parts one after the other, with so
many words between them (Pixtral: a row's end is a word).

No vision-language model is packaged. A picture's parts are stand-ins: of the packaged decoder the
embeddings of words, each mixed with its two neighbours; of the random one random numbers of the
embeddings' size. The packaged models' own pictures are notes in words, which no setting rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import paths_of
from headstart.benchmarks.inputs.questions import dialogs
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.config import MIB, EngineConfig
from headstart.engine.decoder.decoder import TextDecoder
from headstart.engine.kvcache.make_cache import make_cache
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.checkpoint.text_config import decoder_spec
from headstart.engine.models.decoder.choice import in_int8
from headstart.engine.models.sizes import config_of
from headstart.engine.process.load import load_model
from headstart.engine.scheduling.runner import Runner
from headstart.engine.scheduling.scheduler import Plan, Work
from headstart.kernels.native import set_threads

KINDS = {
    "fp32": ("fp32", "same"),
    "int8": ("int8", "same"),
    "int8 pictures": ("fp32", "int8"),
    "fp8 pictures": ("fp32", "fp8"),
}
CONTEXTS = (("still", 64), ("still", 256), ("still", 1024), ("video", 512))
FRAMES, BETWEEN = 8, 3
# Parts of a picture, pictures, and words behind each: stills, a video, Pixtral's rows.
BORDERS = (
    (64, 1, 3),
    (256, 1, 3),
    (1024, 1, 3),
    (64, 16, 3),
    (256, 16, 3),
    (32, 32, 1),
    (64, 64, 1),
)
STEPS = 12
LIMIT_TOKENS = 2048
STEP_TOKENS = 64
RANDOM_LAYERS = 6
RANDOM_SECTIONS = (16, 24, 24)
PLACE = MediaPosition(MediaKind.IMAGE)

Row = dict[str, Any]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Subject:
    """A decoder, and what is said to it. `words`: any text; `questions`: each with what opens the
    answer; `parts` [n, hidden]: what pictures are made of."""

    name: str
    spec: DecoderSpec
    decoder: TextDecoder
    words: Sequence[int]
    questions: Sequence[Sequence[int]]
    parts: Vectors


def run(model: str, *, as_json: bool) -> None:
    """The random decoder takes 2 GiB and some minutes."""
    rows = []
    torch.set_num_threads(1)
    for make in (_packaged, _random):
        subject = make(model)
        for name, count in CONTEXTS:
            rows += _rows(subject, name, count)
            for row in rows[-len(KINDS) :]:
                report.say(str(row))
    result = {"model": model, "steps": STEPS, "rows": rows, "borders": _borders()}
    report.finish("kv-modality", result, as_json=as_json)


def _borders() -> list[Row]:
    size = EngineConfig().block_size
    rows = []
    for parts, pictures, words in BORDERS:
        shares = []
        for before in range(size):
            seen = np.array([False] * before + ([True] * parts + [False] * words) * pictures)
            padded = np.pad(seen, (0, -len(seen) % size)).reshape(-1, size)
            shares.append(padded.all(axis=1).sum() * size / seen.sum())
        share = round(float(np.mean(shares)), 3)
        rows.append({"parts": parts, "pictures": pictures, "words": words, "narrow_share": share})
    return rows


def _packaged(model: str) -> Subject:
    config = EngineConfig(model=model, kv_pool_bytes=MIB * 16)
    loaded = load_model(paths_of(model).llm, config)
    set_threads(config.threads)
    encode = loaded.tokenizer.encode
    said = [
        ask["say"] for dialog in dialogs() if not dialog.get("held", False) for ask in dialog["ask"]
    ]
    words = encode("\n".join(said))
    opening = list(loaded.chat.assistant_open)
    embedded = loaded.decoder.embed(torch.tensor(words)).numpy()
    near = (np.roll(embedded, 1, axis=0) + embedded + np.roll(embedded, -1, axis=0)) / np.sqrt(3)
    asked = [[*encode("\n" + text), *opening] for text in said[::4]]
    return Subject(model, loaded.spec, loaded.decoder, words, asked, near.astype(np.float32))


def _random(model: str) -> Subject:
    text = config_of("3b").part("text_config")
    spec = replace(decoder_spec(text), layers=RANDOM_LAYERS)
    decoder = in_int8(RandomTensors(torch.bfloat16), spec, RANDOM_SECTIONS)
    dealer = np.random.default_rng(0)
    words = dealer.integers(0, spec.vocab_size, 400).tolist()
    scale = float(decoder.embed(torch.tensor(words)).std())
    parts = dealer.normal(0, scale, (1024, spec.hidden)).astype(np.float32)
    asked = [dealer.integers(0, spec.vocab_size, 12).tolist() for _ in range(4)]
    return Subject("random", spec, decoder, words, asked, parts)


class Lane:
    """One kind of storage under a subject's decoder."""

    def __init__(self, subject: Subject, kind: str) -> None:
        self.subject, spec = subject, subject.spec
        kv_dtype, vision = KINDS[kind]
        per_token = 2 * spec.layers * spec.kv_heads * spec.head_dim * 4
        settings = EngineConfig(
            kv_dtype=kv_dtype, kv_vision_dtype=vision, kv_pool_bytes=LIMIT_TOKENS * per_token
        )
        self.cache, pool = make_cache(spec, settings)
        self.runner = Runner(subject.decoder, self.cache)
        self.stream = Stream(kind, pool, spec.vocab_size, LIMIT_TOKENS)

    def look(self, name: str, count: int) -> None:
        """Compute the context: some words, and pictures of `count` parts."""
        subject, stream = self.subject, self.stream
        parts = np.resize(subject.parts, (count, subject.spec.hidden))
        ids = stream.soft.intern(parts, [PLACE._replace(row=i) for i in range(count)])
        stream.append(subject.words[:20])
        size = count if name == "still" else count // FRAMES
        for at in range(0, count, size):
            stream.append([*ids[at : at + size], *subject.words[at : at + BETWEEN]])
        while stream.pending:
            self.step(min(stream.pending, STEP_TOKENS))

    def step(self, tokens: int) -> Tensor:
        """Logits [vocab_size] behind so many of what is pending."""
        work = Work(self.stream, tokens, True, 0)
        return self.runner.step(Plan((work,))).logits[self.stream]

    @property
    def kv_bytes(self) -> int:
        narrow, cache = self.stream.narrow_tokens, self.cache
        wide = self.stream.kv_len - narrow
        return wide * cache.bytes_per_token + narrow * cache.narrow_bytes_per_token


def _rows(subject: Subject, name: str, count: int) -> list[Row]:
    rows: list[Row] = []
    exact: list[list[Tensor]] = []
    for kind in KINDS:
        lane = Lane(subject, kind)
        lane.look(name, count)
        known = len(lane.stream)
        row: Row = {"decoder": subject.name, "context": name, "picture_tokens": count, "kv": kind}
        row |= {"tokens": known, "kv_bytes": lane.kv_bytes}
        answers = [
            _answer(lane, known, asked, exact[number] if exact else None)
            for number, asked in enumerate(subject.questions)
        ]
        exact = exact or answers
        row["saved"] = round(1 - row["kv_bytes"] / rows[0]["kv_bytes"], 3) if rows else 0.0
        if lane.cache.narrow is not None:
            saves = 1 - lane.cache.narrow_bytes_per_token / lane.cache.bytes_per_token
            row["ideal"] = round(count / known * saves, 3)
        if rows:
            row |= _errors(exact, answers)
        rows.append(row)
    return rows


def _answer(
    lane: Lane, known: int, asked: Sequence[int], exact: list[Tensor] | None
) -> list[Tensor]:
    """Logits at each token of the answer of `exact`, or of its own."""
    lane.stream.truncate(known)
    lane.stream.append(asked)
    logits = [lane.step(len(asked)).clone()]
    for number in range(STEPS - 1):
        lane.stream.append([int((exact or logits)[number].argmax())])
        logits.append(lane.step(1).clone())
    return logits


def _errors(exact: list[list[Tensor]], answers: list[list[Tensor]]) -> Row:
    errors, divergences, same = [], [], []
    for wanted, got in zip(exact, answers, strict=True):
        hits = []
        for one, other in zip(wanted, got, strict=True):
            p, q = one.log_softmax(0), other.log_softmax(0)
            errors.append(float((other - one).abs().mean()))
            divergences.append(float((p.exp() * (p - q)).sum()))
            hits.append(bool(one.argmax() == other.argmax()))
        same.append(hits)
    return {
        "logit_error_mean": round(statistics.fmean(errors), 4),
        "divergence": round(statistics.fmean(divergences), 6),
        "top_same": round(statistics.fmean(hit for hits in same for hit in hits), 3),
        "answers_same": round(statistics.fmean(all(hits) for hits in same), 3),
        "questions": len(same),
    }
