"""Carries out a plan: reserves blocks, builds the batch, runs the decoder, advances `kv_len`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.decoder.decoder import Batch, Forward
from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.attention_mass import Mass, QueryWindow
from headstart.engine.kvcache.eviction import KvMove, slots_of
from headstart.engine.kvcache.soft_tokens import Vector
from headstart.engine.kvcache.storage import KvCache
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.scheduler import Plan, Work


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step: rows of logits where the decoder is, until the next step.

    `logits`: fp32 [vocab_size] behind the last token of each stream whose work wanted them.
    `probed`: fp32 [vocab_size] at a stream's probe index; `before`: at the index before it, where
    the same step computed that. `refused`: streams for which the cache had no room; they have not
    changed.
    """

    logits: dict[Stream, Tensor] = field(default_factory=dict)
    probed: dict[Stream, Tensor] = field(default_factory=dict)
    before: dict[Stream, Tensor] = field(default_factory=dict)
    refused: dict[Stream, CacheFull] = field(default_factory=dict)


class Runner:
    """Runs plans of one engine on its decoder and cache."""

    def __init__(self, decoder: Forward, cache: KvCache, *, observes: bool = False) -> None:
        """`observes`: keep the newest queries of streams that generate, for `attention`."""
        self.decoder = decoder
        self.cache = cache
        self.steps = 0
        self._observes = observes
        self._windows: WeakKeyDictionary[Stream, QueryWindow] = WeakKeyDictionary()

    def step(self, plan: Plan) -> StepResult:
        """Run `plan`, made for the present state of its streams.

        A stream without free blocks is refused; the others go on. If the decoder raises, no stream
        has advanced and the blocks allocated for the step are free again.
        """
        works, refused = self._reserve(plan.works)
        if not works:
            return StepResult(refused=refused)
        try:
            with torch.inference_mode():
                batch = self._batch(works)
                logits = self.decoder.forward(batch, self.cache)
            for work in works:
                work.stream.advance(work.num_scheduled_tokens)
        finally:
            for work in works:  # between steps a stream holds no more blocks than kv_len needs
                work.stream.table.truncate(work.stream.kv_len)
        self.steps += 1
        wanted = _wanted(works)
        number_of = {row: i for i, row in enumerate(sorted(set(wanted.rows())))}
        row_of = {row: logits[i] for row, i in number_of.items()}
        if batch.queries is not None:
            for stream, row in wanted.last.items():
                window = self._windows.setdefault(stream, QueryWindow())
                window.add(batch.queries[:, number_of[row]])
        return StepResult(
            {stream: row_of[row] for stream, row in wanted.last.items()},
            {stream: row_of[row] for stream, row in wanted.probed.items()},
            {stream: row_of[row] for stream, row in wanted.before.items()},
            refused,
        )

    def move(self, move: KvMove) -> None:
        """Carry out an eviction's move in memory."""
        rotary = self.decoder.rotary
        with torch.inference_mode():
            self.cache.move(torch.from_numpy(move.sources), torch.from_numpy(move.targets))
            for rotation in move.rotations:
                shifts = torch.from_numpy(rotation.shifts)
                cos, sin = rotary(shifts if rotary.axes == 1 else shifts.expand(rotary.axes, -1))
                sources = torch.from_numpy(rotation.sources)
                targets = torch.from_numpy(rotation.targets)
                self.cache.rotate_keys(sources, targets, cos, sin)

    def attention(self, stream: Stream) -> Mass | None:
        """The attention mass of each token in the cache, by the newest generated tokens of the
        stream (`QueryWindow.mass`); None if nothing was observed."""
        window = self._windows.get(stream)
        if window is None:
            return None
        size, blocks = self.cache.block_size, stream.table.blocks
        return window.mass(self.cache, slots_of(blocks, size, np.arange(stream.kv_len)))

    def _queries(self, rows: int) -> Tensor | None:
        """Room for the queries of so many rows, if they are observed."""
        spec = self.decoder.spec
        if not self._observes:
            return None
        dtype = torch.float64 if self.cache.k_pools[0].dtype == torch.float64 else torch.float32
        return torch.empty((spec.layers, rows, spec.heads, spec.head_dim), dtype=dtype)

    def _reserve(self, works: Sequence[Work]) -> tuple[list[Work], dict[Stream, CacheFull]]:
        granted, refused = [], {}
        for work in works:
            stream = work.stream
            assert work.num_scheduled_tokens <= stream.pending, f"{work} is stale"
            try:
                copy = stream.reserve(work.num_scheduled_tokens)
            except CacheFull as full:
                refused[stream] = full
            else:
                if copy is not None:
                    self.cache.copy_block(copy.source, copy.target)
                granted.append(work)
        return granted, refused

    def _batch(self, works: Sequence[Work]) -> Batch:
        counts = [work.num_scheduled_tokens for work in works]
        starts = [work.stream.kv_len for work in works]
        ends = np.cumsum(counts)
        tables = _tables([work.stream for work in works])
        seq_of_row = np.repeat(np.arange(len(works), dtype=np.int32), counts)
        # A row's index: its stream's kv_len plus its number among the stream's rows.
        indices = np.arange(ends[-1]) - np.repeat(ends - counts - starts, counts)
        blocks, offsets = np.divmod(indices, self.cache.block_size)
        slots = tables[seq_of_row, blocks].astype(np.int64) * self.cache.block_size + offsets
        tokens, soft_rows, soft_vectors = self._tokens(works)
        wanted = sorted(set(_wanted(works).rows()))
        axes = _axes(works)
        return Batch(
            tokens=torch.from_numpy(tokens),
            soft_rows=torch.from_numpy(soft_rows),
            soft_vectors=torch.from_numpy(soft_vectors),
            positions=torch.from_numpy(axes[0] if self.decoder.rotary.axes == 1 else axes),
            slots=torch.from_numpy(slots),
            tables=torch.from_numpy(tables),
            seq_of_row=torch.from_numpy(seq_of_row),
            context_of_row=torch.from_numpy((indices + 1).astype(np.int32)),
            wanted=torch.tensor(wanted, dtype=torch.int64),
            queries=self._queries(len(wanted)),
            coded=self._coded(works),
        )

    def _coded(self, works: Sequence[Work]) -> Tensor | None:
        """The rows of pictures, bool [rows]; None in a cache of one type."""
        if self.cache.narrow is None:
            return None
        return torch.tensor(
            [work.stream.soft.is_picture(token) for work in works for token in _fresh(work)]
        )

    def _tokens(
        self, works: Sequence[Work]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Vector]:
        """Token ids int64 [rows] (0 for soft tokens); rows int64 [n] and vectors [n, hidden] of the
        soft tokens."""
        spec = self.decoder.spec
        ids: list[int] = []
        vectors: list[Vector] = []
        for work in works:
            stream = work.stream
            fresh = _fresh(work)
            ids.extend(fresh)
            vectors.extend(stream.soft.vector(t) for t in fresh if t >= spec.vocab_size)
        tokens = np.array(ids, dtype=np.int64)
        soft_rows = np.flatnonzero(tokens >= spec.vocab_size)
        tokens[soft_rows] = 0
        dtype = vectors[0].dtype if vectors else np.dtype(np.float32)
        stacked = np.array(vectors, dtype=dtype).reshape(len(vectors), spec.hidden)
        return tokens, soft_rows, stacked


