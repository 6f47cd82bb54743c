"""How large a picture is worth sending to a model: what its eyes make use of, and no more than
leaves room for a conversation about it."""

from __future__ import annotations

from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.engine.models.perception.interface import VisionSpec

# One still may fill about this part of what a session remembers.
STILL_SHARE = 0.5


def still_size(vision: VisionSpec | None, context_tokens: int) -> PictureSize:
    """Of a picture in an item, in sessions of so many tokens."""
    if vision is None:
        return SMALL_PICTURE
    tokens = int(STILL_SHARE * context_tokens)
    return PictureSize(pixels=max(vision.still.pixels_for(tokens), vision.min_pixels))


def frame_size(vision: VisionSpec | None) -> PictureSize:
    """Of a camera's frame."""
    if vision is None:
        return SMALL_PICTURE
    if vision.max_pixels == vision.side_px**2:  # it is squeezed into a square
        return PictureSize(short_side=vision.side_px)
    return PictureSize(pixels=vision.max_pixels)
