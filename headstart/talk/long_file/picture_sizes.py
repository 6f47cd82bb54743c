"""How large a part's pictures are shown to a model that makes tokens of their pixels.

    tokens that the server counted ─▶ PictureSizes: the longer side that fits ─▶ pictures, scaled

The pictures of a part share a budget of tokens, so a few slides are shown in full and a lively part
in smaller pictures. Nothing is known of the model but what its server counts: one that takes the
same tokens for any size keeps the largest.

"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np

from headstart.gateway.protocol.frame_pixels import Rgb
from headstart.talk.long_file.video_reader import SIDE_PX, Picture
from headstart.talk.media.frame_image import to_jpeg

SIDES_PX = (SIDE_PX, 768, 560, 448, 336, 224)
"""Of a picture's longer side, from the largest on."""
PICTURE_TOKENS = 256
"""Of one of so many pictures as a part has on average."""


class PictureSizes:
    """For the parts of one recording, in order. `part_tokens`: of a part's pictures together."""

    def __init__(self, part_tokens: int) -> None:
        self._part_tokens = part_tokens
        self._counted: dict[int, float] = {}  # tokens of a picture, by its side
        self._sides_px: tuple[int, ...] = SIDES_PX

    def observe(self, side_px: int, tokens: float) -> None:
        """The server counted so many tokens for a picture whose longer side is `side_px`."""
        self._counted[side_px] = tokens

    def refuse(self, side_px: int) -> bool:
        """The model cannot read a part's pictures of that size: none is as large again. False if
        there is no smaller size."""
        smaller = tuple(side for side in self._sides_px if side < side_px)
        self._sides_px = smaller or self._sides_px
        return bool(smaller)

    def side_px(self, pictures: int) -> int:
        """The largest side with which so many pictures are within the budget. If none is, the
        largest of those that take the fewest tokens."""
        tokens = {side: self._tokens(side) for side in self._sides_px}
        room = max(self._part_tokens / max(pictures, 1), min(tokens.values()))
        return next(side for side, expected in tokens.items() if expected <= room)

    def _tokens(self, side_px: int) -> float:
        """Of one picture, by its pixels between what was counted; no picture of the recording is
        larger than the first one."""
        known = sorted(self._counted)
        sides, counts = [0, *known], [0.0, *(self._counted[side] for side in known)]
        return float(np.interp(side_px**2, np.square(sides), counts))


def fitted(pictures: Sequence[Picture], side_px: int) -> list[Picture]:
    """The pictures with a longer side of at most `side_px`; smaller ones as they are."""
    if side_px >= SIDE_PX:
        return list(pictures)
    return [replace(picture, jpeg=_scaled(picture.jpeg, side_px)) for picture in pictures]


def longer_side_px(shown: Picture) -> int:
    """Of a picture as it is sent."""
    height, width = _decoded(shown.jpeg).shape[:2]
    return int(max(height, width))


def _decoded(jpeg: bytes) -> Rgb:
    """The pictures are our own JPEGs (`to_jpeg`), so they can be decoded."""
    bgr = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert bgr is not None
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8)


def _scaled(jpeg: bytes, side_px: int) -> bytes:
    rgb = _decoded(jpeg)
    height, width = rgb.shape[:2]
    scale = side_px / max(height, width)
    if scale >= 1:
        return jpeg
    size = (max(2, round(width * scale)), max(2, round(height * scale)))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    return to_jpeg(np.asarray(small, np.uint8))
