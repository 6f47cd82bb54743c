"""Decoding of clients' pictures, away from the event loop.

A VGA JPEG takes 5 to 8 ms, a large PNG more than a hundred: `run` decodes on the threads that all
pictures share (`gateway.threads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import av
import numpy as np
from av.video.reformatter import Interpolation

from engine import api
from gateway.media.frames import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH, Thumbnail
from gateway.protocol.errors import ProtocolError
from gateway.protocol.images import decode_image, decode_image_url
from gateway.threads import PICTURES


@dataclass(frozen=True, slots=True)
class Encoded:
    """A picture as it came: `text` is a data URI, or base64 alone with `bare_base64`; `param`: its
    name in errors."""

    text: str
    param: str
    bare_base64: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A picture's pixels, and what frames are compared by."""

    image: api.Image
    thumbnail: Thumbnail


Outcome = tuple[Seen, ...] | ProtocolError


async def run(pictures: Sequence[Encoded], size: api.PictureSize) -> Outcome:
    """`decode` on another thread."""
    return await PICTURES.run(partial(decode, size=size), tuple(pictures))


def decode(pictures: Sequence[Encoded], size: api.PictureSize = api.SMALL_PICTURE) -> Outcome:
    """All pictures, none larger than `size`, or what is wrong with the first that cannot be
    decoded."""
    try:
        return tuple(_decode(picture, size) for picture in pictures)
    except ProtocolError as error:
        return error


def look_at(image: api.Image) -> Seen:
    """An image with its thumbnail."""
    shape = (image.height, image.width, 3)
    frame = av.VideoFrame.from_ndarray(np.frombuffer(image.rgb, np.uint8).reshape(shape), "rgb24")
    small = frame.reformat(
        THUMBNAIL_WIDTH, THUMBNAIL_HEIGHT, format="gray", interpolation=Interpolation.AREA
    )
    return Seen(image, np.asarray(small.to_ndarray(), np.uint8))


def _decode(picture: Encoded, size: api.PictureSize) -> Seen:
    data = decode_image_url(picture.text, param=picture.param, bare_base64=picture.bare_base64)
    pixels = decode_image(data, size, param=picture.param)
    return look_at(api.Image(pixels.width, pixels.height, pixels.rgb))
