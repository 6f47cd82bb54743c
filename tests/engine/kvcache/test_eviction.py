"""Eviction from the middle of the cache equals attention with a mask.

The reference is plain torch over all tokens that ever were. A query attends to the tokens that were
in the stream when it was computed, at their own positions, with the sink right before the first of
the others. K/V computed while a token was there keep its influence after its eviction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headstart.engine.decoder.decoder import Decoder
from headstart.engine.decoder.dense import DenseHead, DenseLayer, DenseStack
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel
from headstart.kernels.rms_norm.reference import rms_norm
from tests.engine.harness import EITHER, alike, finish, load_tiny
from tests.engine.tiny_gguf import TinyConfig
from tests.numerics import assert_as_near

SINK = 6


class Era(NamedTuple):
    """Tokens before `until`, behind the previous era, were computed while `alive` were there, at
    `positions`."""

    until: int
    alive: list[int]
    positions: list[int]


@dataclass
class History:
    """All tokens that ever were, their positions, and the tokens present when each was computed."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    eras: list[Era] = field(default_factory=list)

    def append(self, tokens: list[int]) -> None:
        at = self.positions[self.alive[-1]] if self.alive else -1
        for token in tokens:
            at += 1
            self.tokens.append(token)
            self.positions.append(at)
            self.alive.append(len(self.tokens) - 1)

    def evict(self, start: int, end: int) -> None:
        self._end_era()
        del self.alive[start:end]
        if start == SINK:
            for i in range(SINK):
                self.positions[i] = self.positions[self.alive[SINK]] - SINK + i

    def close_gaps(self) -> None:
        """The remaining tokens have no gaps, and the last keeps its position."""
        self._end_era()
        end = self.positions[self.alive[-1]]
        for back, i in enumerate(reversed(self.alive)):
            self.positions[i] = end - back

    def _end_era(self) -> None:
        self.eras.append(Era(len(self.tokens), list(self.alive), list(self.positions)))

    def logits(self, model: LoadedModel, dtype: torch.dtype) -> Tensor:
        """After the last token, computed in `dtype`."""
        assert isinstance(model.decoder, Decoder)
        weights, spec = model.decoder.weights, model.spec
        assert isinstance(weights.layers, DenseStack)
        assert isinstance(weights.output, DenseHead)
        x = weights.embedding(torch.tensor(self.tokens)).to(dtype)
        eras = [*self.eras, Era(len(self.tokens), self.alive, self.positions)]
        for layer in weights.layers.layers:
            x = self._layer(model, layer, x, eras)
        normed = rms_norm(x[-1:], weights.output_norm.to(dtype), spec.rms_eps)
        return (normed @ weights.output.weight.to(dtype).T)[0]

    def _layer(
        self,
        model: LoadedModel,
        layer: DenseLayer,
        x: Tensor,
        eras: list[Era],
    ) -> Tensor:
        spec = model.spec
        normed = rms_norm(x, layer.attn_norm.to(x.dtype), spec.rms_eps)
        qkv = normed @ layer.qkv.to(x.dtype).T + layer.qkv_bias.to(x.dtype)
        widths = [spec.q_width, spec.kv_width, spec.kv_width]
        q, k, v = (
            part.reshape(len(part), -1, spec.head_dim) for part in torch.split(qkv, widths, dim=1)
        )
        k, v = (part.repeat_interleave(spec.heads // spec.kv_heads, dim=1) for part in (k, v))
        out = torch.empty_like(q)
        start = 0
        for end, alive, positions in eras:
            for row in range(start, end):
                seen = [i for i in alive if i <= row]
                places = [positions[i] for i in seen]
                mine = positions[row]
                keys = turned(k[seen], places, spec.rope_base)
                query = turned(q[row : row + 1], [mine], spec.rope_base)[0]
                scores = torch.einsum("hd,thd->ht", query, keys) * spec.head_dim**-0.5
                out[row] = torch.einsum("ht,thd->hd", scores.softmax(-1), v[seen])
            start = end
        x = x + out.flatten(1) @ layer.attn_out.to(x.dtype).T
        normed = rms_norm(x, layer.ffn_norm.to(x.dtype), spec.rms_eps)
        gate, up = (normed @ layer.gate_up.to(x.dtype).T).chunk(2, dim=-1)
        return x + (torch.nn.functional.silu(gate) * up) @ layer.down.to(x.dtype).T


def turned(x: Tensor, positions: list[int], base: float) -> Tensor:
    """RoPE in halves, the angles in fp64: x [n, heads, D]."""
    dim = x.shape[-1]
    frequencies = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.outer(torch.tensor(positions, dtype=torch.float64), frequencies)[:, None]
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Whose weights `History` reads."""
    return load_tiny(tmp_path_factory.mktemp("exact"), TinyConfig(), "reference")


@pytest.fixture(scope="module", params=["reference", "device"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("eviction")
    return load_tiny(folder, TinyConfig(), request.param, kv_pool_bytes=1 << 20)


@pytest.fixture(scope="module", params=EITHER)
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """On the native kernels, whose bits do not depend on the batch, or what is near them."""
    folder = tmp_path_factory.mktemp("native")
    return load_tiny(folder, TinyConfig(), request.param, kv_pool_bytes=1 << 20)


def carry_out(model: LoadedModel, move: KvMove | None) -> None:
    if move is not None:
        model.runner.move(move)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 90), min_size=1, max_size=9),
            st.integers(0, 12),
            st.integers(1, 9),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_after_eviction_it_is_attention_with_a_mask(
    exact: LoadedModel, model: LoadedModel, moves: list[tuple[list[int], int, int, bool]]
) -> None:
    """Any sequence of growth, cuts behind the sink and further on, and gaps that are closed: logits
    as near to those in fp64 as the same attention in fp32."""
    stream, history = model.new_stream("s"), History()
    try:
        beginning = list(range(1, SINK + 5))
        stream.append(beginning)
        history.append(beginning)
        for tokens, at, count, close_gaps in moves:
            stream.append(tokens)
            history.append(tokens)
            got = finish(model, stream)
            wanted = history.logits(exact, torch.float64)
            assert_as_near(got, history.logits(exact, torch.float32), wanted)
            start = min(SINK + at, len(stream) - 2)
            end = min(start + count, len(stream) - 1)
            carry_out(model, stream.evict([(start, end)], SINK))
            history.evict(start, end)
            if close_gaps:
                carry_out(model, stream.close_gaps(SINK))
                history.close_gaps()
            expected = [history.positions[i] for i in history.alive]
            assert stream.axes(0, len(stream))[0].tolist() == expected
            model.pool.check_accounting(stream.tables)
    finally:
        stream.close()
    assert model.pool.used_blocks == 0


def test_evicting_costs_no_decoder_work(model: LoadedModel) -> None:
    """Nothing is pending after an eviction, and the evicted tokens' blocks are free."""
    stream = model.new_stream("s")
    stream.append(list(range(1, 60)))
    finish(model, stream)
    before = stream.prefilled_tokens
    carry_out(model, stream.evict([(SINK, 30), (40, 42)], SINK))
    assert (stream.pending, len(stream), stream.prefilled_tokens) == (0, 33, before)
    assert list(stream.tokens) == [*range(1, SINK + 1), *range(31, 41), *range(43, 60)]
    assert len(stream.table.blocks) == model.pool.blocks_for(33)
    assert stream.axes(0, 33)[0].tolist() == [*range(24, 40), *range(42, 59)]
    stream.close()


def test_the_sink_is_turned_from_its_copy_so_that_errors_do_not_add_up(model: LoadedModel) -> None:
    """After 200 moves its keys are as exact as after one, and its values are the bits they were."""
    stream = model.new_stream("s")
    stream.append(list(range(1, 30)))
    finish(model, stream)
    slots = torch.arange(SINK)
    original = model.cache.gather(0, torch.tensor(stream.table.blocks[0]) * 4 + slots[:4]).clone()
    for _ in range(200):
        carry_out(model, stream.evict([(SINK, SINK + 9)], SINK))
        stream.append([7] * 9)
        finish(model, stream)
    moved = model.cache.gather(0, torch.tensor(stream.table.blocks[0]) * 4 + slots[:4])
    assert torch.equal(moved[1], original[1])
    shift = int(stream.axes(0, 1)[0, 0])
    assert shift == 1800
    wanted = turned(original[0].double(), [shift] * 4, model.spec.rope_base)
    assert_as_near(moved[0], wanted.float(), wanted)
    stream.close()


def test_a_sink_that_others_share_stays_as_it_is_for_them(native: LoadedModel) -> None:
    """One session evicts; another with the same prefix still gets the bits of a stream alone."""
    model = native
    tokens = list(range(1, 40))
    first = model.new_stream("first")
    first.append(tokens)
    finish(model, first)
    second = first.fork("second")
    carry_out(model, first.evict([(SINK, 20)], SINK))
    second.append([50])
    shared = finish(model, second)
    alone = model.new_stream("alone")
    alone.append([*tokens, 50])
    assert alike(model, shared, finish(model, alone))
    for stream in (first, second, alone):
        model.pool.check_accounting([t for s in (first, second, alone) for t in s.tables])
        stream.close()


def test_without_free_blocks_kv_behind_the_cut_are_recomputed() -> None:
    """In a full pool with shared blocks the rest becomes pending, and the accounting holds."""
    pool = BlockPool(8, 4)
    stream = Stream("s", pool, 100, 64)
    stream.append(list(range(32)))
    stream.reserve(32)
    stream.advance(32)
    other = stream.fork("o")
    assert stream.evict([(SINK, 10)], SINK) is None
    assert list(stream.tokens) == [*range(SINK), *range(10, 32)]
    assert stream.kv_len <= SINK
    pool.check_accounting([*stream.tables, *other.tables])
    assert stream.axes(0, 8)[0].tolist() == list(range(8))


def test_a_cut_into_the_moved_sink_recomputes_all(native: LoadedModel) -> None:
    """With another system prompt all tokens are recomputed from position 0 on."""
    model = native
    stream = model.new_stream("s")
    stream.append(list(range(1, 40)))
    finish(model, stream)
    carry_out(model, stream.evict([(SINK, 20)], SINK))
    wanted = [1, 2, 99, *stream.tokens[3:]]
    stream.reconcile(wanted)
    got = finish(model, stream)
    fresh = model.new_stream("fresh")
    fresh.append(wanted)
    assert alike(model, got, finish(model, fresh))
    assert np.array_equal(stream.axes(0, 5)[0], np.arange(5))
    for each in (stream, fresh):
        each.close()


def test_a_cut_inside_the_rotated_prefix_recomputes_all(native: LoadedModel) -> None:
    """If an item before closed gaps is removed, all is recomputed from position 0 on, as in a new
    stream."""
    model = native
    stream = model.new_stream("s")
    stream.append(list(range(1, 40)))
    finish(model, stream)
    carry_out(model, stream.evict([(SINK, 9), (15, 25)], SINK))
    carry_out(model, stream.close_gaps(SINK))
    assert stream.axes(0, len(stream))[0].tolist() == list(range(13, 39))
    assert stream.close_gaps(SINK) is None
    wanted = [*stream.tokens[:9], *stream.tokens[12:]]
    stream.reconcile(wanted)
    got = finish(model, stream)
    fresh = model.new_stream("fresh")
    fresh.append(wanted)
    assert alike(model, got, finish(model, fresh))
    for each in (stream, fresh):
        each.close()
