"""Memory that is left, by the machine and by the container."""

from __future__ import annotations

from pathlib import Path

from headstart.engine.models.host_memory import available_bytes


def files(folder: Path, limit: str) -> tuple[Path, Path]:
    meminfo = folder / "meminfo"
    meminfo.write_text("MemTotal:  16 kB\nMemAvailable:    8192 kB\n")
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text("3000000\n")
    (folder / "memory.stat").write_text("anon 1000000\nfile 2000000\n")
    return meminfo, folder


def test_the_tighter_of_both_counts(tmp_path: Path) -> None:
    """A container's limit where it is the lower one; file pages in it are free to take."""
    assert available_bytes(*files(tmp_path, "max\n")) == 8192 * 1024
    assert available_bytes(*files(tmp_path, "5000000\n")) == 4_000_000
    assert available_bytes(*files(tmp_path, "99000000\n")) == 8192 * 1024


def test_unreadable_sources_give_none(tmp_path: Path) -> None:
    """No such files, or files of another form: None, and never a crash."""
    assert available_bytes(tmp_path / "none", tmp_path) is None
    (tmp_path / "odd").write_text("MemAvailable\nx: y\n")
    assert available_bytes(tmp_path / "odd", tmp_path) is None


def test_this_machine_has_some() -> None:
    """On Linux there is a number."""
    left = available_bytes()
    assert left is None or left > 1 << 20
