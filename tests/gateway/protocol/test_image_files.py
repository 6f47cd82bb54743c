"""PNG and JPEG files, cut down to what their pixels need."""

from __future__ import annotations

import contextlib
import re
import struct
import zlib

import numpy as np
import pytest

from headstart.gateway.protocol.image_files import Damaged, kind_of, size_of, strip
from headstart.gateway.protocol.orientation import EXIF_PREFIX
from tests.gateway.protocol.files import (
    PNG_SIGNATURE,
    black_png,
    chunk,
    exif,
    header,
    png_file,
    saved,
    segment,
    zeros,
)

GRADIENT = np.add.outer(np.arange(48), np.arange(64)).astype(np.uint8)
COLOURED = np.stack([GRADIENT, GRADIENT[::-1], 255 - GRADIENT], axis=2)
JPEG = saved(COLOURED, "JPEG")
PROGRESSIVE = saved(COLOURED, "JPEG", progressive=True)
# A marker, found where no compressed data is.
MARKERS = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")

NEEDLESS_CHUNKS = [b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"sPLT", b"hIST", b"acTL", b"fcTL", b"fdAT"]
NEEDLESS_CHUNKS += [b"gAMA", b"cHRM", b"sRGB", b"cICP", b"pHYs", b"tIME", b"caNv", b"abCd"]


def names(png: bytes) -> list[bytes]:
    found, at = [], len(PNG_SIGNATURE)
    while at < len(png):
        length, name = struct.unpack_from(">I4s", png, at)
        found.append(name)
        at += 12 + length
    return found


def test_only_what_pixels_need_is_left_of_a_png() -> None:
    """Text, profiles, animation and what nobody knows go, wherever they stand."""
    others = [chunk(name, b"k\0\0" + zlib.compress(bytes(1000))) for name in NEEDLESS_CHUNKS]
    body = zeros(4 * 5)
    data = png_file(
        header(4, 4, colour=3),
        body[:5],
        *others,
        chunk(b"PLTE", bytes(12)),
        chunk(b"tRNS", b"\0"),
        chunk(b"eXIf", exif(6)),
        after=[chunk(b"IDAT", body[5:]), *others],
    )
    stripped = strip(data + b"what follows")
    assert names(stripped.data) == [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"]
    assert (stripped.width, stripped.height, stripped.orientation) == (4, 4, 6)
    again = strip(stripped.data)
    assert (again.data, again.orientation) == (stripped.data, 1)


@pytest.mark.parametrize("data", [JPEG, PROGRESSIVE], ids=["baseline", "progressive"])
def test_only_what_pixels_need_is_left_of_a_jpeg(data: bytes) -> None:
    """Comments, profiles, Exif with its thumbnail and a second picture behind the end go."""
    others = b"".join(segment(marker, b"x" * 100) for marker in [0xFE, *range(0xE0, 0xF0)])
    app1 = segment(0xE1, EXIF_PREFIX + exif(8) + bytes(1000))
    profile = segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(3000))
    adobe = segment(0xEE, b"Adobe" + bytes(7) + b"more")
    stripped = strip(data[:2] + others + app1 + profile + adobe + data[2:] + data)
    heads = stripped.data[: stripped.data.index(b"\xff\xda")]
    kept = {found[0] for found in MARKERS.findall(heads)}
    assert kept <= {0xD8, 0xDB, 0xC0, 0xC2, 0xC4, 0xDD, 0xE0, 0xEE}
    assert (stripped.width, stripped.height, stripped.orientation) == (64, 48, 8)
    assert len(stripped.data) <= len(data) + 16
    assert strip(data).data == data


