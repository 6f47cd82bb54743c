"""Reduces PNG and JPEG files to what decoding the pixels needs.

    strip(file) -> Stripped    the reduced file, and its metadata

Text, colour profiles, thumbnails, animation and unknown parts are removed, so that nothing in them
can be decompressed. The rest is checked to cost no more than its header says: one header, no more
compressed data than its pixels need, and at most `MAX_SCANS` passes over a JPEG's pixels.

Sources: PNG (W3C, third edition), ITU-T T.81, JFIF 1.02, Exif 2.32.

"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from headstart.gateway.protocol.orientation import EXIF_PREFIX, UPRIGHT, of_exif

ImageKind = Literal["png", "jpeg"]

MAX_SCANS: Final = 100
"""Per JPEG. Each scan is a pass over all its pixels, however few bytes it has; encoders write about
ten."""
MAX_MARKERS: Final = 100_000
"""Per JPEG, before its header and in total."""
MAX_EXIF_BYTES: Final = 1 << 16
_SLACK_BYTES: Final = 1 << 16
"""Image data allowed beyond a PNG's pixels: some encoders pad it, and browsers accept that."""
_PIECE_BYTES: Final = 1 << 16
MAX_TABLE_BYTES: Final = 1 << 18
"""Per JPEG: `MAX_SCANS` with new tables each need less."""

_PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
# Samples per pixel and the allowed bit depths, by colour type.
_PNG_COLOURS: Final = {
    0: (1, (1, 2, 4, 8, 16)),
    2: (3, (8, 16)),
    3: (1, (1, 2, 4, 8)),
    4: (2, (8, 16)),
    6: (4, (8, 16)),
}
# Adam7's passes: first column and row, and the steps between columns and rows.
_ADAM7: Final = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
_CICP_BYTES: Final = 4
_PLTE_BYTES_MAX: Final = 768
_TRNS_BYTES_MAX: Final = 256

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_APP0, _APP1, _APP14 = 0xE0, 0xE1, 0xEE
_JPEG_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended, progressive
# All start-of-frame markers: SOF0 to SOF15 without DHT, JPG and DAC, which lie between.
_JPEG_ALL_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_TABLES: Final = frozenset({0xC4, 0xDB, 0xDD})  # DHT, DQT, DRI
_JPEG_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})  # TEM, RST: markers without a length
# The end of a scan's data: the next marker that is neither a stuffed byte nor a restart.
_AFTER_SCAN: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


class Damaged(ValueError):
    """The file violates its format, or costs more than its header says; the message says how and is
    appended to a sentence in brackets."""


@dataclass(frozen=True, slots=True)
class Stripped:
    """`data` is a complete file with `width` by `height` pixels."""

    kind: ImageKind
    data: bytes
    width: int
    height: int
    orientation: int = UPRIGHT


def kind_of(data: bytes) -> ImageKind | None:
    """The format, from the first bytes; None: neither."""
    if data.startswith(_PNG_SIGNATURE):
        return "png"
    return "jpeg" if data.startswith(_JPEG_SIGNATURE) else None


def size_of(data: bytes, most_markers: int = MAX_MARKERS) -> tuple[int, int] | None:
    """Width and height, from the beginning of a file; None if they are missing, or not within that
    many of a JPEG's markers."""
    kind = kind_of(data)
    if kind == "png":
        return _png_size(data)
    return _jpeg_size(data, most_markers) if kind == "jpeg" else None


def strip(data: bytes) -> Stripped:
    """A PNG or JPEG without anything its pixels do not need. Raises `Damaged`. Takes as long as
    decompressing the pixels: check `size_of` first."""
    kind = kind_of(data)
    if kind is None:
        raise Damaged("it is no PNG or JPEG")
    return _strip_png(data) if kind == "png" else _strip_jpeg(data)


def _png_size(data: bytes) -> tuple[int, int] | None:
    """From the IHDR chunk, which comes first."""
    if len(data) < 24 or data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _jpeg_size(data: bytes, most_markers: int) -> tuple[int, int] | None:
    """From the frame header: walk the segments up to it."""
    position = 2
    for _ in range(most_markers):
        if position + 9 > len(data):
            return None
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
        elif marker in _JPEG_ALONE:
            position += 2
        elif marker in _JPEG_ALL_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        elif marker == _SOS:
            return None
        else:
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return None


