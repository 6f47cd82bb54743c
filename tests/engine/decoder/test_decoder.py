"""Streamed equals offline: any cut of the input, any rollback, any company in the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.config import EngineConfig
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.scheduling.scheduler import Plan, Work
from tests.engine.harness import finish, greedy, load_tiny, logits_at_once
from tests.engine.reference_model import Offline, offline_logits, reference_model
from tests.engine.tiny_gguf import LLAMA, QWEN2, TinyConfig, write_tiny_gguf
from tests.numerics import assert_as_near

PLAIN = TinyConfig(quantisation="F32", kv_heads=1, tied_output=True, seed=3)
CONFIGS = {
    "llama_tied_q4_1": LLAMA,
    "qwen2_bias_untied_q8_0": QWEN2,
    "qwen2_f32_one_kv_head": PLAIN,
}
BACKENDS = ("native", "reference")
SENTENCE = "Listen: the quick brown fox jumps over the lazy dog, and then it sleeps."
VOCAB = 271
# (what, tokens to append or to cut, token budget of the steps that follow)
moves = st.lists(
    st.tuples(st.sampled_from("aacs"), st.lists(st.integers(0, VOCAB - 1), max_size=12)),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> TinyConfig:
    return CONFIGS[request.param]


@pytest.fixture(scope="module")
def models(config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    folder = tmp_path_factory.mktemp("tiny")
    return {backend: load_tiny(folder, config, backend) for backend in BACKENDS}


@pytest.fixture(scope="module")
def offline(config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> Offline:
    path = tmp_path_factory.mktemp("offline") / "tiny.gguf"
    return Offline(GgufFile(write_tiny_gguf(path, config)))


def play(model: LoadedModel, stream: Stream, script: list[tuple[str, list[int]]]) -> None:
    """Append, cut back and step, in the order and the sizes that `script` says."""
    for what, tokens in script:
        if what == "a":
            stream.append(tokens)
        elif what == "c":
            stream.truncate(max(0, len(stream) - len(tokens)))
        elif stream.pending:
            finish(model, stream, token_budget=1 + len(tokens))
    if not stream.pending:
        stream.append([1, 2, 3])


@given(moves)
@settings(max_examples=25, deadline=None)
def test_any_cut_of_the_input_gives_the_offline_logits(
    models: dict[str, LoadedModel], offline: Offline, script: list[tuple[str, list[int]]]
) -> None:
    """Appended in pieces, rolled back, chunked: fp32 logits as near as fp32 lets them be to one
    offline forward by `transformers` on the same dequantised weights."""
    model = models["reference"]
    stream = model.new_stream("s")
    play(model, stream, script)
    logits = finish(model, stream, token_budget=3)
    expected, exact = offline.logits(stream.tokens)
    stream.close()
    assert expected.abs().max() > 0.1
    assert_as_near(logits, expected, exact)


@given(moves)
@settings(max_examples=25, deadline=None)
def test_any_cut_of_the_input_gives_the_same_bits(
    models: dict[str, LoadedModel], script: list[tuple[str, list[int]]]
) -> None:
    """With the native kernels the logits are those of one prefill at once, bit for bit."""
    model = models["native"]
    stream = model.new_stream("s")
    play(model, stream, script)
    logits = finish(model, stream, token_budget=3)
    expected = logits_at_once(model, stream.tokens)
    stream.close()
    assert torch.equal(logits, expected)


def test_sessions_in_one_batch_do_not_touch_each_other(models: dict[str, LoadedModel]) -> None:
    """Five sessions of different lengths, prefilled and decoded together, each give the bits they
    give alone; no slot that nobody wrote is read (the pools start full of NaN)."""
    model = models["native"]
    model.cache.fill(float("nan"))
    random = np.random.default_rng(1)
    streams = [model.new_stream(str(i)) for i in range(5)]
    for stream, length in zip(streams, (1, 4, 7, 13, 20), strict=True):
        stream.append(random.integers(0, VOCAB, length).tolist())
    for step in range(6):
        works = [
            Work(s, min(s.pending, 1 + (step + i) % 5), s.pending <= 1 + (step + i) % 5, 0)
            for i, s in enumerate(streams)
            if s.pending
        ]
        logits = model.runner.step(Plan(tuple(works))).logits
        for stream, row in logits.items():
            assert torch.equal(row, logits_at_once(model, stream.tokens))
            stream.append([int(row.argmax())])
        assert logits
    model.pool.check_accounting([stream.table for stream in streams])
    for stream in streams:
        stream.close()


def test_native_kernels_on_plain_weights_equal_transformers(tmp_path: Path) -> None:
    """F32 weights are not quantised, so the native path too is as near to offline as fp32 is."""
    model = load_tiny(tmp_path, PLAIN, "native")
    offline = Offline(GgufFile(write_tiny_gguf(tmp_path / "x.gguf", PLAIN)))
    tokens = np.random.default_rng(2).integers(0, VOCAB, 30).tolist()
    assert_as_near(logits_at_once(model, tokens), *offline.logits(tokens))


def test_a_soft_token_is_its_embedding(models: dict[str, LoadedModel]) -> None:
    """A soft token that holds word 7's embedding gives word 7's logits, bit for bit; another
    vector gives others."""
    model = models["native"]
    stream = model.new_stream("s")
    word = model.decoder.embed(torch.tensor([7])).numpy()
    ids = stream.soft.intern(np.concatenate([word, word * 2]))
    stream.append([1, 2, ids[0], 3])
    assert torch.equal(finish(model, stream), logits_at_once(model, [1, 2, 7, 3]))
    stream.reconcile([1, 2, ids[1], 3])
    assert not torch.equal(finish(model, stream), logits_at_once(model, [1, 2, 7, 3]))
    stream.close()


def test_fp16_storage_stays_close_to_fp32(tmp_path: Path) -> None:
    """Half the cache bytes for an error far below what a token's choice turns on, and with the
    native kernels it is the same error in any cut of the input."""
    tokens = list(range(40))
    exact = load_tiny(tmp_path, QWEN2, "reference")
    half = load_tiny(tmp_path, QWEN2, "reference", kv_dtype="fp16")
    assert half.cache.bytes_per_token * 2 == exact.cache.bytes_per_token
    expected = logits_at_once(exact, tokens)
    error = logits_at_once(half, tokens) - expected
    assert 0 < error.std() < 0.05 * expected.std()
    native = load_tiny(tmp_path, QWEN2, "native", kv_dtype="fp16")
    stream = native.new_stream("s")
    stream.append(tokens)
    assert torch.equal(finish(native, stream, token_budget=7), logits_at_once(native, tokens))


@pytest.mark.weights
def test_smollm2_streamed_equals_transformers(smollm2_path: Path) -> None:
    """Real weights: a chat streamed in words with a rolled-back guess in between gives the logits
    of one offline forward, and then the same greedy answer."""
    model = load_model(smollm2_path, EngineConfig(backend="reference", kv_pool_bytes=64 << 20))
    offline = Offline(GgufFile(smollm2_path))
    stream = model.new_stream("s")
    head = [*model.chat.system("You are a helpful assistant."), *model.chat.user_open]
    stream.append(head)
    for guess in ("What", "What is the cap on", "What is the capital of", "What is the capital"):
        stream.reconcile(model.tokenizer.encode(guess), start=len(head))
        if stream.pending:
            finish(model, stream, token_budget=5)
    stream.append(model.tokenizer.encode(" of France?"))
    stream.append(model.chat.user_close_and_assistant_open)
    logits = finish(model, stream, token_budget=7)
    prompt = list(stream.tokens)
    expected, exact = offline.logits(prompt)
    assert_as_near(logits, expected, exact)
    answer = [int(expected.argmax())]
    stream.append(answer)
    answer += greedy(model, stream, 7)
    assert model.tokenizer.decode(answer[:-1]) == "The capital of France is Paris."
    predicted = offline_logits(offline.fp32, [*prompt, *answer])[len(prompt) - 1 : -1].argmax(dim=1)
    assert predicted.tolist() == answer


@pytest.fixture(scope="module")
def native_smollm2(smollm2_path: Path) -> LoadedModel:
    return load_model(smollm2_path, EngineConfig(backend="native", kv_pool_bytes=64 << 20))


@pytest.mark.weights
def test_smollm2_native_answers_bit_for_bit_alike(native_smollm2: LoadedModel) -> None:
    """Packed weights and native kernels: word by word equals all at once, bit for bit."""
    model = native_smollm2
    stream = model.new_stream("s")
    for index, word in enumerate(SENTENCE.split(" ")):
        stream.append(model.tokenizer.encode(word if index == 0 else f" {word}"))
        streamed = finish(model, stream, token_budget=2)
    whole = model.tokenizer.encode(SENTENCE)
    assert list(stream.tokens) == whole
    assert torch.equal(streamed, logits_at_once(model, whole))


@pytest.mark.weights
def test_smollm2_native_is_as_sure_as_the_exact_model(
    native_smollm2: LoadedModel, smollm2_path: Path
) -> None:
    """What 8-bit activations cost on real weights: after each of a sentence's tokens the native
    distribution over the next one is within 0.02 nats of `transformers` on average."""
    model = native_smollm2
    tokens = model.tokenizer.encode(SENTENCE)
    exact = offline_logits(reference_model(GgufFile(smollm2_path)), tokens).log_softmax(1)
    stream = model.new_stream("s")
    divergences = []
    for token, expected in zip(tokens, exact, strict=True):
        stream.append([token])
        native = finish(model, stream).log_softmax(0)
        divergences.append(float((expected.exp() * (expected - native)).sum()))
    assert sum(divergences) / len(divergences) <= 0.02
