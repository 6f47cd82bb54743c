"""headstart.benchmarks.peers.environments: made once, and again when their list changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headstart.benchmarks.peers.environments import (
    LISTS,
    STAMP,
    EnvironmentFailed,
    Environments,
    fingerprint,
    packages,
)
from headstart.benchmarks.peers.speech_to_speech import PUNKT_FILES, prepare


def test_every_version_is_pinned() -> None:
    """A run a year later measures the same releases."""
    found = sorted(LISTS.glob("*.txt"))
    stems = ["libdatachannel", "llama", "pipecat", "speech_to_speech"]
    assert [path.stem for path in found] == stems
    for path in found:
        wanted = list(packages(path))
        assert wanted
        assert all("==" in each for each in wanted), path.name
        names = [each.partition("==")[0].lower() for each in wanted]
        assert len(set(names)) == len(names)
    assert "pipecat-ai==1.14.0" in packages(LISTS / "pipecat.txt")


def empty(tmp_path: Path) -> Environments:
    """An environment of no packages."""
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "bare.txt").write_text("# nothing\n")
    return Environments(tmp_path / "environments", lists)


def test_an_environment_is_made_once(tmp_path: Path) -> None:
    """One that was interrupted, or whose list has changed, goes on where it was."""
    environments = empty(tmp_path)
    python = environments.python("bare")
    done = subprocess.run(
        [
            str(python),
            "-c",
            "import sys; print(sys.prefix != sys.base_prefix, sys.version_info[:2])",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == f"True {sys.version_info[:2]}"
    assert environments.site("bare").is_relative_to(python.parents[1])
    stamp = python.parents[1] / STAMP
    made_at_ns = stamp.stat().st_mtime_ns
    assert environments.python("bare") == python
    assert stamp.stat().st_mtime_ns == made_at_ns
    kept = python.parents[1] / "kept"
    kept.touch()
    for change in (stamp.unlink, lambda: (environments.lists / "bare.txt").write_text("# new\n")):
        change()
        environments.python("bare")
        assert kept.exists()
        assert stamp.read_text() == fingerprint(environments.lists / "bare.txt")


def test_what_cannot_be_installed_is_named(tmp_path: Path) -> None:
    """With pip's words; and nothing then says that it was made."""
    environments = empty(tmp_path)
    missing = tmp_path / "absent-1.0-py3-none-any.whl"
    (environments.lists / "bare.txt").write_text(f"absent @ file://{missing}\n")
    with pytest.raises(EnvironmentFailed, match=r"'bare' could not be made: .*absent") as caught:
        environments.python("bare")
    assert caught.value.name == "bare"
    assert not (environments.folder / "bare" / STAMP).exists()


def test_what_speech_to_speech_would_fetch(tmp_path: Path) -> None:
    """Is where its libraries look; twice is as good as once."""
    for _ in range(2):
        prepare(tmp_path)
    hub = tmp_path / "torch" / "hub" / "snakers4_silero-vad_master" / "hubconf.py"
    compile(hub.read_text(), str(hub), "exec")
    english = tmp_path / "nltk" / "tokenizers" / "punkt_tab" / "english"
    assert {path.name for path in english.iterdir()} == set(PUNKT_FILES)
