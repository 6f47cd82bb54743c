"""Where what is made of a checkpoint comes from: made anew, or made at an earlier start and kept.

Packing a Whisper's matrices and encoding the silence behind every sound take most of its loading.
Both depend on the checkpoint alone, so a file may hold them (engine/process/packed_ears.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from headstart.engine.asr.whisper.packed import PACKED_KIND, pack_q8_0
from headstart.engine.checkpoints.packed_file import PackedFile, PackedWriter
from headstart.kernels.qlinear import QWeight


class Prepared(Protocol):
    """Gives what is wanted under a name."""

    def matrix(self, name: str, rows: int, cols: int, make: Callable[[], Tensor]) -> QWeight:
        """A packed matrix; `make` gives it in floats."""

    def tensors(
        self, shapes: Mapping[str, Sequence[int]], make: Callable[[], Sequence[Tensor]]
    ) -> list[Tensor]:
        """Fp32 tensors, not to be written to; `make` gives all of them, in the order of `shapes`,
        which are their shapes by name."""


class MadeAnew:
    """A `Prepared` that makes everything."""

    def matrix(self, name: str, rows: int, cols: int, make: Callable[[], Tensor]) -> QWeight:
        return pack_q8_0(make())

    def tensors(
        self, shapes: Mapping[str, Sequence[int]], make: Callable[[], Sequence[Tensor]]
    ) -> list[Tensor]:
        return list(make())


class MadeOnce(MadeAnew):
    """A `Prepared` that makes everything, and can write it to a file."""

    def __init__(self) -> None:
        self._matrices: dict[str, QWeight] = {}
        self._tensors: dict[str, Tensor] = {}

    def matrix(self, name: str, rows: int, cols: int, make: Callable[[], Tensor]) -> QWeight:
        made = self._matrices[name] = super().matrix(name, rows, cols, make)
        return made

    def tensors(
        self, shapes: Mapping[str, Sequence[int]], make: Callable[[], Sequence[Tensor]]
    ) -> list[Tensor]:
        made = super().tensors(shapes, make)
        self._tensors.update(zip(shapes, made, strict=True))
        return made

    @property
    def nbytes(self) -> int:
        """Of all that was made."""
        packed = sum(weight.panels.nbytes for weight in self._matrices.values())
        return packed + sum(tensor.nbytes for tensor in self._tensors.values())

    def write(self, writer: PackedWriter) -> None:
        """Raises `OSError`."""
        for name, weight in self._matrices.items():
            writer.add(name, weight)
        for name, tensor in self._tensors.items():
            writer.add_tensor(name, tensor)
        writer.finish()


class MadeEarlier:
    """A `Prepared` from a file that `MadeOnce` wrote. Its methods raise `BadWeights` for what is
    not in the file."""

    def __init__(self, file: PackedFile) -> None:
        self._file = file

    def matrix(self, name: str, rows: int, cols: int, make: Callable[[], Tensor]) -> QWeight:
        return self._file.weight(name, PACKED_KIND, rows, cols)

    def tensors(
        self, shapes: Mapping[str, Sequence[int]], make: Callable[[], Sequence[Tensor]]
    ) -> list[Tensor]:
        return [self._file.tensor(name, shape) for name, shape in shapes.items()]
