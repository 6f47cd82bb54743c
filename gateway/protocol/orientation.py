"""Image orientation, from the metadata that cameras and phones write.

Orientations are Exif's, 1 to 8 (TIFF 6.0, tag 274): 1 is upright, 2 to 4 are mirrored or rotated by
180 degrees, 5 to 8 swap width and height.

"""

from __future__ import annotations

import struct
from typing import Any, Final

import av
import numpy as np
import numpy.typing as npt
from av.sidedata.sidedata import Type as SideData

UPRIGHT: Final = 1
EXIF_PREFIX: Final = b"Exif\0\0"
"""Before the TIFF structure in a JPEG's APP1 segment, and in some PNGs' eXIf chunks."""

_ORIENTATION_TAG: Final = 274
_SHORT: Final = 3
_ENTRY_BYTES: Final = 12
_MATRIX_BYTES: Final = 36
# By the signs of a, b, c, d: (x, y) is shown at (a x + c y, b x + d y), y pointing down.
_BY_SIGNS: Final = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}


def of_exif(exif: bytes) -> int:
    """The orientation in an Exif block, with or without its prefix; `UPRIGHT` if it has none or is
    damaged, as viewers do."""
    tiff = exif.removeprefix(EXIF_PREFIX)
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return UPRIGHT
    try:
        (first,) = struct.unpack_from(f"{order}I", tiff, 4)
        (entries,) = struct.unpack_from(f"{order}H", tiff, first)
        for index in range(entries):
            at = first + 2 + index * _ENTRY_BYTES
            tag, kind, count, value = struct.unpack_from(f"{order}HHIH", tiff, at)
            if tag == _ORIENTATION_TAG and kind == _SHORT and count == 1:
                return value if 1 <= value <= 8 else UPRIGHT
    except struct.error:  # it ends early
        pass
    return UPRIGHT


def of_matrix(matrix: bytes) -> int:
    """The orientation of a display matrix (FFmpeg's `AV_FRAME_DATA_DISPLAYMATRIX`: nine int32 in
    the machine's byte order); other angles are rounded to the nearest right angle."""
    if len(matrix) < _MATRIX_BYTES:
        return UPRIGHT
    a, b, _, c, d = struct.unpack_from("=5i", matrix)
    if abs(a) + abs(d) >= abs(b) + abs(c):
        b = c = 0
    else:
        a = d = 0
    return _BY_SIGNS.get((_sign(a), _sign(b), _sign(c), _sign(d)), UPRIGHT)


def of_frame(frame: av.VideoFrame) -> int:
    """The orientation of a decoded video frame."""
    matrix = frame.side_data.get(SideData.DISPLAYMATRIX)  # type: ignore[call-overload]
    return UPRIGHT if matrix is None else of_matrix(bytes(matrix))


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def upright(pixels: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """[height, width, ...] in upright orientation; a view."""
    match orientation:
        case 2:
            return np.flip(pixels, 1)
        case 3:
            return np.rot90(pixels, 2)
        case 4:
            return np.flip(pixels, 0)
        case 5:
            return np.swapaxes(pixels, 0, 1)
        case 6:
            return np.rot90(pixels, -1)
        case 7:
            return np.swapaxes(np.rot90(pixels, 2), 0, 1)
        case 8:
            return np.rot90(pixels, 1)
    return pixels
