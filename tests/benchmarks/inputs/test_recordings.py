"""headstart.benchmarks.inputs.recordings: lists of recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.benchmarks.inputs.recordings import read_list


def test_a_wrong_line_of_the_list_is_named(tmp_path: Path) -> None:
    """Path, line number and what was there; a good line's path is relative to the list."""
    made = tmp_path / "list.tsv"
    made.write_text("a.wav\tOne two.\n")
    assert read_list(made) == [(tmp_path / "a.wav", "One two.")]
    made.write_text("a.wav\tOne two.\nb.wav no tab\n")
    with pytest.raises(ValueError, match=r"list\.tsv:2: .*'b\.wav no tab'"):
        read_list(made)
