"""A voice's two halves as ONNX Runtime has optimised them, on disk: later starts load these.

Cutting a voice in two and optimising the halves takes twice the time of everything else that its
worker does until it speaks. The files lie in the gateway's folder of what it makes once per machine
(`gateway.audio.native`), 63 MB for joe; their name holds a digest of all that they depend on, and
those of another digest are removed, as are drafts of a process that was killed. What cannot be kept
is made at each start.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headstart.gateway.audio.native import cache_folder, processor

log = logging.getLogger("headstart.voice.worker")

HALVES = ("encoder", "decoder")
_LIBRARIES = ("onnx", "onnxruntime")
_ERRORS_ONLY = 3  # ONNX Runtime's; it warns that the files are for this machine
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
        self._digest = digest.hexdigest()[:20]

    def load(self) -> list[Any] | None:
        """Sessions of the encoder and the decoder; None if they are not there, or cannot be
        loaded."""
        try:
            folder = cache_folder()
            paths = [self._path(folder, half) for half in HALVES]
            if not all(path.is_file() for path in paths):  # raises an error in a closed folder
                return None
            return [session(path) for path in paths]
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
                draft.replace(self._path(kept, half))
        for half in HALVES:
            for other in kept.glob(f"{self._name}-*-{half}.onnx"):
                if other != self._path(kept, half):
                    with contextlib.suppress(OSError):
                        other.unlink()
        return made

    def _path(self, folder: Path, half: str) -> Path:
        return folder / f"{self._name}-{self._digest}-{half}.onnx"


def _remove_drafts(folder: Path) -> None:
    """Those that a killed process has left: 63 MB each."""
    for draft in folder.glob(f"{DRAFT}*"):
        with contextlib.suppress(OSError):  # another process removes it too
            if time.time() - draft.stat().st_mtime > DRAFT_OLD_S:
                shutil.rmtree(draft)
