"""Where weights lie, and when they count as verified."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headstart.engine.weights.errors import IntegrityError, UnknownName, WeightsMissing
from headstart.engine.weights.manifest import File
from headstart.engine.weights.store import Store, check_file, home, locate
from tests.engine.weights.helpers import BIG, SMALL, Shelf, fetcher, manifest, sha256


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADSTART_HOME wins over XDG_CACHE_HOME, which wins over ~/.cache."""
    monkeypatch.setenv("HEADSTART_HOME", "/a/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert home() == Path("/a/b")
    monkeypatch.delenv("HEADSTART_HOME")
    assert home() == Path("/c/headstart")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/d")
    assert home() == Path("/d/.cache/headstart")


def test_locate_finds_files_and_folders(root: Path, shelf: Shelf) -> None:
    """One file is handed out as itself, several as their folder; before that, WeightsMissing."""
    with pytest.raises(WeightsMissing, match="headstart models fetch big"):
        locate("big", manifest=manifest(), root=root)
    with pytest.raises(UnknownName):
        locate("nope", manifest=manifest(), root=root)
    for name in ("big", "folder"):
        fetcher(root, shelf).ensure(name)
    assert locate("big", manifest=manifest(), root=root).read_bytes() == BIG
    folder = locate("folder", manifest=manifest(), root=root)
    assert (folder / "config.json").read_bytes() == b"{}"


def test_a_touched_file_is_not_vouched_for(root: Path, shelf: Shelf) -> None:
    """The marker holds only while size and mtime are what they were when the hash was checked."""
    path = fetcher(root, shelf).ensure("big")
    weight = manifest().weight("big")
    assert Store(root).is_verified(weight)
    os.utime(path, ns=(0, 0))
    assert not Store(root).is_verified(weight)
    with pytest.raises(WeightsMissing):
        locate("big", manifest=manifest(), root=root)


def test_a_broken_marker_vouches_for_nothing(root: Path, shelf: Shelf) -> None:
    """A marker cut short, or of other files, counts as none."""
    fetcher(root, shelf).ensure("big")
    weight = manifest().weight("big")
    marker = Store(root).folder(weight) / ".verified.json"
    for text in ("", "{", "{}", '{"big.bin": 3}'):
        marker.write_text(text)
        assert not Store(root).is_verified(weight), text


def test_check_file_says_what_differs(tmp_path: Path) -> None:
    """Another size and another hash are told apart, each with expected and actual value."""
    path = tmp_path / "little.bin"
    file = File(name="little.bin", size_bytes=len(SMALL), sha256=sha256(SMALL))
    path.write_bytes(SMALL)
    read: list[int] = []
    check_file(path, file, read.append)
    assert sum(read) == len(SMALL)
    path.write_bytes(SMALL[:-1])
    with pytest.raises(IntegrityError, match="size in bytes 12, expected 13"):
        check_file(path, file)
    other = SMALL[:-1] + b"X"
    path.write_bytes(other)
    with pytest.raises(IntegrityError, match=f"SHA-256 {sha256(other)}, expected {sha256(SMALL)}"):
        check_file(path, file)
