"""The picture size to send to a model: what its encoder can use, limited so that a conversation
about the picture still fits."""

from __future__ import annotations

from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.engine.models.perception.interface import VisionSpec

# Maximum share of a session's context that one still may take.
STILL_SHARE = 0.5


def still_size(vision: VisionSpec | None, context_tokens: int) -> PictureSize:
    """Size for a picture in an item, in sessions of `context_tokens`."""
    if vision is None:
        return SMALL_PICTURE
    tokens = int(STILL_SHARE * context_tokens)
    return PictureSize(pixels=max(vision.still.pixels_for(tokens), vision.min_pixels))


def frame_size(vision: VisionSpec | None) -> PictureSize:
    """Size for a camera frame."""
    if vision is None:
        return SMALL_PICTURE
    if vision.max_pixels == vision.side_px**2:  # fixed square input
        return PictureSize(short_side=vision.side_px)
    return PictureSize(pixels=vision.max_pixels)
