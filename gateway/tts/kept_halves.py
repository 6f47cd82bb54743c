"""A voice's two halves as ONNX Runtime has optimised them, on disk: later starts load these.

Cutting a voice in two and optimising the halves takes twice the time of everything else that its
worker does until it speaks. The files lie in the gateway's folder of what it makes once per machine
(`gateway.audio.native`), 63 MB for joe:

    NAME-KEY-HALF-CHECK.onnx    KEY: of all that the file depends on; CHECK: of what is in it

So several versions of headstart can share the folder: those used last stay, `VERSIONS_KEPT` of
them. Removed are also the drafts of a process that was killed. What cannot be kept is made at each
start.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import shutil
import tempfile
import time
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headstart.gateway.audio.native import cache_folder, processor

log = logging.getLogger("headstart.voice.worker")

HALVES = ("encoder", "decoder")
_LIBRARIES = ("onnx", "onnxruntime")
_ERRORS_ONLY = 3  # ONNX Runtime's; it warns that the files are for this machine
VERSIONS_KEPT = 3
_PIECE_BYTES = 1 << 20
DRAFT = ".making-"
DRAFT_OLD_S = 3600  # nobody is still at work on it: making takes some seconds


def session(model: bytes | Path, optimised: Path | None = None) -> Any:
    """An ONNX Runtime session on one thread. A `Path` is one that was `optimised` before, by
    writing it there."""
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # the other core belongs to the engine
    options.inter_op_num_threads = 1
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
        options.log_severity_level = _ERRORS_ONLY
    if isinstance(model, Path):
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = str(model) if isinstance(model, Path) else model
    return runtime.InferenceSession(source, options, ["CPUExecutionProvider"])


class KeptHalves:
    """The files of one voice. `weights`: its ONNX file; `code`: the file that cuts it. Raises
    `ImportError` if a library is not installed."""

    def __init__(self, name: str, weights: Path, code: Path) -> None:
        self._name = name
        status = weights.stat()
        facts = [weights.name, str(status.st_size), str(status.st_mtime_ns), processor()]
        facts += [f"{library} {version(library)}" for library in _LIBRARIES]
        digest = hashlib.sha256("\n".join(facts).encode())
        for source in (code, Path(__file__)):
            digest.update(source.read_bytes())
        self._key = digest.hexdigest()[:20]

    def load(self) -> list[Any] | None:
        """Sessions of the encoder and the decoder; None if they are not there, or cannot be
        loaded."""
        try:
            folder = cache_folder()
            folder.stat()  # raises an error in a closed folder, where `glob` finds nothing
            found = [list(folder.glob(self._pattern(half))) for half in HALVES]
            if any(len(files) != 1 for files in found):  # two: made by two processes at once
                return None
            paths = [path for (path,) in found]
            for path in paths:
                _check(path)
                with contextlib.suppress(OSError):  # another user's, or read only
                    os.utime(path)  # it was used last now
            return [session(path) for path in paths]
        except FileNotFoundError:
            return None
        except Exception as error:  # the runtime's errors have no common base
            log.warning("the voice that was kept cannot be used, and is made again: %s", error)
            return None

    def make(self, models: tuple[bytes, bytes]) -> list[Any]:
        """The same, of `models`, kept for later starts if the disk takes them."""
        try:
            return self._made(models)
        except Exception as error:  # as above: a full disk is one of them
            log.warning("the voice is made anew at each start: %s", error)
            return [session(model) for model in models]

    def _made(self, models: tuple[bytes, bytes]) -> list[Any]:
        kept = cache_folder()
        kept.mkdir(parents=True, exist_ok=True)
        _remove_drafts(kept)
        with tempfile.TemporaryDirectory(dir=kept, prefix=DRAFT) as folder:
            drafts = [Path(folder) / half for half in HALVES]
            made = [session(model, draft) for model, draft in zip(models, drafts, strict=True)]
            for half, draft in zip(HALVES, drafts, strict=True):
                with draft.open("rb") as file:
                    os.fsync(file.fileno())  # a name for half a file would be worse than none
                for damaged in kept.glob(self._pattern(half)):
                    damaged.unlink(missing_ok=True)
                name = f"{self._name}-{self._key}-{half}-{_checksum(draft)}.onnx"
                draft.replace(kept / name)
        self._remove_old(kept)
        return made

    def _pattern(self, half: str) -> str:
        return f"{self._name}-{self._key}-{half}-*.onnx"

    def _remove_old(self, folder: Path) -> None:
        """All but the files of the `VERSIONS_KEPT` keys used last."""
        for half in HALVES:
            files: list[tuple[float, Path]] = []
            for path in folder.glob(f"{self._name}-*-{half}*.onnx"):
                with contextlib.suppress(OSError):  # another process removes it too
                    files.append((path.stat().st_mtime, path))
            for _, path in sorted(files)[:-VERSIONS_KEPT]:
                with contextlib.suppress(OSError):
                    path.unlink()


def _checksum(path: Path) -> str:
    """CRC-32 of a file, against damage: nobody else writes in the folder."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def _check(path: Path) -> None:
    """Raises ValueError if the file is not what was written."""
    written, found = path.stem.rpartition("-")[2], _checksum(path)
    if written != found:
        raise ValueError(f"{path.name} is damaged: its CRC-32 is {found}")


def _remove_drafts(folder: Path) -> None:
    """Those that a killed process has left: 63 MB each."""
    for draft in folder.glob(f"{DRAFT}*"):
        with contextlib.suppress(OSError):  # another process removes it too
            if time.time() - draft.stat().st_mtime > DRAFT_OLD_S:
                shutil.rmtree(draft)
