"""A Whisper's packed matrices and encoded silence, kept on disk: later starts map them.

Both are most of what loading a Whisper takes. What their bytes depend on is in the file's key: the
files of its folder, our code, the compiled kernels, and the libraries.
"""

from __future__ import annotations

import hashlib
import logging
from importlib.metadata import version
from pathlib import Path

import torch

from headstart.engine.asr.chosen import load_recognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.whisper.prepared import MadeEarlier, MadeOnce
from headstart.engine.checkpoints.packed_file import PackedWriter, open_packed
from headstart.engine.config import EngineConfig
from headstart.engine.weights import home
from headstart.engine.weights.errors import DiskFull
from headstart.engine.weights.packed_store import PackedStore
from headstart.kernels import native

log = logging.getLogger("headstart.engine")

LEAST_BYTES = 8 << 20
"""What was made of a smaller Whisper is made sooner than a file is found."""

_ENGINE = Path(__file__).resolve().parents[1]
_CODE = (_ENGINE / "asr", _ENGINE / "checkpoints", Path(native.__file__).parent)
_WHAT = "the packed recogniser"
_OTHERS = "gpu"  # kernels that a CPU does not run
_LIBRARIES = ("numpy", "torch")
_SAMPLE_BYTES = 4096
_SAMPLES = 256  # of each file of a folder


def packed_recognizer(directory: Path, config: EngineConfig) -> WhisperRecognizer:
    """The recogniser of the settings; raises as `load_recognizer`."""
    store = PackedStore(home(), config.packed_cache_bytes)
    return load_packed_recognizer(directory, config.ears_language, store)


def load_packed_recognizer(directory: Path, language: str, store: PackedStore) -> WhisperRecognizer:
    """As `load_recognizer`, from what an earlier start has kept in `store`, or for later ones.

    A file that is damaged is made again, and a store that cannot be written to costs time only.
    """
    if store.max_bytes == 0 or native.default_backend() == "reference":  # which keeps floats
        return load_recognizer(directory, language)
    try:
        key = recognizer_key(directory)
    except OSError:
        return load_recognizer(directory, language)  # says what is wrong
    path = store.path(directory.name, key)
    found = open_packed(path, key, _WHAT)
    if found is not None:
        recognizer = load_recognizer(directory, language, MadeEarlier(found))
        store.used(path)
        return recognizer
    made = MadeOnce()
    recognizer = load_recognizer(directory, language, made)
    if made.nbytes >= LEAST_BYTES:
        _keep(made, store, path, key)
    return recognizer


def recognizer_key(directory: Path) -> str:
    """Equal keys mean equal bytes. Raises `OSError`.

    Of large files it reads samples: other weights differ in nearly all of their bytes.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(path for path in directory.iterdir() if path.is_file()):
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        step = max(status.st_size // _SAMPLES, _SAMPLE_BYTES)
        with path.open("rb") as file:
            for at in range(0, status.st_size, step):
                file.seek(at)
                digest.update(file.read(_SAMPLE_BYTES))
    for source in _sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    facts = [f"{name} {version(name)}" for name in _LIBRARIES]
    facts.append(torch.backends.cpu.get_cpu_capability())
    backend = native.default_backend()
    facts.append(native.library_path(native.find_compiler(), backend).name)  # C code, processor
    digest.update("\n".join(facts).encode())
    return digest.hexdigest()


def _sources() -> list[Path]:
    """The code that decides what the bytes are: more of it than needed, so that none is missing."""
    found = (path for folder in _CODE for path in folder.rglob("*.py"))
    return sorted(path for path in found if path.parent.name != _OTHERS)


def _keep(made: MadeOnce, store: PackedStore, path: Path, key: str) -> None:
    """Write what was made for later starts, unless another process has meanwhile."""

    def waiting() -> None:
        log.info("packed weights are being written; waiting")

    try:
        with store.locked(waiting):
            if open_packed(path, key, _WHAT) is not None:
                return
            try:
                draft = store.begin(path, made.nbytes)
                with PackedWriter(draft, key) as writer:
                    made.write(writer)
                store.finish(draft, path)
            finally:
                store.abandon()
    except (OSError, DiskFull) as error:
        log.warning("the recogniser is packed anew at each start: %s", error)
