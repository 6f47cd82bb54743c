"""One step's rows on a device: streams with one row first, and everything in one copy.

A stream that decodes has one row, one that is prefilled a chunk of them. Attention treats the two
apart, since it cuts a decode row's keys by its own context: so a decode row has the same bits
whoever is prefilled beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.decoder.decoder import Batch
from headstart.engine.device.transfer import Array, Mirror, parts, room_bytes

NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of several streams for attention: stream s has `starts[s]` to `starts[s + 1]` of
    `rows`. `longest`: rows of the one that has most."""

    rows: slice
    tables: Tensor  # int32 [streams, max_blocks]
    starts: Tensor  # int32 [streams + 1], from 0
    contexts: Tensor  # int32 [streams]: keys, those of its rows included
    longest: int


@dataclass(frozen=True, slots=True)
class Step:
    """A step's tensors on a device, rows in the order of `HostStep`."""

    tokens: Tensor  # int64 [rows]
    positions: Tensor  # int64 [rows], or [3, rows]
    slots: Tensor  # int64 [rows]; negative: K and V are not stored
    wanted: Tensor  # int64 [n]
    groups: tuple[Rows, ...]


@dataclass(frozen=True, slots=True)
class HostStep:
    """A batch with its streams of one row first. `decoding`: their number."""

    tokens: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.int64]  # rows of this order, in the order of the batch's `wanted`
    tables: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    contexts: npt.NDArray[np.int32]
    decoding: int
    longest: int
    row_of: npt.NDArray[np.int64]  # [rows]: the row that each row of the batch became

    @classmethod
    def of(cls, batch: Batch) -> HostStep:
        """Rows of one stream are neighbours in a batch, in ascending order."""
        counts = np.bincount(batch.seq_of_row.numpy(), minlength=len(batch.tables))
        order = np.argsort(counts > 1, kind="stable")
        firsts = np.cumsum(counts) - counts
        places = np.concatenate([np.arange(firsts[s], firsts[s] + counts[s]) for s in order])
        row_of = np.empty_like(places)
        row_of[places] = np.arange(len(places))
        ends = np.cumsum(counts[order])
        starts = np.concatenate(([0], ends)).astype(np.int32)
        return cls(
            tokens=batch.tokens.numpy()[places],
            positions=batch.positions.numpy()[..., places],
            slots=batch.slots.numpy()[places],
            wanted=row_of[batch.wanted.numpy()],
            tables=batch.tables.numpy()[order],
            starts=starts,
            contexts=batch.context_of_row.numpy()[places][ends - 1],
            decoding=int((counts == 1).sum()),
            longest=int(counts.max()),
            row_of=row_of,
        )

    @classmethod
    def idle(cls, streams: int, blocks: int, axes: int) -> HostStep:
        """A step of streams that see no key and store nothing. `axes`: of positions; 0: they are
        [rows]."""
        shape = (axes, streams) if axes else (streams,)
        return cls(
            tokens=np.zeros(streams, np.int64),
            positions=np.zeros(shape, np.int64),
            slots=np.full(streams, NO_SLOT),
            wanted=np.arange(streams),
            tables=np.zeros((streams, blocks), np.int32),
            starts=np.arange(streams + 1, dtype=np.int32),
            contexts=np.zeros(streams, np.int32),
            decoding=streams,
            longest=1,
            row_of=np.arange(streams),
        )

    @property
    def only_decodes(self) -> bool:
        return self.decoding == len(self.contexts)

    def padded(self, streams: int, blocks: int) -> HostStep:
        """A step that only decodes, filled up to so many streams and blocks of a table: rows that
        see no key and store nothing. All rows are wanted."""
        assert self.only_decodes
        more = streams - len(self.contexts)
        wide = blocks - self.tables.shape[1]
        assert more >= 0
        assert wide >= 0
        at_end = [(0, 0)] * (self.positions.ndim - 1) + [(0, more)]
        return HostStep(
            tokens=np.pad(self.tokens, (0, more)),
            positions=np.pad(self.positions, at_end),
            slots=np.pad(self.slots, (0, more), constant_values=NO_SLOT),
            wanted=np.arange(streams),
            tables=np.pad(self.tables, ((0, more), (0, wide))),
            starts=np.arange(streams + 1, dtype=np.int32),
            contexts=np.pad(self.contexts, (0, more)),
            decoding=streams,
            longest=1,
            row_of=np.pad(self.row_of, (0, more)),
        )

    def arrays(self) -> dict[str, Array]:
        """All that goes to the device; the starts of streams with chunks count from their own."""
        return {
            "tokens": self.tokens,
            "positions": np.ascontiguousarray(self.positions),
            "slots": self.slots,
            "wanted": self.wanted,
            "tables": self.tables,
            "starts": self.starts,
            "chunk_starts": self.starts[self.decoding :] - np.int32(self.decoding),
            "contexts": self.contexts,
        }

    @property
    def nbytes(self) -> int:
        """Room for all arrays, each aligned."""
        return room_bytes(self.arrays())


class StepBuffer:
    """Room for steps of the same sizes as `like`, on the host (pinned, for a GPU) and on the
    device, each in one piece. `step` lies in it."""

    def __init__(self, like: HostStep, device: torch.device) -> None:
        self._mirror = Mirror(like.arrays(), device)
        self.step = step_in(self._mirror.memory, like)

    def load(self, step: HostStep) -> Step:
        """Enqueue the copy of a step."""
        self._mirror.load(step.arrays())
        return self.step


def step_in(memory: Tensor, like: HostStep) -> Step:
    """A step of the sizes of `like` in uint8 `memory` [like.nbytes]."""
    on = parts(memory, like.arrays())
    decoding, rows = like.decoding, len(like.tokens)
    groups = []
    if decoding:
        groups.append(
            Rows(
                slice(0, decoding),
                on["tables"][:decoding],
                on["starts"][: decoding + 1],
                on["contexts"][:decoding],
                1,
            )
        )
    if not like.only_decodes:
        groups.append(
            Rows(
                slice(decoding, rows),
                on["tables"][decoding:],
                on["chunk_starts"],
                on["contexts"][decoding:],
                like.longest,
            )
        )
    return Step(on["tokens"], on["positions"], on["slots"], on["wanted"], tuple(groups))
