"""A still of which the regions that a question is about are shown in more tokens than the rest.

First comes an overview, sixteen tokens a region. A question adds the regions that it is about, each
as a picture of its own, with positions that count from its own corner: the model knows pictures of
any size, but none whose cells differ in size. Each costs its encoding once, then it comes from a
cache; it is known by its pixels, so a region that is the same in the next picture is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from headstart.engine import api
from headstart.engine.api import Image
from headstart.engine.interfaces import StillPart, View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.clips import PictureFeatures
from headstart.engine.models.perception.still_details import (
    StillDetails,
    encode_scaled,
    features_bytes,
    pixels_of,
    view_of,
)
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.regions.findings import Findings, RegionFinder
from headstart.engine.vision.regions.grid import Grid
from headstart.engine.vision.regions.patch_cache import PatchCache
from headstart.engine.vision.regions.relevance import tokens_by_region

OVERVIEW_TOKENS = 16
"""Of a region in the overview."""
FINDINGS_BYTES = 1 << 14
"""What is found in one picture, about."""


class StillRegions:
    """`headstart.engine.interfaces.StillEncoder`. `whole` shows whole pictures; it decides alone on
    pictures that are one region, and on questions that are about no region in particular.
    `patches`: encoded regions. `findings`: what was found in pictures."""

    def __init__(
        self,
        whole: StillDetails,
        finder: RegionFinder,
        patches: PatchCache[PictureFeatures],
        findings: EncoderCache[Findings],
        clock: Callable[[], int],
    ) -> None:
        self._whole, self._finder, self.patches, self._findings = whole, finder, patches, findings
        self._clock = clock
        self._cell_pixels = whole.cell_pixels

    def take_spans(self) -> list[api.Span]:
        return self._whole.take_spans()

    def parts_for(
        self, image: Image, words: Sequence[str], domain: bytes, before: Image | None = None
    ) -> tuple[StillPart, ...]:
        """The overview, and what the words are about."""
        grid = Grid.of(image.height, image.width, self._cell_pixels)
        if len(grid) == 1:
            return self._whole.parts_for(image, words, domain, before)
        overview = StillPart(OVERVIEW_TOKENS * len(grid))
        said = " ".join(text for text in words if text.strip())
        if not said:
            return (overview,)
        began_ns = self._clock()
        found = self._found(image, grid, domain)
        earlier = None if before is None else pixels_of(before)
        given = tokens_by_region(
            said,
            pixels_of(image),
            found,
            self._finder,
            self._cell_pixels,
            before=earlier,
            writing=self._whole.asks_to_read(words),
        )
        self._whole.spans.append(api.Span("read", began_ns, self._clock()))
        if not given:
            return self._whole.parts_for(image, words, domain, before)
        parts = [StillPart(given[n], n + 1, len(grid)) for n in sorted(given)]
        for part in parts:
            self.patches.ask(self._key(image, part, domain))
        return (overview, *parts)

    def encode(self, image: Image, stream: Stream, part: StillPart) -> View:
        """The part's tokens in `stream`. Raises an `EngineError`."""
        if not part.region:
            return self._whole.encode(image, stream, part)
        key = self._key(image, part, stream.share_domain)
        features = self.patches.get(key)
        if features is None:
            began_ns = self._clock()
            features = encode_scaled(
                self._whole.model,
                self._cut_out(image, part),
                part.max_tokens,
                stream.share_domain,
            )
            self._whole.spans.append(api.Span("encode", began_ns, self._clock()))
            self.patches.put(key, features, features_bytes(features))
        text = f"region {part.region} of {part.regions} of a picture {image.width} x {image.height}"
        return view_of(self._whole.model, features, stream, image, text, part)

    def _found(self, image: Image, grid: Grid, domain: bytes) -> Findings:
        """What is known of a picture; more is added to it."""
        key = _digest(image.rgb, domain, image.width)
        found = self._findings.get(key)
        if found is None:
            found = Findings(grid)
            self._findings.put(key, found, FINDINGS_BYTES)
        return found

    def _key(self, image: Image, part: StillPart, domain: bytes) -> bytes:
        pixels = self._cut_out(image, part)
        return _digest(pixels.data, domain, pixels.shape[1], part.max_tokens)

    def _cut_out(self, image: Image, part: StillPart) -> Rgb:
        grid = Grid.of(image.height, image.width, self._cell_pixels)
        return grid.box(part.region - 1).of(pixels_of(image))


def _digest(pixels: bytes | memoryview, domain: bytes, *sizes: int) -> bytes:
    known_by = b"".join(size.to_bytes(8, "big") for size in sizes) + domain
    key = blake2b(known_by, digest_size=32).digest()
    return blake2b(pixels, digest_size=16, key=key).digest()
