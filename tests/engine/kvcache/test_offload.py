"""K/V in host memory are restored bit for bit; see also `test_sharing`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel
from tests.engine.harness import EITHER, alike, finish, greedy, load_tiny
from tests.engine.tiny_gguf import TinyConfig

MIB = 1 << 20
PROMPT = [*range(1, 12)]


@pytest.fixture(
    scope="module", params=product(EITHER, ["fp32", "fp16", "int8", "fp8"]), ids="-".join
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("tiny")
    backend, kind = request.param
    return load_tiny(folder, TinyConfig(), backend, kv_pool_bytes=MIB, kv_dtype=kind)


def host_of(model: LoadedModel, max_bytes: int = MIB) -> HostMemory:
    return HostMemory(model.cache, model.pool, max_bytes)


def overwrite_what_is_free(model: LoadedModel) -> None:
    """Allocate all free blocks, overwrite them, and release them without content keys."""
    taken = model.pool.allocate(model.pool.free_blocks)
    for block in taken:
        model.cache.load_block(block, torch.full_like(model.cache.save_block(block, 4), 77))
    model.pool.release(taken)


def same(stream: Stream) -> None:
    return None


def evicted(stream: Stream) -> None:
    """A stream with evicted tokens, whose blocks are not shared and whose sink was copied."""
    move = stream.evict([(5, 9)], 5)
    assert move is not None
    assert stream.tables[1].blocks
    MOVERS[stream.name](move)


MOVERS: dict[str, Callable[..., None]] = {}


@pytest.mark.parametrize("history", [same, evicted])
def test_answers_after_offloading_are_bit_for_bit_the_same(
    model: LoadedModel, history: Callable[[Stream], None]
) -> None:
    """A stream with text and a picture is offloaded between two answers, and its blocks are used by
    others meanwhile. Logits and the next answer are equal, and nothing is recomputed."""
    host = host_of(model)
    picture = np.random.default_rng(0).normal(size=(5, model.spec.hidden)).astype(np.float32)
    logits, answers = [], []
    for name in ("stays", "goes"):
        stream = model.new_stream(name)
        MOVERS[name] = model.runner.move
        stream.append([*PROMPT, *stream.soft.intern(picture), 40, 41])
        greedy(model, stream, 4)
        history(stream)
        stored = [model.cache.save_block(block, 4) for block in stream.kv_blocks]
        if name == "goes":
            kv_len, computed = stream.kv_len, stream.prefilled_tokens
            assert stream.offload(host)
            assert stream.kv_blocks == []
            assert host.used_bytes >= kv_len * model.cache.bytes_per_token
            overwrite_what_is_free(model)
            stream.restore()
            assert host.used_bytes == 0
            assert (stream.kv_len, stream.prefilled_tokens) == (kv_len, computed)
            for block, before in zip(stream.table.blocks[:-1], stored, strict=False):
                assert torch.equal(model.cache.save_block(block, 4), before)
        stream.append([60, 61, 62])
        logits.append(finish(model, stream))
        answers.append(greedy(model, _with(stream, 63), 8))
        stream.close()
    assert alike(model, *logits)
    assert answers[0] == answers[1]
    model.pool.check_accounting([])


def _with(stream: Stream, token: int) -> Stream:
    stream.append([token])
    return stream


def test_a_shared_prefix_is_offloaded_once_and_restored_from_the_pool(
    model: LoadedModel,
) -> None:
    """Two sessions with one system prompt take its bytes in host memory once; blocks that a third
    session holds in the pool are shared rather than copied back."""
    host = host_of(model)
    streams: list[Stream] = []
    for name in ("a", "b", "c"):
        stream = model.new_stream(name)
        stream.append([*PROMPT, 50 + len(streams)])
        stream.adopt()
        finish(model, stream)
        streams.append(stream)
    first, second, third = streams
    assert first.offload(host)
    once = host.used_bytes
    assert second.offload(host)
    assert host.used_bytes - once == 4 * model.cache.bytes_per_token  # its own last block
    host.check_accounting([*first.offload_slot.offloaded, *second.offload_slot.offloaded])
    second.restore()
    host.check_accounting(first.offload_slot.offloaded)
    assert second.table.blocks[:2] == third.table.blocks[:2]
    model.pool.check_accounting([s.table for s in streams])
    first.close()
    assert host.used_bytes == 0
    for stream in streams:
        stream.close()


def test_a_stream_that_does_not_fit_is_not_moved(model: LoadedModel) -> None:
    """Too little host memory refuses to offload, and a full pool to restore. Both leave the stream
    unchanged, and dropped K/V are recomputed with the same logits."""
    stream = model.new_stream("s")
    stream.append([*PROMPT, 40])
    finish(model, stream)
    blocks = list(stream.table.blocks)
    assert not stream.offload(host_of(model, 11 * model.cache.bytes_per_token))
    assert stream.table.blocks == blocks
    host = host_of(model)
    assert stream.offload(host)
    taken = model.pool.allocate(model.pool.free_blocks)
    with pytest.raises(CacheFull):
        stream.restore()
    assert stream.offload_slot.num_blocks == len(blocks)
    model.pool.release(taken)
    stream.drop_kv()
    assert (host.used_bytes, stream.kv_len, stream.pending) == (0, 0, 12)
    again = finish(model, stream)
    stream.close()
    alone = model.new_stream("alone")
    alone.append([*PROMPT, 40])
    assert alike(model, finish(model, alone), again)
    alone.close()


def test_restored_blocks_are_found_by_content_again(model: LoadedModel) -> None:
    """Restored full blocks are in new places and can be adopted by others."""
    overwrite_what_is_free(model)  # what other tests left behind would be known in their place
    stream, host = model.new_stream("s"), host_of(model)
    stream.append([*PROMPT, 40])
    finish(model, stream)
    assert stream.offload(host)
    overwrite_what_is_free(model)
    stream.restore()
    other = model.new_stream("other")
    other.append([*PROMPT, 41])
    assert other.adopt() == 8
    other.close()
    stream.close()


def test_a_failed_restore_holds_no_blocks(model: LoadedModel) -> None:
    """If not everything fits, blocks that others hold in the pool are not kept either."""
    first, second, host = model.new_stream("first"), model.new_stream("second"), host_of(model)
    for stream in (first, second):
        stream.append([*PROMPT, 40])
        stream.adopt()
        finish(model, stream)
    assert second.offload(host)
    taken = model.pool.allocate(model.pool.free_blocks)
    with pytest.raises(CacheFull):
        second.restore()
    assert [model.pool.references(block) for block in first.table.blocks] == [1] * 3
    model.pool.release(taken)
    second.restore()
    assert second.table.blocks[:2] == first.table.blocks[:2]
    first.close()
    second.close()


def test_a_stream_is_offloaded_whole_or_not_at_all(model: LoadedModel) -> None:
    """With host memory for its tokens but not for the copy of its sink, a stream is not moved, and
    host memory stays empty."""
    stream = model.new_stream("s")
    MOVERS["s"] = model.runner.move
    stream.append([*PROMPT, 40, 41, 42, 43])
    finish(model, stream)
    evicted(stream)
    other = stream.fork("other")
    taken = model.pool.allocate(model.pool.free_blocks)
    host, blocks = host_of(model, stream.kv_len * model.cache.bytes_per_token), stream.kv_blocks
    assert not stream.offload(host)
    assert (stream.kv_blocks, host.used_bytes) == (blocks, 0)
    model.pool.release(taken)
    other.close()
    stream.close()
    model.pool.check_accounting([])


def test_only_the_bytes_in_use_are_copied(model: LoadedModel, tmp_path: Path) -> None:
    """A block that is a quarter full costs a quarter of a block."""
    host = host_of(model)
    stream = model.new_stream("s")
    stream.append([1, 2, 3, 4, 5])
    finish(model, stream)
    assert stream.offload(host)
    assert host.used_bytes == 5 * model.cache.bytes_per_token
    stream.close()
    assert host.used_bytes == 0
