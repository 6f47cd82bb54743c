"""The store of fetched weights, and how they are known to be verified.

    HOME/weights/NAME/FILE...           the files, each verified before it appears here
    HOME/weights/NAME/.verified.json    size, mtime and SHA-256 of each file when it was verified
    HOME/weights/.partial/NAME/         downloads under way; survives an interruption
    HOME/weights/.locks/NAME            held by the process that fetches NAME

HOME is $HEADSTART_HOME, else $XDG_CACHE_HOME/headstart, else ~/.cache/headstart.

A file is hashed once, when it is fetched. Afterwards it counts as verified while its size and mtime
equal the marker's, so that a start need not read half a gigabyte.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from headstart.engine.weights.errors import IntegrityError, WeightsMissing
from headstart.engine.weights.manifest import File, Manifest, Weight, packaged

MARKER_NAME = ".verified.json"

_CHUNK_BYTES = 1 << 20


class _Seen(msgspec.Struct, frozen=True):
    """A file's size, mtime and SHA-256 when it was verified."""

    size_bytes: int
    mtime_ns: int
    sha256: str


def home() -> Path:
    """The folder for downloads, created on first use."""
    if chosen := os.environ.get("HEADSTART_HOME"):
        return Path(chosen).expanduser()
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "headstart"
    return Path.home() / ".cache" / "headstart"


def locate(name: str, *, manifest: Manifest | None = None, root: Path | None = None) -> Path:
    """The file, or the folder of files, of the fetched and verified weight `name`.

    Raises `UnknownName`, or `WeightsMissing` if it is not there or was changed after verification.
    """
    weight = (manifest or packaged()).weight(name)
    store = Store(home() if root is None else root)
    if not store.is_verified(weight):
        raise WeightsMissing(name, store.folder(weight))
    return store.path(weight)


class Store:
    """The weights in one home folder."""

    def __init__(self, root: Path) -> None:
        self.root = root / "weights"

    def folder(self, weight: Weight) -> Path:
        return self.root / weight.name

    def path(self, weight: Weight) -> Path:
        """The path for callers: the one file, or the folder if there are several."""
        folder = self.folder(weight)
        return folder if weight.is_folder else folder / weight.file[0].name

    def partial_folder(self, weight: Weight) -> Path:
        return self.root / ".partial" / weight.name

    def lock_path(self, weight: Weight) -> Path:
        return self.root / ".locks" / weight.name

    def is_verified(self, weight: Weight) -> bool:
        """Whether every file is unchanged since its hash was checked. Reads no weight."""
        folder = self.folder(weight)
        try:
            marker = (folder / MARKER_NAME).read_bytes()
            seen = msgspec.json.decode(marker, type=dict[str, _Seen])
            return all(
                seen[file.name] == _look(folder / file.name, file.sha256) for file in weight.file
            )
        except (OSError, KeyError, msgspec.DecodeError):  # what cannot be read is not there
            return False

    def mark_verified(self, weight: Weight) -> None:
        """Record that the stored files have the manifest's hashes."""
        folder = self.folder(weight)
        seen = {file.name: _look(folder / file.name, file.sha256) for file in weight.file}
        draft = folder / (MARKER_NAME + ".new")
        draft.write_bytes(msgspec.json.encode(seen))
        draft.replace(folder / MARKER_NAME)

    def remove(self, weight: Weight) -> None:
        """Remove the files of `weight` and unfinished downloads of it."""
        shutil.rmtree(self.folder(weight), ignore_errors=True)
        self.remove_partial(weight)

    def remove_partial(self, weight: Weight) -> None:
        shutil.rmtree(self.partial_folder(weight), ignore_errors=True)


def check_file(path: Path, file: File, on_bytes: Callable[[int], None] | None = None) -> None:
    """Raise `IntegrityError` unless the file at `path` has the bytes of the manifest.

    `on_bytes` receives the number of bytes read since its last call.
    """
    size_bytes = path.stat().st_size
    if size_bytes != file.size_bytes:
        raise IntegrityError(str(path), "size in bytes", file.size_bytes, size_bytes)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            if on_bytes is not None:
                on_bytes(len(chunk))
    if digest.hexdigest() != file.sha256:
        raise IntegrityError(str(path), "SHA-256", file.sha256, digest.hexdigest())


def _look(path: Path, sha256: str) -> _Seen:
    status = path.stat()
    return _Seen(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, sha256=sha256)
