"""K and V of pictures in fewer bytes than those of words, and all else as with one type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.eviction import slots_of
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel
from tests.engine.harness import finish, load_tiny, logits_at_once
from tests.engine.tiny_gguf import QWEN2

VOCAB, PARTS, HIDDEN = 271, 40, QWEN2.hidden
PICTURE = MediaPosition(MediaKind.IMAGE)
# From VOCAB on: parts of pictures, the same embedding whenever the same number.
SEEN = np.random.default_rng(5).normal(0, 0.5, (PARTS, HIDDEN)).astype(np.float32)
words = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9)
parts = st.lists(st.integers(VOCAB, VOCAB + PARTS - 1), min_size=1, max_size=15)
contents = st.lists(st.one_of(words, parts), min_size=1, max_size=4).map(
    lambda runs: [one for run in runs for one in run]
)


@pytest.fixture(scope="module", params=["int8", "fp8"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedModel]:
    folder = tmp_path_factory.mktemp("tiny")
    made = load_tiny(folder, QWEN2, "native", kv_vision_dtype=request.param)
    made.cache.fill(float("nan"))  # shows reads of unwritten slots
    yield made
    made.pool.check_accounting([])


def put(stream: Stream, content: Sequence[int], *, kind: MediaKind = MediaKind.IMAGE) -> None:
    """Append words and parts of pictures."""
    ids = []
    for one in content:
        if one < VOCAB:
            ids.append(one)
        else:
            ids += stream.soft.intern(SEEN[one - VOCAB][None], [PICTURE._replace(kind=kind)])
    stream.append(ids)


def reading(model: LoadedModel, content: Sequence[int], name: str = "s") -> Stream:
    stream = model.new_stream(name)
    put(stream, content)
    return stream


def at_once(model: LoadedModel, content: Sequence[int]) -> Tensor:
    stream = reading(model, content)
    logits = finish(model, stream, token_budget=len(content))
    stream.close()
    return logits


def forget(model: LoadedModel) -> None:
    """Give up what the pool kept for its content, so that nobody adopts it."""
    model.pool.release(model.pool.allocate(model.pool.free_blocks))


@given(contents, contents, contents, st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_any_cut_and_rollback_gives_the_same_bits(
    model: LoadedModel, first: list[int], guess: list[int], second: list[int], budget: int
) -> None:
    """In pieces, with a guess taken back in between, so that blocks begin narrow and become wide:
    the logits of one prefill, bit for bit."""
    stream = reading(model, first)
    finish(model, stream, token_budget=budget)
    put(stream, guess)
    finish(model, stream, token_budget=budget)
    stream.truncate(len(first))
    put(stream, second)
    logits = finish(model, stream, token_budget=budget)
    stream.close()
    assert torch.equal(logits, at_once(model, first + second))


def test_words_alone_have_the_bits_of_one_type(model: LoadedModel, tmp_path: Path) -> None:
    """Nothing of a conversation without pictures is rounded."""
    plain = load_tiny(tmp_path, QWEN2, "native")
    tokens = np.random.default_rng(1).integers(0, VOCAB, 50).tolist()
    assert torch.equal(logits_at_once(model, tokens), logits_at_once(plain, tokens))


def test_sounds_and_labels_are_not_rounded(model: LoadedModel, tmp_path: Path) -> None:
    """Soft tokens of sounds, and words of a picture's description, have fp32's bits."""
    plain = load_tiny(tmp_path, QWEN2, "native")
    results = []
    for each in (model, plain):
        stream = each.new_stream("s")
        put(stream, [1, *range(VOCAB, VOCAB + 12)], kind=MediaKind.AUDIO)
        stream.append([*stream.soft.intern(SEEN[:9]), 2])
        results.append(finish(each, stream))
        assert stream.narrow_tokens == 0
        stream.close()
    assert torch.equal(*results)


def test_pictures_take_narrow_blocks(model: LoadedModel) -> None:
    """Of 10 words, 23 parts and 4 words: the five whole blocks of parts are narrow, and the stream
    says so."""
    content = [*range(10), *range(VOCAB, VOCAB + 23), *range(20, 24)]
    stream = reading(model, content)
    finish(model, stream)
    kinds = [model.pool.is_narrow(block) for block in stream.table.blocks]
    assert kinds == [False, False, False, True, True, True, True, True, False, False]
    assert stream.narrow_tokens == 20
    stream.truncate(31)
    assert stream.narrow_tokens == 19
    model.pool.check_accounting([stream.table])
    stream.close()


def test_an_open_block_becomes_wide_when_words_follow(model: LoadedModel) -> None:
    """Six parts are computed, then words come: the half-full second block is copied to a wide one,
    without a change of a bit, also of a fork that keeps the narrow one."""
    content = list(range(VOCAB, VOCAB + 6))
    stream = reading(model, content)
    finish(model, stream)
    assert [model.pool.is_narrow(block) for block in stream.table.blocks] == [True, True]
    fork = stream.fork("f")
    put(stream, [7, 8, 9])
    put(fork, [VOCAB + 30, VOCAB + 31, 9])
    logits = finish(model, stream), finish(model, fork)
    assert [model.pool.is_narrow(block) for block in stream.table.blocks] == [True, False, False]
    assert [model.pool.is_narrow(block) for block in fork.table.blocks] == [True, True, False]
    model.pool.check_accounting([stream.table, fork.table])
    stream.close()
    fork.close()
    forget(model)
    assert torch.equal(logits[0], at_once(model, [*content, 7, 8, 9]))
    assert torch.equal(logits[1], at_once(model, [*content, VOCAB + 30, VOCAB + 31, 9]))


def test_equal_pictures_are_shared(model: LoadedModel) -> None:
    """A second stream adopts words and pictures, and one whose sounds have the same embeddings
    adopts none of them."""
    content = [1, 2, 3, 4, *range(VOCAB, VOCAB + 12), 5, 6]
    wanted = at_once(model, content)
    forget(model)
    first, second, third = reading(model, content), reading(model, content), model.new_stream("t")
    finish(model, first)
    assert second.adopt() == 16
    assert torch.equal(finish(model, second), wanted)
    put(third, content, kind=MediaKind.AUDIO)
    assert third.adopt() == 4
    for stream in (first, second, third):
        stream.close()


def stored_at(model: LoadedModel, stream: Stream) -> Tensor:
    """K and V of a stream as floats: [layers, 2, kv_len, kv_heads, head_dim]."""
    at = torch.from_numpy(slots_of(stream.table.blocks, 4, np.arange(stream.kv_len)))
    layers = range(model.cache.layers)
    return torch.stack([model.cache.decode(model.cache.gather(layer, at)) for layer in layers])


def test_evictions_move_rows_to_blocks_of_their_type(model: LoadedModel) -> None:
    """A picture's parts and words before another picture go: words that follow it come to wide
    blocks without rounding, and the parts that stay come to narrow ones."""
    head, seen = list(range(1, 9)), list(range(VOCAB, VOCAB + 18))
    content = [*head, *seen, *range(30, 41), *seen[:16], *range(50, 57)]
    stream = reading(model, content)
    finish(model, stream)
    before = stored_at(model, stream)
    stays = [*range(8), *range(18, 26), *range(34, len(content))]
    move = stream.evict([(8, 18), (26, 34)], 8)
    assert move is not None
    model.runner.move(move)
    after = stored_at(model, stream)
    values = before[:, 1][:, stays], after[:, 1]
    pictured = torch.tensor([stream.soft.is_picture(token) for token in stream.tokens])
    assert torch.equal(values[0][:, ~pictured], values[1][:, ~pictured])
    assert torch.allclose(values[0], values[1], rtol=1e-5, atol=0)
    narrow = [model.pool.is_narrow(block) for block in stream.table.blocks]
    size = [pictured[i : i + 4].all().item() for i in range(0, len(pictured), 4)]
    assert narrow == size
    model.pool.check_accounting(stream.tables)
    put(stream, [60, 61])
    assert finish(model, stream).isfinite().all()
    stream.close()


def test_words_between_pictures_are_thinned_by_attention(tmp_path: Path) -> None:
    """The attention mass is nearly that of fp32, read from blocks of both types. The words that get
    the least go one by one: the pictures' parts keep their values in narrow blocks, and the words
    that stay keep every bit."""
    content = [*range(1, 11), *range(VOCAB, VOCAB + 18), *range(30, 41), *range(VOCAB, VOCAB + 9)]
    model, plain = (
        load_tiny(tmp_path, QWEN2, "native", kv_vision_dtype=kind, kv_text_kept=0.5)
        for kind in ("int8", "same")
    )
    masses, streams = [], []
    for each in (model, plain):
        stream = reading(each, content)
        finish(each, stream)
        for word in (50, 51, 52):
            put(stream, [word])
            finish(each, stream)
        mass = each.runner.attention(stream)
        assert mass is not None
        masses.append(mass)
        streams.append(stream)
    assert np.abs(masses[0] - masses[1]).max() < 0.03 * masses[1].max()
    stream = streams[0]
    pictured = np.array([stream.soft.is_picture(token) for token in stream.tokens])
    words_there = np.flatnonzero(~pictured)[4:-4]
    least = sorted(
        words_there[np.argsort(masses[0][words_there])[: len(words_there) // 2]].tolist()
    )
    assert len(least) > 5
    before = stored_at(model, stream)
    stays = [at for at in range(len(stream)) if at not in least]
    move = stream.evict([(at, at + 1) for at in least], 4)
    assert move is not None
    model.runner.move(move)
    after = stored_at(model, stream)
    values, kept = before[:, 1][:, stays], torch.from_numpy(~pictured[stays])
    assert torch.equal(values[:, kept], after[:, 1][:, kept])
    assert torch.allclose(values, after[:, 1], rtol=1e-5, atol=0)
    narrow = [model.pool.is_narrow(block) for block in stream.table.blocks]
    assert narrow == [bool(pictured[stays][i : i + 4].all()) for i in range(0, len(stays), 4)]
    assert any(narrow)
    put(stream, [60, 61])
    assert finish(model, stream).isfinite().all()
    model.pool.check_accounting(stream.tables)
    for read in streams:
        read.close()


def test_answers_after_offloading_are_bit_for_bit_the_same(model: LoadedModel) -> None:
    """Narrow blocks go to host memory as narrow, and come back as narrow."""
    host = HostMemory(model.cache, model.pool, 1 << 20)
    content, results = [1, 2, *range(VOCAB, VOCAB + 25), 3], []
    for goes in (False, True):
        stream = reading(model, content)
        finish(model, stream)
        if goes:
            narrow, cache = stream.narrow_tokens, model.cache
            assert narrow == 20
            assert stream.offload(host)
            assert stream.narrow_tokens == narrow
            wide_bytes = (stream.kv_len - narrow) * cache.bytes_per_token
            assert host.used_bytes == wide_bytes + narrow * cache.narrow_bytes_per_token
            forget(model)
            stream.restore()
            assert (stream.narrow_tokens, host.used_bytes) == (narrow, 0)
        put(stream, [4, 5])
        results.append(finish(model, stream))
        stream.close()
        forget(model)
    assert torch.equal(*results)


def test_a_little_less_exact(tmp_path: Path) -> None:
    """Random weights, half of the tokens pictures': within 3 % of the logits' spread (fp8: 12 %),
    and nearer to fp32 than with all in the narrow type."""
    content = [*range(20), *range(VOCAB, VOCAB + 40), *range(40, 60)]
    want = at_once(load_tiny(tmp_path, QWEN2, "reference"), content)
    for narrow, bound in (("int8", 0.03), ("fp8", 0.12)):
        mixed = at_once(load_tiny(tmp_path, QWEN2, "reference", kv_vision_dtype=narrow), content)
        every = at_once(load_tiny(tmp_path, QWEN2, "reference", kv_dtype=narrow), content)
        assert 0 < (mixed - want).std() < min(bound * want.std(), (every - want).std())


def test_a_device_refuses_it(tmp_path: Path) -> None:
    """The setting, and where it holds."""
    with pytest.raises(BadSettings, match="on a device"):
        load_tiny(tmp_path, QWEN2, "device", kv_vision_dtype="int8")
