"""The ZeroMQ address that engines connect to, kept reachable.

An ipc address is a file. Cleaners of temporary folders remove it, or its folder, without anyone
noticing: existing connections stay, and the next engine cannot connect. So the file is checked
periodically and recreated. It is bound under another name and renamed into place: whatever ZeroMQ
does with that name at the end, it never touches the file in use.

A listener whose file has gone is kept while an engine may be connected through it, because closing
it would disconnect that engine: call `forget_old` when none is. Not thread-safe; used on one
thread.

"""

from __future__ import annotations

import contextlib
import logging
import os
import socket as sockets
import stat
from pathlib import Path

import zmq

log = logging.getLogger("headstart.engine_link")

IPC = "ipc://"
ASK_WAIT_S = 0.2
"""How long another process with the file may take to accept a connection, in s."""


class Address:
    """Binds `socket` to `endpoint`. Raises `zmq.ZMQError` if it cannot be bound."""

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str) -> None:
        self.problem = ""
        """Why no engine can connect now; empty if one can."""
        self._socket = socket
        self._path = _path_of(endpoint)
        self._bound = 0  # names tried so far
        self._old: list[str] = []  # names whose file has gone, each with a listener
        self._name = ""
        self._file: tuple[int, int] | None = None
        self._folder: tuple[int, int] | None = None
        if self._path is None:
            socket.bind(endpoint)
            self.endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        else:
            self._bind(self._path)
            self.endpoint = endpoint

    def check(self) -> bool:
        """Recreate the file if it has gone; returns whether it did. Logs what happened, and sets
        `problem` if that failed or another process has taken the file."""
        path = self._path
        if path is None or _identity(path) == self._file:
            self.problem = ""
            return False
        if _is_alive(path):
            self._trouble(f"another process listens at {path} now")
            return False
        lost = "the file" if path.parent.is_dir() else "the folder of the file"
        try:
            if _identity(path.parent) != self._folder:
                _make_folder(path.parent)
            self._bind(path)
        except OSError as error:  # not a ZMQError
            self._trouble(f"{lost} {path} was removed and cannot be made again: {error}")
            return False
        except zmq.ZMQError as error:
            self._trouble(f"{lost} {path} was removed and cannot be bound again: {error}")
            return False
        self.problem = ""
        log.warning("%s %s was removed, by a cleaner perhaps: it was made again", lost, path)
        return True

    def forget_old(self) -> None:
        """No engine is connected: close the listeners whose file has gone."""
        for name in self._old:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.unbind(name)
        self._old.clear()

    def remove(self) -> None:
        """At the end: remove the file, if it is still ours."""
        if self._path is not None and _identity(self._path) == self._file:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _bind(self, path: Path) -> None:
        """Bind under a unique name and move the file into place."""
        self._bound += 1
        beside = path.with_name(f".{os.getpid():x}-{self._bound:x}")  # no longer than "engine.sock"
        name = f"{IPC}{beside}"
        self._socket.bind(name)
        try:
            beside.replace(path)
        except OSError:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.unbind(name)
            raise
        if self._name:
            self._old.append(self._name)
        self._name = name
        self._file, self._folder = _identity(path), _identity(path.parent)

    def _trouble(self, problem: str) -> None:
        if problem != self.problem:
            log.error("no engine can connect: %s", problem)
        self.problem = problem


def _path_of(endpoint: str) -> Path | None:
    """The file of an ipc address; None if it has none: tcp, and Linux's abstract names (@)."""
    name = endpoint.removeprefix(IPC)
    return None if name == endpoint or name.startswith("@") or name == "*" else Path(name)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None: there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_alive(path: Path) -> bool:
    """Whether a process accepts connections there."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as asking:
        asking.settimeout(ASK_WAIT_S)
        try:
            asking.connect(str(path))
        except OSError:
            return False
        return True


def _make_folder(folder: Path) -> None:
    """Raises `PermissionError` if another user made it meanwhile, or can write in it: its sockets
    could be anybody's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not ours or status.st_mode & 0o022:
        raise PermissionError(f"{folder} is not ours alone: expected our own folder, mode 0700")
