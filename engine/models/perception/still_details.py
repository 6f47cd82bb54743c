"""A still in three resolutions: as much of it as a question needs.

A picture that comes without words is a glimpse of 64 tokens. A question raises it to 256, one about
what is written in it to 1,024. Each resolution is encoded once and then taken from a cache. The
lower ones stay in the context: going up adds the picture once more, behind the question's turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from headstart.engine.api import Image
from headstart.engine.chat.render import Modality
from headstart.engine.interfaces import Detail, Look, View
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.interface import StreamModel, VideoFrame, VisionSpec
from headstart.engine.models.perception.pixels import resize
from headstart.engine.vision.encoder_cache import EncoderCache

FLOAT_BYTES = 4
# A session comes back to a few pictures; each takes this many tokens in all resolutions.
CACHED_STILLS = 4


@dataclass(frozen=True, slots=True, eq=False)
class EncodedStill:
    """Embeddings [tokens, hidden], and where each lies in the picture."""

    vectors: npt.NDArray[np.floating]
    positions: tuple[MediaPosition, ...]


def least_cache_bytes(hidden: int) -> int:
    """Cache size with room for a few pictures in all resolutions."""
    return CACHED_STILLS * sum(Detail) * hidden * FLOAT_BYTES


class StillDetails:
    """`headstart.engine.interfaces.StillEncoder` over a model that takes stills like frames.
    `look_for`: how closely a question asks to look."""

    def __init__(
        self,
        model: StreamModel,
        cache: EncoderCache[EncodedStill],
        look_for: Callable[[str], Look],
    ) -> None:
        vision = model.spec.vision
        assert vision is not None
        assert vision.tiled is None
        self._model, self._vision, self.cache, self._look_for = model, vision, cache, look_for

    def detail_for(self, words: Sequence[str]) -> Detail:
        """The resolution for what is said beside, or after, a picture."""
        said = [text for text in words if text.strip()]
        if not said:
            return Detail.LOW
        closely = any(self._look_for(text) is not Look.GLANCE for text in said)
        return self._usable(Detail.HIGH if closely else Detail.MEDIUM)

    def _usable(self, wanted: Detail) -> Detail:
        """The lowest resolution in which the model takes as many pixels as in the `wanted` one."""
        still = self._vision.still
        most = still.pixels_for(wanted)
        return next(detail for detail in Detail if still.pixels_for(detail) == most)

    def encode(self, image: Image, stream: Stream, detail: Detail) -> View:
        """The picture's tokens in `stream`. Raises an `EngineError`."""
        size = image.width.to_bytes(8, "big") + detail.to_bytes(8, "big")
        known_by = blake2b(size + stream.share_domain, digest_size=32).digest()
        key = blake2b(image.rgb, digest_size=16, key=known_by).digest()
        still = self.cache.get(key)
        if still is None:
            still = self._encoded(image, detail, stream.share_domain)
            self.cache.put(key, still, still.vectors.nbytes)
        seen = stream.soft.intern(still.vectors, still.positions)
        ids = tuple(token for _, part in self._model.layout.image(seen) for token in part)
        text = f"picture {image.width} x {image.height}, {len(seen)} tokens"
        digest = blake2b(image.rgb, digest_size=8).hexdigest()
        return View(ids, text, key=f"{digest} {detail}")

    def _encoded(self, image: Image, detail: Detail, domain: bytes) -> EncodedStill:
        model = self._model
        frame = VideoFrame(scaled(image, self._vision, detail), domain=domain)
        units, _ = model.encode_frames([frame], model.open_frames(), True)
        vectors = np.concatenate(
            [model.project(unit.features, Modality.IMAGE).numpy() for unit in units]
        )
        places = [place for unit in units for place in unit.grid]
        positions = tuple(
            MediaPosition(MediaKind.IMAGE, row=row, column=column) for row, column in places
        )
        return EncodedStill(vectors, positions)


def scaled(image: Image, vision: VisionSpec, detail: Detail) -> npt.NDArray[np.uint8]:
    """The picture, uint8 [height, width, 3], with no more pixels than so many tokens show, its
    aspect kept. It is never enlarged."""
    rgb = np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)
    pixels = vision.still.pixels_for(detail)
    scale = math.sqrt(pixels / (image.height * image.width))
    if scale >= 1:
        return rgb
    high, wide = (max(math.floor(side * scale), 1) for side in (image.height, image.width))
    return resize(rgb, high, wide).byte().permute(1, 2, 0).contiguous().numpy()
