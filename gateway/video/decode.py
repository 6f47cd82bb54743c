"""Decodes clients' images: from base64 text to pixels, a thumbnail and, if wanted, scores.

A VGA JPEG takes 5 to 8 ms, the most expensive image some seconds, so the server runs `decode` in
another process (`headstart.gateway.video.decode_pool`).

"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import av
import numpy as np
import numpy.typing as npt
import pybase64
from av.video.reformatter import Interpolation

from headstart.engine import api
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.image_files import size_of
from headstart.gateway.protocol.images import decode_image, decode_image_url
from headstart.gateway.video.sampling import (
    THUMBNAIL_HEIGHT,
    THUMBNAIL_WIDTH,
    FrameScores,
    Thumbnail,
)

SMALL_CHARS = 1 << 20
SMALL_PIXELS = 4_000_000
SMALL_HEAD_CHARS = 1 << 17
SMALL_MARKERS = 100
"""JPEG markers read, on the loop, to find an image's size. A JPEG with more does not count as
small."""
MAX_PREFIX_CHARS = 64


@dataclass(frozen=True, slots=True)
class Encoded:
    """An image as received: `text` is a data URI, or base64 alone with `bare_base64`; `param`: its
    name in errors. `before`: the `FrameScores.pixels` that it is to be scored against, empty if it
    is the first; None: no scores are wanted."""

    text: str
    param: str
    bare_base64: bool = False
    before: bytes | None = None


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """A decoded image, with the thumbnail by which frames are compared, and the scores that were
    asked for."""

    image: api.Image
    thumbnail: Thumbnail
    scores: FrameScores | None = None


Outcome = tuple[DecodedImage, ...] | ProtocolError


def decode(pictures: Sequence[Encoded], size: api.PictureSize = api.SMALL_PICTURE) -> Outcome:
    """All images, each scaled to at most `size`, or the error of the first one that cannot be
    decoded."""
    try:
        return tuple(_decode(picture, size) for picture in pictures)
    except ProtocolError as error:
        # The traceback's frames hold the file, and an error stored in one of them would keep both
        # alive until garbage collection.
        error.__traceback__ = error.__context__ = None
        return error


def is_small(picture: Encoded) -> bool:
    """Whether it surely takes at most some tenths of a second to decode: few bytes, and few pixels
    according to its header."""
    if len(picture.text) > SMALL_CHARS:
        return False
    head = picture.text[: SMALL_HEAD_CHARS + MAX_PREFIX_CHARS].rpartition(",")[2]
    try:
        size = size_of(pybase64.b64decode(head[: len(head) // 4 * 4]), SMALL_MARKERS)
    except ValueError:  # it will be refused, which costs little
        return True
    return size is not None and size[0] * size[1] <= SMALL_PIXELS


def add_thumbnail(image: api.Image, before: bytes | None = None) -> DecodedImage:
    """An image with its thumbnail and, unless `before` is None (see `Encoded`), its scores."""
    rgb = np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)
    frame = av.VideoFrame.from_ndarray(rgb, "rgb24")
    small = frame.reformat(
        THUMBNAIL_WIDTH,
        THUMBNAIL_HEIGHT,
        format="gray",
        interpolation=Interpolation.AREA,
        threads=1,
    )
    return DecodedImage(image, np.asarray(small.to_ndarray(), np.uint8), _scores(rgb, before))


def _scores(rgb: npt.NDArray[np.uint8], before: bytes | None) -> FrameScores | None:
    if before is None:
        return None
    # Loads OpenCV, which processes that never score a frame do without.
    from headstart.gateway.video import scores

    return scores.score(rgb, before)


def _decode(picture: Encoded, size: api.PictureSize) -> DecodedImage:
    data = decode_image_url(picture.text, param=picture.param, bare_base64=picture.bare_base64)
    pixels = decode_image(data, size, param=picture.param)
    return add_thumbnail(api.Image(pixels.width, pixels.height, pixels.rgb), picture.before)
