"""`headstart serve --record FILE`: the feed as gzipped JSON lines, the bytes that a watcher gets.

What is written is flushed at least once a second, down to a boundary that can be unpacked: a server
that is killed leaves a file which is readable up to there. A disk that is full, or fails in another
way, ends the recording with a line in the log, and nothing else.

Bound: the queue of any watcher. A disk that cannot keep up loses the oldest messages, and the file
says how many.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import zlib
from pathlib import Path

from headstart.gateway.dashboard.dashboard import Dashboard
from headstart.gateway.dashboard.watcher import Watcher
from headstart.gateway.errors import ConfigError
from headstart.gateway.runtime import tasks

log = logging.getLogger("headstart.dashboard")

FLUSH_S = 0.5
GZIP_BITS = 16 + zlib.MAX_WBITS
PRIVATE = 0o600
CLOSE_NORMAL = 1000  # a socket's word; a file has no use for it


class RecordingFile:
    """A new file of gzipped lines. Blocks."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError`: it is there already, or cannot be made."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        except FileExistsError as error:
            raise ConfigError(
                [f"record: {path} is there already; name another file, or remove that one"]
            ) from error
        except OSError as error:
            raise ConfigError([f"record: {path} cannot be written: {error.strerror}"]) from error
        self._gzip = zlib.compressobj(6, zlib.DEFLATED, GZIP_BITS)

    def write(self, lines: list[bytes]) -> None:
        """All of them, readable from now on. Raises `OSError`."""
        packed = self._gzip.compress(b"".join(line + b"\n" for line in lines))
        self._write(packed + self._gzip.flush(zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        """With gzip's end behind it, if that can still be written."""
        with contextlib.suppress(OSError):
            self._write(self._gzip.flush(zlib.Z_FINISH))
        os.close(self._fd)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]


class Recorder:
    """Watches from `start` to `stop`. On the loop."""

    def __init__(self, dashboard: Dashboard, file: RecordingFile) -> None:
        self._dashboard = dashboard
        self._file = file
        self._watcher = Watcher()
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        lines = [message.line() for message in self._dashboard.watch(self._watcher)]
        self._writing = tasks.own(self._write(lines), "recorder", self._failed)
        log.info("recording to %s", self._file.path)

    async def stop(self) -> None:
        """What has come so far is written, unless that has failed before."""
        self._watcher.end(CLOSE_NORMAL, "")
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        self._dashboard.hub.unwatch(self._watcher)
        self._file.close()

    async def _write(self, lines: list[bytes]) -> None:
        try:
            while True:
                await asyncio.to_thread(self._file.write, lines)
                if self._watcher.is_over and not len(self._watcher):
                    return
                if not self._watcher.is_over:
                    await asyncio.sleep(FLUSH_S)
                await self._watcher.wait()
                lines = []
                while (line := self._watcher.take()) is not None:
                    lines.append(line)
        except OSError as error:
            log.error(
                "the recording ends here: %s could not be written: %s; the server goes on",
                self._file.path,
                error.strerror or error,
            )
        finally:
            self._dashboard.hub.unwatch(self._watcher)

    def _failed(self, _: BaseException) -> None:
        """It has been reported; `_write` has taken the watcher off."""
