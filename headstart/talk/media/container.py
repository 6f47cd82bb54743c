"""Opens and decodes media files with PyAV, tolerating damage.

    parts(path)   the containers that a file holds one after the other: most hold one, a chained Ogg
                  (RFC 3533 §4) one per link
    decoded       a stream's frames; what cannot be decoded is counted and skipped

Raises `headstart.gateway.errors.MediaError`s, each a sentence that says what to do.

"""

from __future__ import annotations

import contextlib
import io
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
from av.container.input import InputContainer

from headstart.gateway.errors import FileMissing, FileUndecodable

OGG_HEAD_BYTES = 27
OGG_BEGINS, OGG_ENDS = 2, 4
XING_WITHIN_BYTES = 8192
UNDECODABLE = (av.FFmpegError, ValueError, OverflowError, MemoryError, RuntimeError, LookupError)
"""What PyAV raises for damaged files: FFmpeg's errors, and its own for values it does not know."""


@dataclass
class Tally:
    """Counts of a stream's packets. `ended_early`: the rest of the file could not be read."""

    packets: int = 0
    corrupt: int = 0
    ended_early: bool = False


def why_no_file(path: Path) -> str | None:
    """Why a path that somebody gave leads to no file to read, or None: it leads to one."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null character
        return "there is no such file"
    except OSError as error:  # a loop of links, too long a name, a folder that is closed to us
        return f"cannot be reached ({error.strerror})"
    if kind == stat.S_IFDIR:
        return "is a folder, not a file"
    return None if kind == stat.S_IFREG else "is a pipe, a socket or a device, not a file"


@contextlib.contextmanager
def opened(path: Path, source: Any = None) -> Iterator[InputContainer]:
    """Opens `path`, or the part of it that `source` reads."""
    # FFmpeg takes what stands before a colon for a protocol: "12:30.mp4".
    name = str(path.absolute())
    try:
        container = av.open(name if source is None else source, metadata_errors="replace")
    except (PermissionError, IsADirectoryError) as error:
        raise FileMissing(
            str(path), f"cannot be read ({words(error)}): check its rights"
        ) from error
    except UNDECODABLE as error:
        raise FileUndecodable(
            str(path),
            f"is no sound or video file, or is cut short ({words(error)}): give a file that a "
            "media player plays",
        ) from error
    with container:
        yield container


def words(error: Exception) -> str:
    """A library error's message."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def parts(path: Path) -> Iterator[InputContainer]:
    """Each is open until the next is requested."""
    links = ogg_links(path)
    if len(links) < 2:
        with opened(path) as container:
            yield container
        return
    with path.open("rb") as file:
        for begin, end in links:
            with opened(path, _Window(file, begin, end)) as container:
                yield container


def decoded(container: InputContainer, stream: Any, tally: Tally) -> Iterator[Any]:
    """The frames of a stream; none if its codec is unknown."""
    if stream.codec_context is None:
        return
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except UNDECODABLE:
            tally.ended_early = True
            return
        if packet is None:
            return
        tally.packets += 1
        try:
            frames = packet.decode()
        except UNDECODABLE:
            tally.corrupt += 1
            continue
        yield from frames


def ogg_links(path: Path) -> list[tuple[int, int]]:
    """Start and end of each link of a chained Ogg: from a page that begins a stream to the last
    page before the next one. Empty: it is not an Ogg file."""
    links: list[tuple[int, int]] = []
    began, position, size = 0, 0, path.stat().st_size
    in_head = True
    with path.open("rb") as file:
        while len(head := file.read(OGG_HEAD_BYTES)) == OGG_HEAD_BYTES and head[:4] == b"OggS":
            begins = bool(head[5] & OGG_BEGINS)
            if begins and not in_head:
                links.append((began, position))
                began = position
            in_head = begins
            lengths = file.read(head[26])
            position += OGG_HEAD_BYTES + len(lengths) + sum(lengths)
            file.seek(position)
    return [*links, (began, size)] if position else []


def ogg_has_end(path: Path) -> bool:
    """Whether the last page has the end-of-stream flag (RFC 3533 §6)."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65_307))  # the longest page
        tail = file.read()
    last = tail.rfind(b"OggS")
    return last >= 0 and len(tail) > last + 5 and bool(tail[last + 5] & OGG_ENDS)


def wav_data_bytes(path: Path) -> int | None:
    """The size that a WAV's `data` chunk declares; None: it has none."""
    with path.open("rb") as file:
        if file.read(4) != b"RIFF":
            return None
        file.seek(12)
        while len(header := file.read(8)) == 8:
            name, size = struct.unpack("<4sI", header)
            if name == b"data":
                return int(size)
            file.seek(size + size % 2, 1)
    return None


def xing_s(path: Path, rate_hz: int) -> float | None:
    """An MP3's duration from the table in its first frame (Xing's, or LAME's `Info`): exact, but
    only for the first file if several are joined. None: there is no table."""
    with path.open("rb") as file:
        tags = file.read(10)  # ID3v2: covers and other tags, before the first frame
        if tags[:3] == b"ID3" and len(tags) == 10:
            a, b, c, d = (each & 0x7F for each in tags[6:])
            file.seek(10 + (a << 21 | b << 14 | c << 7 | d))
        head = file.read(XING_WITHIN_BYTES)
    at = max(head.find(b"Xing"), head.find(b"Info"))
    if at < 0 or at + 12 > len(head) or rate_hz <= 0:
        return None
    flags, frames = struct.unpack_from(">II", head, at + 4)
    frame_samples = 1152 if rate_hz >= 32_000 else 576
    return frames * frame_samples / rate_hz if flags & 1 else None


class _Window(io.RawIOBase):
    """Part of an open file, as a file."""

    def __init__(self, file: io.BufferedReader, begin: int, end: int) -> None:
        self._file, self._begin, self._size = file, begin, end - begin
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        self._file.seek(self._begin + self._position)
        data = self._file.read(left if count < 0 else min(count, left))
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position
