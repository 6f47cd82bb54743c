"""The folder of packed weights: what was made of a weight file once and is mapped at later starts.

    HOME/packed/NAME-KEY.panels     complete files (engine/checkpoints/packed_file.py)
    HOME/packed/.writing/           files under way; what a killed process left is removed
    HOME/packed/.lock               held by the process that writes

Everything here can be made again, so the folder may be emptied at any time: a process that has
mapped a file keeps it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headstart.engine.weights.errors import DiskFull

SUFFIX = ".panels"
DISK_RESERVE_BYTES = 1 << 30
"""Free space that is left to others: packed weights are a convenience."""


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """One complete file; `used_s`: when it was last used, in seconds since 1970."""

    path: Path
    size_bytes: int
    used_s: float


class PackedStore:
    """Packed weights under one home folder, at most `max_bytes` of them. The least recently used
    ones are removed for new ones; with `max_bytes` 0 nothing is read or written."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.folder = root / "packed"
        self.max_bytes = max_bytes

    def path(self, name: str, key: str) -> Path:
        return self.folder / f"{name}-{key}{SUFFIX}"

    def entries(self) -> list[PackedEntry]:
        """All complete files, the most recently used first."""
        found = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):  # removed by another process
                status = path.stat()
                found.append(PackedEntry(path, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: entry.used_s, reverse=True)

    def used(self, path: Path) -> None:
        """Note that `path` was used now. A folder that cannot be written to keeps its dates."""
        with suppress(OSError):
            os.utime(path)

    def clear(self) -> int:
        """Remove all files. Returns their bytes. Raises `OSError`."""
        entries = self.entries()
        for entry in entries:
            entry.path.unlink(missing_ok=True)
        return sum(entry.size_bytes for entry in entries)

    @contextmanager
    def locked(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the lock for writing; `waiting` is called if another process holds it. The kernel
        releases it with the process. Raises `OSError` where the folder cannot be written to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def begin(self, path: Path, size_bytes: int) -> Path:
        """Where to write what will become `path`, with room made for it. The lock must be held.

        Raises `DiskFull`, also for a file that is larger than all may be together; `OSError`.
        """
        draft = self._drafts / path.name
        shutil.rmtree(self._drafts, ignore_errors=True)  # of processes that were killed
        self._drafts.mkdir()
        if size_bytes > self.max_bytes:
            raise DiskFull(self.folder, size_bytes, self.max_bytes)
        kept_bytes = 0
        for entry in self.entries():
            kept_bytes += entry.size_bytes
            if kept_bytes + size_bytes > self.max_bytes:
                entry.path.unlink(missing_ok=True)
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < size_bytes + DISK_RESERVE_BYTES:
            raise DiskFull(self.folder, size_bytes + DISK_RESERVE_BYTES, free_bytes)
        return draft

    def finish(self, draft: Path, path: Path) -> None:
        """The complete file appears, at once and whole. Raises `OSError`."""
        draft.replace(path)

    def abandon(self) -> None:
        """Remove what is under way. The lock must be held."""
        shutil.rmtree(self._drafts, ignore_errors=True)

    @property
    def _drafts(self) -> Path:
        return self.folder / ".writing"
