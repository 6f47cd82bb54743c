"""What may have become of a file that was packed earlier."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path) -> None:
    """One bit of a weight."""
    whole = bytearray(path.read_bytes())
    whole[100] ^= 4
    path.write_bytes(whole)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = (flip, cut, empty)
