"""A GGUF decoder's weights, packed once: the first start keeps them on disk, later ones map them.

Merging an adapter and packing take seconds of a core, and memory that the system has to find; a
mapped file takes neither, and engines on one machine share it. What the packed bytes depend on is
in the file's key: the GGUF file, the adapter, our code, and the libraries and processor that merge.
"""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from headstart.engine.checkpoints import packed_file
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.checkpoints.packed_file import PackedFile, PackedWriter, open_packed
from headstart.engine.decoder import adapter as adapter_module
from headstart.engine.decoder import weights
from headstart.engine.decoder.adapter import CONFIG, KIND, TENSORS, Adapter
from headstart.engine.decoder.weights import DecoderWeights, WeightLoader
from headstart.engine.weights.errors import DiskFull
from headstart.engine.weights.packed_store import PackedStore
from headstart.kernels import qlinear
from headstart.kernels.qlinear import FORMATS, panel_shape

log = logging.getLogger("headstart.engine")

LEAST_BYTES = 32 << 20
"""Smaller decoders are packed sooner than a file is found."""

_WHAT = "packed weights"

# Whose code decides what the packed bytes are.
_PACKING = ("pack.c", "panel.h", "panels.py", "formats.py")
_CODE = (
    *(Path(qlinear.__file__).with_name(name) for name in _PACKING),
    *(Path(str(module.__file__)) for module in (adapter_module, weights, packed_file)),
)
_LIBRARIES = ("gguf", "numpy", "torch")  # dequantise, add the delta, quantise again

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class WeightSource:
    """What a decoder's weights are made of; `adapter_folder`: where `adapter` was read from."""

    file: GgufFile
    spec: DecoderSpec
    backend: str
    adapter: Adapter | None = None
    adapter_folder: Path | None = None

    def loader(
        self, packed: PackedFile | None = None, writer: PackedWriter | None = None
    ) -> WeightLoader:
        return WeightLoader(
            self.file, self.spec, self.backend, self.adapter, packed=packed, writer=writer
        )

    def packed_bytes(self) -> int:
        """The most that its packed matrices take."""
        total = 0
        for tensor in self.file.tensors.values():
            adapted = self.adapter is not None and tensor.name in self.adapter
            kind = KIND if adapted else tensor.kind
            if tensor.rows > 1 and kind in FORMATS:
                panels, panel_bytes = panel_shape(kind, tensor.rows, tensor.cols)
                total += panels * panel_bytes
        return total

    def key(self) -> str:
        """Equal keys mean equal packed bytes."""
        digest = hashlib.blake2b(self.file.fingerprint().encode(), digest_size=16)
        if self.adapter_folder is not None:
            for name in (CONFIG, TENSORS):
                digest.update(hashlib.sha256((self.adapter_folder / name).read_bytes()).digest())
        for source in _CODE:
            digest.update(hashlib.sha256(source.read_bytes()).digest())
        facts = [f"{name} {version(name)}" for name in _LIBRARIES]
        facts.append(torch.backends.cpu.get_cpu_capability())
        digest.update("\n".join(facts).encode())
        return digest.hexdigest()


def load_weights(source: WeightSource, store: PackedStore, report: Report) -> DecoderWeights:
    """The weights, mapped from the store if it holds them or can take them, else packed in memory.

    Raises `BadWeights` for what is wrong with the GGUF file. A packed file that is damaged is made
    again, and a store that cannot be written to costs time only.
    """

    def tick(done: int, total: int) -> None:
        report("weights", done, total)

    packed = _packed(source, store, report) if _is_worth_it(source, store) else None
    return source.loader(packed).load(tick)


def _is_worth_it(source: WeightSource, store: PackedStore) -> bool:
    return (
        store.max_bytes > 0
        and source.backend != "reference"  # which keeps floats
        and source.packed_bytes() >= LEAST_BYTES
    )


def _packed(source: WeightSource, store: PackedStore, report: Report) -> PackedFile | None:
    key = source.key()
    path = store.path(source.file.path.stem, key)
    found = open_packed(path, key, _WHAT)
    if found is None:
        try:
            found = _made(source, store, path, key, report)
        except (OSError, DiskFull) as error:
            log.warning("weights are packed anew at each start: %s", error)
            traceback.clear_frames(error.__traceback__)  # they hold parts of the mapped GGUF file
            return None
    if found is not None:
        store.used(path)
    return found


def _made(
    source: WeightSource, store: PackedStore, path: Path, key: str, report: Report
) -> PackedFile | None:
    """Pack into a file and map it; None if the disk does not give back what was written. Raises
    `DiskFull`, `OSError`, and `BadWeights` for what is wrong with the GGUF file."""

    def waiting() -> None:
        log.info("another process is packing weights; waiting")

    with store.locked(waiting):
        found = open_packed(path, key, _WHAT)  # another process may have made it meanwhile
        if found is not None:
            return found
        try:
            draft = store.begin(path, source.packed_bytes())
            with PackedWriter(draft, key) as writer:
                source.loader(writer=writer).load(lambda n, of: report("packing weights", n, of))
                writer.finish()
            store.finish(draft, path)
        finally:
            store.abandon()
    return open_packed(path, key, _WHAT)
