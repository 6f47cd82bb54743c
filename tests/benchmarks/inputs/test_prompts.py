"""Which recordings the hearing benchmark takes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from headstart.benchmarks.inputs.prompts import asterisk_prompts


def test_a_prompt_is_found_with_its_folder(tmp_path: Path) -> None:
    """digits/5 is the word, not silence/5, five seconds of nothing with the same file name."""
    (tmp_path / "core-sounds-en.txt.gz").write_bytes(
        gzip.compress(b"; a comment\ndigits/5: five\n")
    )
    for name in ("digits/5.wav", "silence/5.wav"):
        clip = tmp_path / "sounds" / "en" / name
        clip.parent.mkdir(parents=True)
        clip.touch()
    found = list(asterisk_prompts(tmp_path, "wav"))
    assert found == [(tmp_path / "sounds/en/digits/5.wav", "five")]


def test_the_odd_half_is_held_out(tmp_path: Path) -> None:
    """Only names with an even CRC-32 are listed."""
    names = [f"prompt-{n}" for n in range(20)]
    lines = "\n".join(f"{name}: some words" for name in names)
    (tmp_path / "core-sounds-en.txt.gz").write_bytes(gzip.compress(lines.encode()))
    folder = tmp_path / "sounds" / "en"
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.wav").touch()
    found = {path.stem for path, _ in asterisk_prompts(tmp_path, "wav")}
    assert found == {name for name in names if zlib.crc32(name.encode()) % 2 == 0}


def test_missing_transcripts_are_named(tmp_path: Path) -> None:
    """The error says what to unpack."""
    with pytest.raises(FileNotFoundError, match="unpack asterisk-core-sounds"):
        list(asterisk_prompts(tmp_path, "wav"))
