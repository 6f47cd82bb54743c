"""The plain torch decoder over the paged cache, against `transformers`."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
import torch

from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.text import TextModel
from headstart.engine.scheduling.scheduler import Plan, Work
from tests.engine.models import twins
from tests.engine.models.rig import Rig
from tests.engine.models.sizes import VOCAB
from tests.numerics import assert_as_near


class Twins(NamedTuple):
    theirs: Any
    folder: Any


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    theirs = twins.qwen2()
    return Twins(theirs, twins.save(theirs, tmp_path_factory.mktemp("qwen2")))


def tokens(seed: int, count: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(VOCAB) for _ in range(count)]


def test_streams_in_one_batch_get_what_each_gets_alone(pair: Twins) -> None:
    """Three streams of other lengths, prefilled in pieces side by side: each one's logits are
    those of its own forward, to 1e-9."""
    rig = Rig(load(pair.folder, Loading(torch.float64)), torch.float64)
    read = [tokens(i, 13 + 9 * i) for i in range(3)]
    streams = [rig.stream(str(i)) for i in range(3)]
    for stream, ids in zip(streams, read, strict=True):
        stream.append(ids)
    got = {}
    while any(stream.pending for stream in streams):
        works = [Work(s, min(s.pending, 5), True, 0) for s in streams if s.pending]
        got.update(rig.runner.step(Plan(tuple(works))).logits)
    for stream, ids in zip(streams, read, strict=True):
        with twins.in_double("qwen2"), torch.inference_mode():
            wanted = pair.theirs(torch.tensor([ids])).logits[0, -1]
        assert (got[stream] - wanted).abs().max() <= 1e-9


def test_bf16_errs_by_its_weights_alone(pair: Twins) -> None:
    """Weights in bf16: logits are those of an fp64 forward on the same rounded weights to fp32's
    precision, so that sums of bf16 add nothing; `transformers` in bf16 throughout is a hundred
    times further off. K/V kept in bf16 as well cost less than rounding the weights did."""
    ids = tokens(9, 60)
    model = load(pair.folder, Loading(torch.bfloat16))
    assert isinstance(model, TextModel)
    theirs, read = twins.qwen2(), torch.tensor([ids])
    with torch.inference_mode():
        published = theirs(read).logits[0, -1].double()
        throughout = theirs.bfloat16()(read).logits[0, -1].double()
        plain = theirs.float()(read).logits[0, -1]
        with twins.in_double("qwen2"):
            rounded = theirs.double()(read).logits[0, -1]
    wide, narrow = (_logits(model, ids, dtype) for dtype in (torch.float32, torch.bfloat16))
    assert wide.dtype == torch.float32
    assert_as_near(wide, plain, rounded)
    error = (wide - rounded).norm()
    assert 100 * error < (throughout - rounded).norm()
    assert (narrow - rounded).norm() < (rounded - published).norm()


def _logits(model: StreamModel, ids: list[int], kv_dtype: torch.dtype) -> torch.Tensor:
    rig = Rig(model, kv_dtype)
    stream = rig.stream()
    stream.append(ids)
    logits = rig.settle(stream)
    assert logits is not None
    return logits


def test_embeddings_are_the_decoders_own(pair: Twins) -> None:
    """`embed_text` gives rows of the table, in what sums are carried in."""
    model = load(pair.folder, Loading(torch.bfloat16))
    table = pair.theirs.get_input_embeddings().weight
    assert torch.equal(model.embed_text([3, 5]), table[[3, 5]].bfloat16().float())


@pytest.mark.parametrize(("kv_dtype", "bound"), [("int8", 0.03), ("fp8", 0.12)])
def test_narrow_k_and_v_are_near_and_the_same_in_any_cut(
    pair: Twins, kv_dtype: str, bound: float
) -> None:
    """A byte a number beside fp64 weights: near the exact logits, and the error is the codes', not
    the cut's."""
    ids = tokens(11, 60)
    rig = Rig(load(pair.folder, Loading(torch.float64)), torch.float64, kv_dtype=kv_dtype)
    whole, cut = rig.stream("whole"), rig.stream("cut")
    for stream in (whole, cut):
        stream.append(ids)
    at_once, in_pieces = rig.settle(whole), rig.settle(cut, random.Random(1))
    assert at_once is not None
    assert in_pieces is not None
    with twins.in_double("qwen2"), torch.inference_mode():
        exact = pair.theirs(torch.tensor([ids])).logits[0, -1]
    assert 0 < (at_once - exact).std() < bound * exact.std()
    assert (at_once - in_pieces).abs().max() < 1e-9
