"""PNG and JPEG files, put together part by part."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from PIL import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MIB = 1 << 20


def chunk(name: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(name + body)
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", checksum)


def header(width: int, height: int, depth: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    return struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)


def zeros(count: int) -> bytes:
    """So many zero bytes, compressed, without holding them."""
    squeeze = zlib.compressobj(9)
    whole = [squeeze.compress(bytes(MIB)) for _ in range(count // MIB)]
    return b"".join([*whole, squeeze.compress(bytes(count % MIB)), squeeze.flush()])


def png_file(head: bytes, pixels: bytes, *others: bytes, after: Iterable[bytes] = ()) -> bytes:
    """`pixels` are compressed already; `others` are chunks before them."""
    middle = [chunk(b"IHDR", head), *others, chunk(b"IDAT", pixels), *after]
    return b"".join([PNG_SIGNATURE, *middle, chunk(b"IEND", b"")])


def black_png(width: int, height: int, *others: bytes) -> bytes:
    return png_file(header(width, height), zeros(height * (1 + 3 * width)), *others)


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def exif(orientation: int, order: str = "<") -> bytes:
    """A TIFF structure of one tag and a thumbnail's worth of others."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    tags = struct.pack(f"{order}HHIHH", 274, 3, 1, orientation, 0)
    return mark + struct.pack(f"{order}IH", 8, 1) + tags + struct.pack(f"{order}I", 0)


def saved(pixels: npt.NDArray[np.uint8], kind: str, **options: object) -> bytes:
    """[height, width] or [height, width, channels] to a PNG or JPEG."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()
