"""Pictures as clients send them: a data URI, or the bare base64 of it, of a PNG or a JPEG.

    decode_image_url   text  -> the file's bytes, checked to be what they say
    decode_image       bytes -> pixels, no larger than is asked for

The size is read from the file's header before anything is decoded, so that a small file that
unfolds into a huge picture is refused at no cost. Decoding takes milliseconds: call `decode_image`
off the event loop.
"""

from __future__ import annotations

import io
import math
import struct
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import av
import pybase64
from av.video.reformatter import Interpolation

from engine.api import SMALL_PICTURE, PictureSize
from gateway.protocol import errors
from gateway.protocol.wording import SHOWN_CHARS

ImageKind = Literal["png", "jpeg"]

SUPPORTED: Final = (
    "a data URI of a PNG or JPEG (data:image/png;base64,… or data:image/jpeg;base64,…)"
)
_MEDIA_TYPES: Final[dict[str, ImageKind]] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
}
_DEMUXERS: Final[dict[ImageKind, str]] = {"png": "png_pipe", "jpeg": "jpeg_pipe"}
_PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
# JPEG markers that begin a frame and hold its size: SOF0 … SOF15 without DHT, JPG and DAC.
_JPEG_FRAME_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN_MARKER: Final = 0xDA


@dataclass(frozen=True, slots=True)
class ImageLimits:
    max_bytes: int = 10 << 20
    max_pixels: int = 40_000_000
    max_side: int = 16_384  # keeps a picture one pixel high from staying huge when scaled


class Picture(NamedTuple):
    """`rgb` holds height * width * 3 bytes, rows from the top."""

    width: int
    height: int
    rgb: bytes


DEFAULT_LIMITS: Final = ImageLimits()


def decode_image_url(
    url: str,
    limits: ImageLimits = DEFAULT_LIMITS,
    *,
    param: str,
    bare_base64: bool = False,
) -> bytes:
    """The bytes of a data URI; with `bare_base64` (`input_image_buffer.append`) also without its
    head. Raises `ProtocolError` naming `param`: not such a URI, another format, empty, too big."""
    head, comma, payload = url.partition(",")
    declared: ImageKind | None = None
    if not comma and bare_base64:
        payload = url
    else:
        declared = _declared_kind(head if comma else url, param)
    if len(payload) // 4 * 3 > limits.max_bytes + 2:  # two bytes at most are padding
        raise errors.invalid_image(param, f"Expected at most {limits.max_bytes} bytes of image.")
    try:
        data = pybase64.b64decode(payload, validate=True)
    except ValueError:  # binascii.Error, also for text that is not ASCII
        raise errors.invalid_image(
            param, "Expected base64-encoded image bytes but got an invalid value."
        ) from None
    found = _kind_of(data)
    if found is None or (declared is not None and declared != found):
        wanted = declared.upper() if declared is not None else "PNG or JPEG"
        got = found.upper() if found is not None else "something else" if data else "empty bytes"
        raise errors.invalid_image(param, f"Expected the bytes of a {wanted} but got {got}.")
    return data


def decode_image(
    data: bytes,
    size: PictureSize = SMALL_PICTURE,
    limits: ImageLimits = DEFAULT_LIMITS,
    *,
    param: str = "image",
) -> Picture:
    """Pixels, scaled down to `size`; the shape is kept.

    Raises `ProtocolError` naming `param`: no PNG or JPEG, too many pixels, damaged.
    """
    kind = _kind_of(data)
    found = _png_size(data) if kind == "png" else _jpeg_size(data) if kind == "jpeg" else None
    if kind is None or found is None or 0 in found:
        raise errors.invalid_image(param, "Expected a PNG or JPEG but found no picture in it.")
    width, height = found
    if width * height > limits.max_pixels or max(found) > limits.max_side:
        raise errors.invalid_image(
            param,
            f"Expected at most {limits.max_pixels} pixels and {limits.max_side} a side "
            f"but got {width}x{height}.",
        )
    out_width, out_height = fit(width, height, size)
    try:
        frame = _decode_frame(data, kind, limits)
        scaled = frame.reformat(
            out_width, out_height, format="rgb24", interpolation=Interpolation.AREA
        )
        rgb = scaled.to_ndarray().tobytes()
    except (av.error.FFmpegError, ValueError) as error:
        reason = error.strerror if isinstance(error, av.error.FFmpegError) else error
        raise errors.invalid_image(
            param, f"The {kind.upper()} is damaged and could not be decoded ({reason})."
        ) from None
    return Picture(out_width, out_height, rgb)


def _declared_kind(head: str, param: str) -> ImageKind:
    """What the URI says it is: `data:image/png;base64`, letter case aside."""
    scheme, _, rest = head.lower().partition(":")
    media_type, *attributes = rest.split(";")
    if scheme != "data" or not attributes or attributes[-1].strip() != "base64":
        got = "a URL" if scheme in ("http", "https") else "something else"
        raise errors.invalid_image(param, f"Expected {SUPPORTED} but got {got}.")
    kind = _MEDIA_TYPES.get(media_type.strip())
    if kind is None:
        got = media_type[:SHOWN_CHARS]
        raise errors.invalid_image(param, f"Expected {SUPPORTED} but got '{got}'.")
    return kind


def _kind_of(data: bytes) -> ImageKind | None:
    if data.startswith(_PNG_SIGNATURE):
        return "png"
    return "jpeg" if data.startswith(_JPEG_SIGNATURE) else None


def _png_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the IHDR chunk, which comes first."""
    if len(data) < 24 or data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the frame header: walk the segments up to it."""
    position = 2
    while position + 9 <= len(data):
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
        elif marker in _JPEG_FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        elif marker == _JPEG_SCAN_MARKER:
            return None
        else:
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return None


def fit(width: int, height: int, size: PictureSize) -> tuple[int, int]:
    """The largest size that is no larger than `size` nor than the picture, its shape kept."""
    shorter = min(width, height)
    if 0 < size.short_side < shorter:
        width = max(1, round(width * size.short_side / shorter))
        height = max(1, round(height * size.short_side / shorter))
    if 0 < size.pixels < width * height:
        scale = math.sqrt(size.pixels / (width * height))
        width, height = max(1, int(width * scale)), max(1, int(height * scale))
    return width, height


def within(size: PictureSize, pixels: int) -> PictureSize:
    """What is neither larger than `size` nor than so many pixels."""
    return PictureSize(size.short_side, min(size.pixels or pixels, pixels))


def _decode_frame(data: bytes, kind: ImageKind, limits: ImageLimits) -> av.VideoFrame:
    """The picture at its own size. Raises FFmpegError, or ValueError if there is none."""
    options = {
        "err_detect": "explode",  # a damaged picture is refused, not patched up
        "max_pixels": str(limits.max_pixels),  # whatever a second header in the file may say
    }
    source = io.BytesIO(data)
    with av.open(source, "r", format=_DEMUXERS[kind], options=options) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1  # the other cores have sessions to serve
        stream.codec_context.options = options
        for frame in container.decode(stream):
            return frame
    raise ValueError("it holds no picture")
