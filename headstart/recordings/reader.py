"""A recording, read as a stream: gzipped or not, of any size, one message at a time.

A file that breaks off, in mid line or mid gzip, is read up to there; `remarks` say so afterwards.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from headstart.recordings.errors import (
    NotARecording,
    OtherVersion,
    RecordingDamaged,
    RecordingMissing,
)

Json = dict[str, Any]

VERSION = 1
LINE_BYTES_MAX = 16 * 1024 * 1024
"""A turn has some thousands. Nothing longer is a message of the feed."""
BAD_LINES_MAX = 1000
READ_BYTES = 64 * 1024
UNPACK_BYTES = 1024 * 1024
"""Unpacked at once, whatever the file claims to hold."""
GZIP_MAGIC = b"\x1f\x8b"
GZIP_BITS = 16 + zlib.MAX_WBITS


class Recorded(NamedTuple):
    """One message: its line as it stands in the file, without the end, and what it says."""

    line: bytes
    message: Json


class Recording:
    """A file of the feed. `hello` is its greeting, once `messages` has begun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hello: Json = {}
        self.bytes_read = 0
        self.lines = 0
        self.bad_lines = 0
        self.is_cut_off = False
        """It ends in mid line or mid stream."""
        self.trailing_bytes = 0
        """Behind the end of its gzip stream; not read."""

    def messages(self) -> Iterator[Recorded]:
        """All messages from the start on, in order; the first is the greeting. Starts anew with
        each call. Raises `RecordingError`s."""
        self.bytes_read = self.lines = self.bad_lines = self.trailing_bytes = 0
        self.is_cut_off = False
        try:
            with self.path.open("rb") as file:
                yield from self._messages(file)
        except OSError as error:
            why = error.strerror or error
            raise RecordingMissing(f"{self.path} cannot be read: {why}") from error
        if self.lines == 0:
            self._nothing_read()

    @property
    def remarks(self) -> list[str]:
        """What was wrong with the file, as sentences."""
        said = []
        if self.is_cut_off:
            said.append(f"{self.path} breaks off at its end: only what came before is read")
        if self.bad_lines:
            lines = "1 line is" if self.bad_lines == 1 else f"{self.bad_lines} lines are"
            said.append(f"{self.path}: {lines} no message and left out")
        if self.trailing_bytes:
            said.append(f"{self.path}: {self.trailing_bytes} bytes behind its end are left out")
        return said

    def _nothing_read(self) -> None:
        if self.bytes_read == 0:
            raise NotARecording(f"{self.path} is empty: expected a recording of the feed")
        raise NotARecording(
            f"{self.path} is not a recording, or nothing of it is left: not one whole line"
        )

    def _messages(self, file: BinaryIO) -> Iterator[Recorded]:
        rest = b""
        for data in self._text(file):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield from self._message(line)
            if len(rest) > LINE_BYTES_MAX:
                raise RecordingDamaged(
                    f"{self.path} is not a recording: it has a line of more than "
                    f"{LINE_BYTES_MAX // 2**20} MiB"
                )
        yield from self._last(rest)

    def _last(self, rest: bytes) -> Iterator[Recorded]:
        """What stands behind the last line's end: a whole message, or a part of one."""
        if rest.strip() and _decoded(rest) is None and self.lines == 0 and not self.is_cut_off:
            # Some other file without any line's end is none that breaks off.
            if not rest.lstrip().startswith(b"{"):
                self._greeting(None)
            self.is_cut_off = True
        elif rest.strip() and _decoded(rest) is None:
            self.is_cut_off = True
        else:
            yield from self._message(rest)

    def _message(self, line: bytes) -> Iterator[Recorded]:
        if not line.strip():
            return
        message = _decoded(line)
        self.lines += 1
        if self.lines == 1 or (message is not None and message.get("type") == "hello"):
            yield Recorded(line, self._greeting(message))
        elif message is not None:
            yield Recorded(line, message)
        else:
            self.bad_lines += 1
            if self.bad_lines > BAD_LINES_MAX:
                raise RecordingDamaged(
                    f"{self.path} is damaged: more than {BAD_LINES_MAX} of its lines are no "
                    f"messages of the feed"
                )

    def _greeting(self, message: Json | None) -> Json:
        if message is None or message.get("type") != "hello":
            raise NotARecording(
                f'{self.path} is not a recording: expected a "hello" message on its first line'
            )
        version = message.get("version")
        if type(version) is not int or version != VERSION:
            raise OtherVersion(
                f"{self.path} has format version {version!r}, this headstart reads version "
                f"{VERSION}: read it with the headstart that recorded it "
                f"({str(message.get('headstart', 'unknown'))[:40]!r})"
            )
        self.hello = self.hello or message
        return message

    # --- bytes -----------------------------------------------------------------------------------

    def _text(self, file: BinaryIO) -> Iterator[bytes]:
        chunks = self._chunks(file)
        first = next(chunks, b"")
        if first[:2] != GZIP_MAGIC:
            yield first
            yield from chunks
            return
        unpack = zlib.decompressobj(GZIP_BITS)
        packed = first
        try:
            while packed:
                yield unpack.decompress(packed, UNPACK_BYTES)
                packed = unpack.unconsumed_tail
                if unpack.eof:
                    packed = unpack.unused_data
                    # Another one may follow: `cat a.gz b.gz` makes such files.
                    if not packed.startswith(GZIP_MAGIC):
                        self.trailing_bytes = len(packed) + sum(map(len, chunks))
                        return
                    unpack = zlib.decompressobj(GZIP_BITS)
                packed = packed or next(chunks, b"")
        except zlib.error:
            self.is_cut_off = True
        self.is_cut_off = self.is_cut_off or not unpack.eof

    def _chunks(self, file: BinaryIO) -> Iterator[bytes]:
        while data := file.read(READ_BYTES):
            self.bytes_read += len(data)
            yield data


def _decoded(line: bytes) -> Json | None:
    """A message, or None for what is none."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return None
    return message
