"""A still in three resolutions: as much of it as a question needs.

A picture that comes without words is a glimpse of 64 tokens. A question raises it to 256, one about
what is written in it to 1,024. Each resolution is encoded once and then taken from a cache. The
lower ones stay in the context: going up adds the picture once more, behind the question's turn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from headstart.engine.api import Image, Span
from headstart.engine.interfaces import Detail, Look, StillPart, View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.clips import (
    PictureFeatures,
    encode_picture,
    intern_picture,
)
from headstart.engine.models.perception.interface import StreamModel, VideoFrame, VisionSpec
from headstart.engine.models.perception.pixels import Rgb, resize
from headstart.engine.vision.encoder_cache import EncoderCache

MAX_SPANS = 64
FLOAT_BYTES = 4
# A session comes back to a few pictures; each takes this many tokens in all resolutions.
CACHED_STILLS = 4


def least_cache_bytes(hidden: int) -> int:
    """Cache size with room for a few pictures in all resolutions."""
    return CACHED_STILLS * sum(Detail) * hidden * FLOAT_BYTES


class StillDetails:
    """`headstart.engine.interfaces.StillEncoder` over a model that takes stills of any size.
    `look_for`: how closely a question asks to look. `clock` is `time.monotonic_ns`."""

    def __init__(
        self,
        model: StreamModel,
        cache: EncoderCache[PictureFeatures],
        look_for: Callable[[str], Look],
        clock: Callable[[], int],
    ) -> None:
        vision = model.spec.vision
        assert vision is not None
        assert has_resolutions(vision)
        self.model, self._vision, self.cache, self._look_for = model, vision, cache, look_for
        self._clock = clock
        self.spans: deque[Span] = deque(maxlen=MAX_SPANS)

    @property
    def cell_pixels(self) -> int:
        """Pixels of a picture that become one token."""
        return self._vision.still.cell_pixels

    def take_spans(self) -> list[Span]:
        taken = list(self.spans)
        self.spans.clear()
        return taken

    def parts_for(
        self, image: Image, words: Sequence[str], domain: bytes, before: Image | None = None
    ) -> tuple[StillPart, ...]:
        """The whole picture, in the resolution for what is said beside, or after, it."""
        return (StillPart(self.detail_for(words)),)

    def detail_for(self, words: Sequence[str]) -> Detail:
        """The resolution for what is said."""
        if not any(text.strip() for text in words):
            return Detail.LOW
        return self._usable(Detail.HIGH if self.asks_to_read(words) else Detail.MEDIUM)

    def asks_to_read(self, words: Sequence[str]) -> bool:
        """Whether it is about what is written."""
        return any(self._look_for(text) is not Look.GLANCE for text in words if text.strip())

    def _usable(self, wanted: Detail) -> Detail:
        """The lowest resolution in which the model takes as many pixels as in the `wanted` one."""
        still = self._vision.still
        most = still.pixels_for(wanted)
        return next(detail for detail in Detail if still.pixels_for(detail) == most)

    def encode(self, image: Image, stream: Stream, part: StillPart) -> View:
        """The picture's tokens in `stream`. Raises an `EngineError`."""
        size = image.width.to_bytes(8, "big") + part.max_tokens.to_bytes(8, "big")
        known_by = blake2b(size + stream.share_domain, digest_size=32).digest()
        key = blake2b(image.rgb, digest_size=16, key=known_by).digest()
        features = self.cache.get(key)
        if features is None:
            began_ns = self._clock()
            features = encode_scaled(
                self.model, pixels_of(image), part.max_tokens, stream.share_domain
            )
            self.spans.append(Span("encode", began_ns, self._clock()))
            self.cache.put(key, features, features_bytes(features))
        text = f"picture {image.width} x {image.height}"
        return view_of(self.model, features, stream, image, text, part)


def has_resolutions(vision: VisionSpec) -> bool:
    """Whether a still may be encoded at any size; tiles have one of their own."""
    return not vision.still.fixed_tokens


def encode_scaled(model: StreamModel, rgb: Rgb, max_tokens: int, domain: bytes) -> PictureFeatures:
    """A picture, uint8 [height, width, 3], in at most about so many tokens, shared within `domain`.
    Raises an `EngineError`."""
    vision = model.spec.vision
    assert vision is not None
    frame = VideoFrame(scaled(rgb, vision, max_tokens), domain=domain)
    return encode_picture(model, frame, live=False)


def features_bytes(features: PictureFeatures) -> int:
    return sum(cells.nbytes for _, cells in features.units)


def view_of(
    model: StreamModel,
    features: PictureFeatures,
    stream: Stream,
    image: Image,
    text: str,
    part: StillPart,
) -> View:
    """A part of `image` as tokens of `stream`, `text` for people."""
    seen = intern_picture(model, stream.soft, features)
    ids = tuple(token for _, run in model.layout.image(seen) for token in run)
    digest = blake2b(image.rgb, digest_size=8).hexdigest()
    key = f"{digest} {part.region} {part.max_tokens}"
    return View(ids, f"{text}, {len(seen)} tokens", key=key)


def pixels_of(image: Image) -> Rgb:
    """uint8 [height, width, 3]."""
    return np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)


def scaled(rgb: Rgb, vision: VisionSpec, max_tokens: int) -> Rgb:
    """A picture with no more pixels than so many tokens show, its aspect kept. It is never
    enlarged."""
    height, width = rgb.shape[:2]
    scale = math.sqrt(vision.still.pixels_for(max_tokens) / (height * width))
    if scale >= 1:
        return rgb
    high, wide = (max(math.floor(side * scale), 1) for side in (height, width))
    return resize(rgb, high, wide).byte().permute(1, 2, 0).contiguous().numpy()