@pytest.mark.parametrize(
    ("colour", "depth", "pixel_bits"),
    [(0, 1, 1), (0, 16, 16), (2, 8, 24), (2, 16, 48), (3, 2, 2), (4, 8, 16), (6, 16, 64)],
)
@pytest.mark.parametrize("interlaced", [0, 1])
def test_pixels_may_unfold_into_their_size_and_no_more(
    colour: int, depth: int, pixel_bits: int, interlaced: int
) -> None:
    """Any kind of PNG: one byte less is too little, a padding is let pass, a megabyte is not."""
    width, height = 37, 21
    rows = [(width, height)]
    if interlaced:  # the passes as the specification draws them
        pattern = np.array([list("16462646"), list("77777777"), list("56565656"),
                            list("77777777"), list("36463646"), list("77777777"),
                            list("56565656"), list("77777777")])  # fmt: skip
        whole = np.tile(pattern, (3, 5))[:height, :width]
        masks = [whole == str(number) for number in range(1, 8)]
        rows = [(int(mask.sum(axis=1).max()), int(mask.any(axis=1).sum())) for mask in masks]
    size = sum(lines * (1 + (columns * pixel_bits + 7) // 8) for columns, lines in rows)
    head = header(width, height, depth, colour, interlaced)
    palette = chunk(b"PLTE", bytes(12))
    assert strip(png_file(head, zeros(size), palette)).width == width
    assert strip(png_file(head, zeros(size + 1000), palette)).width == width
    with pytest.raises(Damaged, match="end early"):
        strip(png_file(head, zeros(size - 1), palette))
    with pytest.raises(Damaged, match=f"more than the {size} bytes of its size"):
        strip(png_file(head, zeros(size + (1 << 20)), palette))


def test_a_file_that_unfolds_is_unfolded_no_further_than_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 MiB of zeros in a picture of 3 KiB: what is too much is never made."""
    made = 0
    real = zlib.decompressobj

    class Counting:
        def __init__(self) -> None:
            self._real = real()

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal made
            piece = self._real.decompress(data, most)
            made += len(piece)
            return piece

        eof = property(lambda self: self._real.eof)
        unconsumed_tail = property(lambda self: self._real.unconsumed_tail)

    monkeypatch.setattr("headstart.gateway.protocol.image_files.zlib.decompressobj", Counting)
    with pytest.raises(Damaged):
        strip(png_file(header(32, 32), zeros(64 << 20)))
    assert made < 1 << 18


IHDR = chunk(b"IHDR", header(4, 4))
PIXELS = chunk(b"IDAT", zeros(52))
IEND = chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (IHDR + IHDR + PIXELS + IEND, "one header"),
        (IHDR + chunk(b"IHDR", header(4000, 4000)) + PIXELS + IEND, "one header"),
        (PIXELS + IHDR + IEND, "one header"),
        (chunk(b"IHDR", header(4, 4) + b"x") + PIXELS + IEND, "one header"),
        (chunk(b"IHDR", header(4, 4, 3)) + PIXELS + IEND, "none that PNG has"),
        (chunk(b"IHDR", header(4, 4, 8, 5)) + PIXELS + IEND, "none that PNG has"),
        (chunk(b"IHDR", header(4, 4, 8, 2, 2)) + PIXELS + IEND, "none that PNG has"),
        (IHDR + IEND, "no pixels"),
        (IHDR + PIXELS, "ends early"),
        (IHDR + PIXELS[:-3], "ends early"),
        (IHDR + struct.pack(">I", 2**31) + b"IDAT" + bytes(50), "ends early"),
        (IHDR + chunk(b"IDAT", b"no zlib stream") + IEND, "no zlib stream"),
    ],
)
def test_pngs_that_break_the_rules_are_named(body: bytes, said: str) -> None:
    """Two headers, none, other values, an early end."""
    with pytest.raises(Damaged, match=said):
        strip(PNG_SIGNATURE + body)


def spliced(data: bytes, before: int, extra: bytes) -> bytes:
    at = data.index(bytes([0xFF, before]))
    return data[:at] + extra + data[at:]


LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (spliced(JPEG, 0xC0, segment(0xC0, b"\x08\0\x08\0\x08\x01\x01\x11\0")), "one header"),
        (PROGRESSIVE[:-2] + LAST_SCAN * 200 + b"\xff\xd9", "more than 100 scans"),
        (spliced(JPEG, 0xC0, segment(0xC4, bytes(60_000)) * 9), "bytes of tables"),
        (JPEG.replace(b"\xff\xc0", b"\xff\xc3", 1), "neither a baseline nor a progressive"),
        (JPEG.replace(b"\xff\xc0", b"\xff\xc9", 1), "neither a baseline nor a progressive"),
        (JPEG[:2] + b"\xff\xd0" * 100_001 + JPEG[2:], "markers"),
        (JPEG[:2] + JPEG, "begins twice"),
        (JPEG[:2] + b"\xff\xfe\0\0" + JPEG[2:], "no length"),
        (spliced(JPEG, 0xDB, b"x"), "no marker"),
        (JPEG[:2] + b"\xff\xd9", "no pixels"),
        (JPEG[: JPEG.index(b"\xff\xda")], "ends early"),
    ],
    ids=range(11),
)
def test_jpegs_that_break_the_rules_are_named(data: bytes, said: str) -> None:
    """Two headers, passes without end, other kinds of JPEG, an early end."""
    with pytest.raises(Damaged, match=said):
        strip(data)


@pytest.mark.parametrize("data", [black_png(9, 7, chunk(b"eXIf", exif(3))), JPEG, PROGRESSIVE])
def test_any_damage_is_named_or_harmless(data: bytes) -> None:
    """Cut anywhere, a byte changed anywhere: `Damaged`, or a file of the same kind."""
    broken = [data[:length] for length in range(3, len(data), 11)]
    for at in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[at] ^= 0x81
        broken.append(bytes(flipped))
    for file in broken:
        with contextlib.suppress(Damaged):
            assert kind_of(strip(file).data) == kind_of(data)


def test_a_size_is_told_by_the_first_part_of_a_file() -> None:
    """As much as holds the header; a JPEG's may stand behind others, up to a bound."""
    assert size_of(black_png(9, 7)[:24]) == (9, 7)
    assert size_of(JPEG[: JPEG.index(b"\xff\xc0") + 12]) == (64, 48)
    late = JPEG[:2] + segment(0xFE, b"") * 200 + JPEG[2:]
    assert size_of(late) == (64, 48)
    assert size_of(late, most_markers=100) is None
    assert size_of(b"GIF89a" + bytes(50)) is None
