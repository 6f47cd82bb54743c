"""Folders of dead processes are removed when the next one is made, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headstart.gateway.runtime import private_folder as module
from headstart.gateway.runtime.private_folder import LOCK, UNLOCKED_AGE_S, private_folder

OWNER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from headstart.gateway.runtime.private_folder import private_folder
with private_folder() as folder:
    (folder / "engine.sock").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> Path:
    """As if it had been made longer ago than anyone takes to lock it."""
    then_s = time.time() - 2 * UNLOCKED_AGE_S
    os.utime(folder, (then_s, then_s))
    return folder


def test_what_a_killed_process_left_is_removed(temporary: Path) -> None:
    """While it lives its folder stays, whatever others make; once it is killed the next one removes
    it."""
    command = [sys.executable, "-c", OWNER, str(temporary)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        with private_folder() as ours:
            assert ours != left
            assert (left / LOCK).exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait(60)
    assert left.exists()
    with private_folder() as ours:
        assert os.listdir(temporary) == [ours.name]
    assert not os.listdir(temporary)


def test_a_folder_without_a_lock(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a version that locked none: removed if it is old and no process has a socket in it."""
    old, new, used = (temporary / f"headstart-abcdefg{n}" for n in range(3))
    for folder in (old, new, used):
        folder.mkdir(mode=0o700)
        (folder / "engine.sock").touch()
    aged(old)
    aged(used)
    sockets = temporary / "sockets"
    sockets.write_text(f"0000: 00000002 00000000 00010000 0001 01 7 {used}/.1f-1\n")
    monkeypatch.setattr(module, "SOCKETS", sockets)
    module.remove_abandoned()
    assert [folder.exists() for folder in (old, new, used)] == [False, True, True]
    monkeypatch.setattr(module, "SOCKETS", temporary / "none-such")
    module.remove_abandoned()
    assert used.exists(), "it cannot be seen whether a process has a socket in it"


def test_what_is_not_ours_stays(temporary: Path) -> None:
    """Another name, a file of somebody's in it, one that others can read, a link, a file."""
    shared = temporary / "headstart-0"
    foreign, readable, target = (
        temporary / f"headstart-{name}" for name in ("foreign1", "readable", "targetab")
    )
    for folder in (shared, foreign, readable):
        folder.mkdir(mode=0o700)
    (foreign / "thesis.txt").touch()
    readable.chmod(0o755)
    link, file = temporary / "headstart-alinkabc", temporary / "headstart-afileabc"
    target.mkdir(mode=0o755)
    link.symlink_to(target)
    file.touch()
    for folder in (shared, foreign, readable, target):
        aged(folder)
    module.remove_abandoned()
    assert all(each.exists() for each in (shared, foreign, readable, target, link, file))