def _fresh(work: Work) -> Sequence[int]:
    """The tokens that a work computes."""
    stream = work.stream
    return stream.tokens[stream.kv_len : stream.kv_len + work.num_scheduled_tokens]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Rows of a batch whose logits are wanted; a stream's may be the same row."""

    last: dict[Stream, int] = field(default_factory=dict)
    probed: dict[Stream, int] = field(default_factory=dict)
    before: dict[Stream, int] = field(default_factory=dict)

    def rows(self) -> list[int]:
        return [*self.last.values(), *self.probed.values(), *self.before.values()]


def _wanted(works: Sequence[Work]) -> _Wanted:
    wanted = _Wanted()
    start = 0
    for work in works:
        end = start + work.num_scheduled_tokens
        if work.wants_logits:
            wanted.last[work.stream] = end - 1
        if work.probe_row is not None:
            wanted.probed[work.stream] = start + work.probe_row
            if work.probe_row > 0:
                wanted.before[work.stream] = start + work.probe_row - 1
        start = end
    return wanted


def _axes(works: Sequence[Work]) -> npt.NDArray[np.int64]:
    """Positions int64 [3, rows] of all rows."""
    return np.concatenate(
        [
            work.stream.axes(work.stream.kv_len, work.stream.kv_len + work.num_scheduled_tokens)
            for work in works
        ],
        axis=1,
    )


def _tables(streams: Sequence[Stream]) -> npt.NDArray[np.int32]:
    """Block tables int32 [streams, max_blocks], padded with zeros that no row reads."""
    longest = max(len(stream.table.blocks) for stream in streams)
    tables = np.zeros((len(streams), longest), dtype=np.int32)
    for line, stream in zip(tables, streams, strict=True):
        line[: len(stream.table.blocks)] = stream.table.blocks
    return tables