# --- PNG ----------------------------------------------------------------------------------------


def _strip_png(data: bytes) -> Stripped:
    header = b""
    kept: dict[bytes, bytes] = {}
    pixels: list[memoryview] = []
    for name, body in _png_chunks(data):
        if (name == b"IHDR") == bool(header) or (name == b"IHDR" and len(body) != 13):
            raise Damaged("it does not begin with one header")
        if name == b"IHDR":
            header = bytes(body)
        elif name == b"IDAT":
            pixels.append(body)
        elif name in (b"cICP", b"PLTE", b"tRNS", b"eXIf") and name not in kept:
            kept[name] = bytes(body[:MAX_EXIF_BYTES])
    if not pixels:
        raise Damaged("it holds no pixels")
    compressed = b"".join(pixels)
    _check_unfolds_to(compressed, _png_bytes(header))
    parts = [_PNG_SIGNATURE, _chunk(b"IHDR", header)]
    if len(kept.get(b"cICP", b"")) == _CICP_BYTES:  # says whether the range is a high one
        parts.append(_chunk(b"cICP", kept[b"cICP"]))
    parts += [
        _chunk(name, kept[name][:most])
        for name, most in ((b"PLTE", _PLTE_BYTES_MAX), (b"tRNS", _TRNS_BYTES_MAX))
        if name in kept
    ]
    parts += [_chunk(b"IDAT", compressed), _chunk(b"IEND", b"")]
    width, height = struct.unpack_from(">II", header)
    return Stripped("png", b"".join(parts), width, height, of_exif(kept.get(b"eXIf", b"")))


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Name and content of each chunk, up to the end's. Raises `Damaged`."""
    view, position = memoryview(data), len(_PNG_SIGNATURE)
    name = b""
    while name != b"IEND":
        if position + 12 > len(data):
            raise Damaged("it ends early")
        length, name = struct.unpack_from(">I4s", data, position)
        body = view[position + 8 : position + 8 + length]
        position += 12 + length
        if position > len(data):
            raise Damaged("it ends early")
        yield name, body


