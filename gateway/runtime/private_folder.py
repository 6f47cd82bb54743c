"""A folder of this process alone, in the temporary directory; those of dead processes are removed.

A process that is killed leaves its folder behind. Each folder has a file that its owner keeps
locked (`flock`). The kernel releases the lock when the owner dies, however it dies, and a process
id that was given to another process since cannot be mistaken for the owner. Whoever makes a folder
removes those whose lock is free.

"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("headstart.gateway")

PREFIX = "headstart-"
LOCK = "lock"
SOCKETS = Path("/proc/net/unix")
_NAME = re.compile(r"headstart-[a-z0-9_]{8}")  # as `tempfile` names them
_OURS = re.compile(r"\.?lock|engine\.sock|\.[0-9a-f]+-[0-9a-f]+")
"""What we put into one: anything else belongs to somebody."""
UNLOCKED_AGE_S = 60.0
"""Without a lock file it is just being made, or from before there was one."""


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder of mode 0700, removed when the context ends. Raises `OSError`."""
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        unlocked = folder / f".{LOCK}"
        lock = os.open(unlocked, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unlocked.rename(folder / LOCK)  # so that nobody finds it without an owner
            yield folder
        finally:
            os.close(lock)


def remove_abandoned() -> None:
    """Remove the folders of this user's processes that have died. What cannot be read or removed
    stays."""
    removed = 0
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).iterdir():
            if _NAME.fullmatch(folder.name):
                with contextlib.suppress(OSError):
                    removed += _remove_if_abandoned(folder)
    if removed:
        log.info("removed %d folders that killed processes had left", removed)


def _remove_if_abandoned(folder: Path) -> bool:
    """Raises `OSError`."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        return False
    if not all(_OURS.fullmatch(name) for name in os.listdir(folder)):
        return False
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - status.st_mtime < UNLOCKED_AGE_S or _has_sockets(folder):
            return False
        shutil.rmtree(folder)
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises `BlockingIOError` if it is held
        shutil.rmtree(folder)
    finally:
        os.close(lock)
    return True


def _has_sockets(folder: Path) -> bool:
    """Whether a process of this machine has a socket in it. Where that cannot be seen: yes."""
    try:
        return f"{folder}/" in SOCKETS.read_text(errors="replace")
    except OSError:
        return True
