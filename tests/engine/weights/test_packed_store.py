"""The folder of packed weights: bounded, written by one process at a time, whole files only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.engine.weights import packed_store
from headstart.engine.weights.errors import DiskFull
from headstart.engine.weights.packed_store import PackedStore

HOLD = """
import sys
from pathlib import Path
from headstart.engine.weights.packed_store import PackedStore
with PackedStore(Path(sys.argv[1]), 100).locked(lambda: None):
    print("held", flush=True)
    sys.stdin.readline()
    print("leaving", flush=True)
"""


@pytest.fixture(autouse=True)
def _no_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_store, "DISK_RESERVE_BYTES", 0)


def nobody() -> None:
    raise AssertionError("no other process writes")


def put(store: PackedStore, name: str, size_bytes: int, used_s: float) -> Path:
    """A complete file that was last used then."""
    path = store.path(name, "key")
    with store.locked(nobody):
        draft = store.begin(path, size_bytes)
        draft.write_bytes(bytes(size_bytes))
        store.finish(draft, path)
        store.abandon()
    os.utime(path, (used_s, used_s))
    return path


def names(store: PackedStore) -> list[str]:
    return [entry.path.name for entry in store.entries()]


def test_the_least_recently_used_make_room(tmp_path: Path) -> None:
    """A file is complete at once, and there are never more bytes than the store may hold."""
    store = PackedStore(tmp_path, 100)
    put(store, "old", 40, 1)
    put(store, "new", 40, 2)
    assert names(store) == ["new-key.panels", "old-key.panels"]
    put(store, "third", 40, 3)
    assert names(store) == ["third-key.panels", "new-key.panels"]
    store.used(store.path("new", "key"))
    put(store, "fourth", 60, 4)
    assert names(store) == ["new-key.panels", "fourth-key.panels"]


def test_what_is_larger_than_the_store_removes_nothing(tmp_path: Path) -> None:
    """It could not be stored even alone."""
    store = PackedStore(tmp_path, 100)
    put(store, "old", 40, 1)
    with store.locked(nobody), pytest.raises(DiskFull):
        store.begin(store.path("huge", "key"), 101)
    assert names(store) == ["old-key.panels"]


def test_a_disk_that_would_be_full_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free space stays above the reserve."""
    free_bytes = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(packed_store, "DISK_RESERVE_BYTES", free_bytes + (1 << 40))
    store = PackedStore(tmp_path, 100)
    with store.locked(nobody), pytest.raises(DiskFull, match="not enough disk space"):
        store.begin(store.path("x", "key"), 10)
    assert names(store) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """A draft is no entry, and the next one that writes removes it."""
    store = PackedStore(tmp_path, 100)
    with store.locked(nobody):
        draft = store.begin(store.path("x", "key"), 10)
        draft.write_bytes(b"half")
    assert names(store) == []
    put(store, "y", 10, 1)
    assert names(store) == ["y-key.panels"]
    assert not draft.exists()


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    """It is told that it waits, and goes on when the first one leaves."""
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        stdin, stdout = other.stdin, other.stdout
        assert stdout.readline() == "held\n"
        waited: list[str] = []

        def let_go() -> None:
            stdin.write("\n")
            stdin.flush()
            waited.append(stdout.readline())

        with PackedStore(tmp_path, 100).locked(let_go):
            assert waited == ["leaving\n"]


def test_clear_removes_all_and_says_how_much(tmp_path: Path) -> None:
    """Also where there is nothing."""
    store = PackedStore(tmp_path, 100)
    assert store.clear() == 0  # there is no folder yet
    put(store, "a", 40, 1)
    put(store, "b", 20, 2)
    assert store.clear() == 60
    assert names(store) == []
