"""K and V in a byte a number: a little less exact, and otherwise everything as it is in fp32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headstart.engine.config import EngineConfig
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel, load_model
from tests.engine.harness import finish, load_tiny, logits_at_once
from tests.engine.tiny_gguf import LLAMA, QWEN2

NARROW = ("int8", "fp8")
VOCAB = 271
SENTENCE = "Listen: the quick brown fox jumps over the lazy dog, and then it sleeps."
words = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12)


@pytest.fixture(scope="module", params=NARROW)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    made = load_tiny(tmp_path_factory.mktemp("tiny"), QWEN2, "native", kv_dtype=request.param)
    made.cache.fill(float("nan"))  # shows reads of unwritten slots
    return made


def reading(model: LoadedModel, tokens: list[int]) -> Stream:
    stream = model.new_stream("s")
    stream.append(tokens)
    return stream


def forget(model: LoadedModel) -> None:
    """Give away what the pool kept for its content, so that nobody adopts it."""
    model.pool.release(model.pool.allocate(model.pool.free_blocks))


@given(words, words, words, st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_any_cut_and_rollback_gives_the_same_bits(
    model: LoadedModel, first: list[int], guess: list[int], second: list[int], budget: int
) -> None:
    """In pieces, with a guess taken back in between: the logits of one prefill, bit for bit."""
    stream = reading(model, first)
    finish(model, stream, token_budget=budget)
    stream.append(guess)
    finish(model, stream, token_budget=budget)
    stream.truncate(len(first))
    stream.append(second)
    logits = finish(model, stream, token_budget=budget)
    stream.close()
    assert torch.equal(logits, logits_at_once(model, first + second))


def test_a_fork_goes_its_own_way(model: LoadedModel) -> None:
    """Two streams that share a half-full block write into copies of it: each reads what it reads
    alone, and so does the one that was there first."""
    head, tails = list(range(10, 20)), ([30, 31], [40], [50, 51, 52])
    stream = reading(model, head)
    finish(model, stream)
    streams = [stream.fork("a"), stream.fork("b"), stream]
    for each, tail in zip(streams, tails, strict=True):
        each.append(tail)
        finish(model, each)
    for each, tail in zip(streams, tails, strict=True):
        each.append([7])
        assert torch.equal(finish(model, each), logits_at_once(model, [*head, *tail, 7]))
    model.pool.check_accounting([table for each in streams for table in each.tables])
    for each in streams:
        each.close()


def test_what_was_computed_is_adopted_and_recomputed_alike(model: LoadedModel) -> None:
    """A second stream takes over a first one's blocks, and a stream that lost its K/V computes them
    again: both go on with the bits of who never did."""
    tokens = np.random.default_rng(1).integers(0, VOCAB, 23).tolist()
    want = logits_at_once(model, tokens)
    forget(model)
    first, second = reading(model, tokens), reading(model, tokens)
    finish(model, first)
    assert second.adopt() == 20
    assert torch.equal(finish(model, second), want)
    first.recompute(6)
    assert torch.equal(finish(model, first), want)
    first.close()
    second.close()


def test_less_exact_by_little_and_smaller_by_much(tmp_path: Path) -> None:
    """Random weights: int8 within 3 % of the logits' spread and fp8 within 12 %, for as many bytes
    as the numbers and one scale for each 16 of them."""
    tokens = np.random.default_rng(2).integers(0, VOCAB, 60).tolist()
    for config in (QWEN2, LLAMA):
        wide = load_tiny(tmp_path, config, "reference")
        want = logits_at_once(wide, tokens)
        for kv_dtype, bound in (("int8", 0.03), ("fp8", 0.12)):
            narrow = load_tiny(tmp_path, config, "reference", kv_dtype=kv_dtype)
            assert narrow.cache.bytes_per_token * 64 == wide.cache.bytes_per_token * (16 + 4)
            error = logits_at_once(narrow, tokens) - want
            assert 0 < error.std() < bound * want.std()


def after_evictions(model: LoadedModel) -> Tensor:
    """Logits after twenty rounds of nine tokens more and nine, behind a sink of five, less."""
    stream = reading(model, list(range(1, 30)))
    finish(model, stream)
    for round_ in range(20):
        move = stream.evict([(5, 14)], 5)
        assert move is not None
        model.runner.move(move)
        stream.append(list(range(round_, round_ + 9)))
        logits = finish(model, stream)
    model.pool.check_accounting(stream.tables)
    stream.close()
    return logits


def test_evictions_do_not_make_it_worse(tmp_path: Path) -> None:
    """The sink is turned from a copy: after twenty evictions narrow K and V are as near fp32's as
    they are without any."""
    want = after_evictions(load_tiny(tmp_path, QWEN2, "reference"))
    for kv_dtype, bound in (("int8", 0.03), ("fp8", 0.12)):
        narrow = load_tiny(tmp_path, QWEN2, "reference", kv_dtype=kv_dtype)
        error = after_evictions(narrow) - want
        assert 0 < error.std() < bound * want.std()


@pytest.mark.parametrize("kv_dtype", NARROW)
def test_kernels_equal_the_reference(tmp_path: Path, kv_dtype: str) -> None:
    """F32 weights: the C kernels' logits over stored codes are torch's but for the codes that fell
    on the other side of a step."""
    config = type(QWEN2)(quantisation="F32")
    tokens = np.random.default_rng(3).integers(0, VOCAB, 40).tolist()
    got, want = (
        logits_at_once(load_tiny(tmp_path, config, backend, kv_dtype=kv_dtype), tokens)
        for backend in ("native", "reference")
    )
    assert (got - want).std() < 0.002 * want.std()


def distributions(path: Path, kv_dtype: str) -> Tensor:
    """Log-probabilities of the next token behind each of a sentence's, [tokens, vocab_size]."""
    model = load_model(path, EngineConfig(kv_pool_bytes=64 << 20, kv_dtype=kv_dtype))
    tokens = model.tokenizer.encode(SENTENCE)
    stream, rows = model.new_stream("s"), []
    for token in tokens:
        stream.append([token])
        rows.append(finish(model, stream).log_softmax(0))
    return torch.stack(rows)


@pytest.mark.weights
def test_smollm2_is_as_sure_with_narrow_k_and_v(smollm2_path: Path) -> None:
    """Real weights: the distributions over the next token are within 0.02 nats of those with fp32
    K/V on average in int8, within 0.05 in fp8."""
    exact = distributions(smollm2_path, "fp32")
    for kv_dtype, bound in (("int8", 0.02), ("fp8", 0.05)):
        narrow = distributions(smollm2_path, kv_dtype)
        assert float((exact.exp() * (exact - narrow)).sum(1).mean()) <= bound
