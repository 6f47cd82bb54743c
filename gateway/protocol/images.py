"""Decodes clients' images: a data URI, or bare base64, of a PNG or a JPEG.

    decode_image_url   text  -> the file's bytes, checked to be what they claim
    decode_image       bytes -> pixels, at most the requested size, upright, on white

The size is read from the file's header before decoding, so that a small file that decompresses to a
huge image is refused at no cost. The decoder gets only what the pixels need (`image_files`).
Decoding takes milliseconds: call `decode_image` off the event loop, and for untrusted files in
another process (`headstart.gateway.video.decode_pool`). Each `reformat` is told `threads=1`, for
PyAV's default starts a pool of as many threads as there are cores, for one picture.

"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import av
import numpy as np
import numpy.typing as npt
import pybase64
from av.video.reformatter import Interpolation

from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.frame_pixels import to_screen
from headstart.gateway.protocol.image_files import ImageKind, Stripped, kind_of, size_of, strip
from headstart.gateway.protocol.orientation import upright
from headstart.gateway.protocol.wording import SHOWN_CHARS

SUPPORTED: Final = (
    "a data URI of a PNG or JPEG (data:image/png;base64,… or data:image/jpeg;base64,…)"
)
_MEDIA_TYPES: Final[dict[str, ImageKind]] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
}
_DECODERS: Final[dict[ImageKind, str]] = {"png": "png", "jpeg": "mjpeg"}


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What is decoded of a client; a larger file is refused by its header."""

    max_bytes: int = 10 << 20
    max_pixels: int = 40_000_000
    max_side: int = 16_384  # keeps an image one pixel high from staying huge after scaling


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
    prefix. Raises `ProtocolError` naming `param`: not such a URI, another format, empty, too large.
    """
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
    found = kind_of(data)
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
    """Pixels, scaled down to `size`, keeping the aspect ratio.

    Raises `ProtocolError` naming `param`: no PNG or JPEG, too many pixels, damaged.

    """
    kind, found = kind_of(data), size_of(data)
    if kind is None or found is None or 0 in found:
        raise errors.invalid_image(param, "Expected a PNG or JPEG but found no picture in it.")
    width, height = found
    if width * height > limits.max_pixels or max(found) > limits.max_side:
        raise errors.invalid_image(
            param,
            f"Expected at most {limits.max_pixels} pixels and {limits.max_side} a side "
            f"but got {width}x{height}.",
        )
    try:
        file = strip(data)
        pixels = _pixels(file, size, limits)
    except MemoryError:
        raise errors.invalid_image(
            param, f"The {kind.upper()} takes more memory than a picture may."
        ) from None
    except (av.error.FFmpegError, ValueError) as error:
        reason = error.strerror if isinstance(error, av.error.FFmpegError) else str(error)
        raise errors.invalid_image(
            param, f"The {kind.upper()} is damaged and could not be decoded ({reason})."
        ) from None
    return Picture(pixels.shape[1], pixels.shape[0], pixels.tobytes())


def _pixels(file: Stripped, size: PictureSize, limits: ImageLimits) -> npt.NDArray[np.uint8]:
    """[height, width, 3], upright, without transparency, of standard range."""
    frame = _decode_frame(file, limits)
    width, height = fit(frame.width, frame.height, size)
    if file.kind == "png":
        return upright(to_screen(frame, width, height), file.orientation)
    scaled = frame.reformat(  # a JPEG's fourth component is ink, not transparency
        width, height, format="rgb24", interpolation=Interpolation.AREA, threads=1
    )
    return upright(np.asarray(scaled.to_ndarray(), np.uint8), file.orientation)


def _declared_kind(head: str, param: str) -> ImageKind:
    """The format named in the URI: `data:image/png;base64`, ignoring case."""
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


def fit(width: int, height: int, size: PictureSize) -> tuple[int, int]:
    """The largest size within `size` and the image's own, keeping the aspect ratio."""
    shorter = min(width, height)
    if 0 < size.short_side < shorter:
        width = max(1, round(width * size.short_side / shorter))
        height = max(1, round(height * size.short_side / shorter))
    if 0 < size.pixels < width * height:
        scale = math.sqrt(size.pixels / (width * height))
        width, height = max(1, int(width * scale)), max(1, int(height * scale))
    return width, height


def within(size: PictureSize, pixels: int) -> PictureSize:
    """The largest size within `size` that has at most that many pixels."""
    return PictureSize(size.short_side, min(size.pixels or pixels, pixels))


def scaled(size: PictureSize, share: float) -> PictureSize:
    """A size with its sides that much shorter, `share` of 0 to 1; unlimited ones stay so."""
    assert 0 < share <= 1
    side = max(1, round(size.short_side * share)) if size.short_side else 0
    pixels = max(1, int(size.pixels * share**2)) if size.pixels else 0
    return PictureSize(side, pixels)


def _decode_frame(file: Stripped, limits: ImageLimits) -> av.VideoFrame:
    """The image at its own size. Raises FFmpegError, or ValueError if there is none. Goes straight
    to the decoder: a demuxer would inspect the file again and look for more images in it."""
    context = av.CodecContext.create(_DECODERS[file.kind], "r")
    assert isinstance(context, av.VideoCodecContext)
    context.thread_count = 1  # the other cores serve sessions
    context.options = {
        "err_detect": "explode",  # refuse a damaged image instead of repairing it
        # The header was checked, and is the only one; FFmpeg also counts its padding.
        "max_pixels": str(2 * limits.max_pixels),
    }
    for frame in itertools.chain(context.decode(av.Packet(file.data)), context.decode(None)):
        return frame
    raise ValueError("it holds no picture")
