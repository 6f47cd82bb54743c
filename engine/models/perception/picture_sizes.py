"""The picture size to send to a model: what its encoder can use, limited so that a conversation
about the picture still fits."""

from __future__ import annotations

from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.engine.models.perception.interface import VisionSpec
from headstart.engine.vision.regions.grid import MOST_A_SIDE, REGION_TOKENS

# Maximum share of a session's context that one still may take.
STILL_SHARE = 0.5


def still_size(
    vision: VisionSpec | None, context_tokens: int, *, by_regions: bool = False
) -> PictureSize:
    """Size for a picture in an item, in sessions of `context_tokens`. `by_regions`: a question sees
    some of its regions only, so the picture may be larger than what the model takes at once."""
    if vision is None:
        return SMALL_PICTURE
    if by_regions:
        return PictureSize(pixels=MOST_A_SIDE**2 * REGION_TOKENS * vision.still.cell_pixels)
    tokens = int(STILL_SHARE * context_tokens)
    return PictureSize(pixels=max(vision.still.pixels_for(tokens), vision.min_pixels))


def frame_size(vision: VisionSpec | None) -> PictureSize:
    """Size for a camera frame."""
    if vision is None:
        return SMALL_PICTURE
    if vision.max_pixels == vision.side_px**2:  # fixed square input
        return PictureSize(short_side=vision.side_px)
    return PictureSize(pixels=vision.max_pixels)