def _chunk(name: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(body, zlib.crc32(name))
    return b"".join((struct.pack(">I", len(body)), name, body, struct.pack(">I", checksum)))


def _png_bytes(header: bytes) -> int:
    """Size of the decompressed pixel data, with a filter byte per row."""
    width, height, depth, colour, method, filtering, interlaced = struct.unpack(">IIBBBBB", header)
    samples, depths = _PNG_COLOURS.get(colour, (0, ()))
    if depth not in depths or method or filtering or interlaced > 1:
        raise Damaged("its header is none that PNG has")
    total = 0
    for left, top, right_by, down_by in _ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns = max(0, -(-(width - left) // right_by))
        rows = max(0, -(-(height - top) // down_by))
        if columns:
            total += rows * (1 + (columns * samples * depth + 7) // 8)
    return total


def _check_unfolds_to(compressed: bytes, size: int) -> None:
    """Raise unless a zlib stream holds `size` bytes, or slightly more. Decompresses no further."""
    unfolding, got = zlib.decompressobj(), 0
    view = memoryview(compressed)
    try:
        for at in range(0, len(view), _PIECE_BYTES):
            left: bytes | memoryview = view[at : at + _PIECE_BYTES]
            while left and not unfolding.eof and got <= size + _SLACK_BYTES:
                got += len(unfolding.decompress(left, _PIECE_BYTES))
                left = unfolding.unconsumed_tail
    except zlib.error:
        raise Damaged("its pixels are no zlib stream") from None
    if got < size:
        raise Damaged("its pixels end early")
    if got > size + _SLACK_BYTES:
        raise Damaged(f"it unfolds into more than the {size} bytes of its size")


# --- JPEG ---------------------------------------------------------------------------------------


def _strip_jpeg(data: bytes) -> Stripped:
    walk = _JpegWalk(data)
    for _ in range(MAX_MARKERS):
        if not walk.more():
            break
    else:
        raise Damaged(f"it has more than {MAX_MARKERS} markers")
    if walk.frame is None or not walk.scans:
        raise Damaged("it holds no pixels")
    height, width = struct.unpack_from(">HH", walk.frame, 5)
    parts = [*walk.kept, b"\xff\xd9"] if walk.whole else walk.kept
    return Stripped("jpeg", b"".join(parts), width, height, walk.orientation or UPRIGHT)


class _JpegWalk:
    """Walks a JPEG marker by marker up to its end; trailing data is ignored (several cameras put a
    second image there)."""

    def __init__(self, data: bytes) -> None:
        self.kept: list[bytes] = [data[:2]]
        self.frame: bytes | None = None
        self.scans = 0
        self.orientation: int | None = None
        self.whole = False
        self._table_bytes = 0
        self._data = data
        self._position = 2

    def more(self) -> bool:
        """Advance by one marker. False: that was the end."""
        data = self._data
        while data[self._position : self._position + 2] == b"\xff\xff":  # padding
            self._position += 1
        head = data[self._position : self._position + 2]
        if len(head) < 2:
            if not self.scans:
                raise Damaged("it ends early")
            return False  # the decoder checks whether all pixels are there
        if head[0] != 0xFF:
            raise Damaged("there is no marker where one belongs")
        if head[1] == _EOI:
            self.whole = True
            return False
        if head[1] == _SOI:
            raise Damaged("it begins twice")
        if head[1] in _JPEG_ALONE:
            self._position += 2
        else:
            self._segment(head[1])
        return True

    def _segment(self, marker: int) -> None:
        segment = self._take_segment()
        if marker in _JPEG_ALL_FRAMES:
            self._frame(marker, segment)
        elif marker in _JPEG_TABLES:
            self._tables(segment)
        elif marker == _SOS:
            self._scan(segment)
        else:
            self._metadata(marker, segment)

    def _take_segment(self) -> bytes:
        """The segment at the walk's position, with its marker and length, and advance past it."""
        data, begin = self._data, self._position
        if begin + 4 > len(data):
            raise Damaged("it ends early")
        (length,) = struct.unpack_from(">H", data, begin + 2)
        if length < 2:
            raise Damaged("a segment has no length")
        end = self._position = begin + 2 + length
        if end > len(data):
            raise Damaged("it ends early")
        return data[begin:end]

    def _tables(self, segment: bytes) -> None:
        self._table_bytes += len(segment) - 2
        if self._table_bytes > MAX_TABLE_BYTES:
            raise Damaged(f"it has more than {MAX_TABLE_BYTES} bytes of tables")
        self.kept.append(segment)

    def _metadata(self, marker: int, segment: bytes) -> None:
        """Of an APPn segment keep what changes the pixels: how their colours are stored (JFIF,
        Adobe) and which side is up (Exif). Everything else is left out."""
        if marker == _APP0 and segment[4:9] == b"JFIF\0" and len(segment) >= 18:
            self.kept.append(b"\xff\xe0\0\x10" + segment[4:16] + b"\0\0")  # without its thumbnail
        elif marker == _APP14 and segment[4:9] == b"Adobe" and len(segment) >= 16:
            self.kept.append(b"\xff\xee\0\x0e" + segment[4:16])
        elif marker == _APP1 and segment[4:].startswith(EXIF_PREFIX):
            self.orientation = self.orientation or of_exif(segment[4:])

    def _frame(self, marker: int, segment: bytes) -> None:
        if marker not in _JPEG_FRAMES:
            raise Damaged("it is neither a baseline nor a progressive JPEG")
        if self.frame is not None or len(segment) < 11:
            raise Damaged("it does not have one header")
        self.frame = segment
        self.kept.append(segment)

    def _scan(self, segment: bytes) -> None:
        self.scans += 1
        if self.scans > MAX_SCANS:
            raise Damaged(f"it has more than {MAX_SCANS} scans")
        found = _AFTER_SCAN.search(self._data, self._position)
        end = len(self._data) if found is None else found.start()
        self.kept += [segment, self._data[self._position : end]]
        self._position = end
