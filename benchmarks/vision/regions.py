"""The part of `headstart bench tokens` on stills of which only some regions are shown closely.

A picture of 1344 x 896 pixels has a photograph, a face or a sign in each of six regions. Ten
questions are asked about it in one conversation, then again in another; three of them come back to
what was asked before. Pictures, fonts and texts are those of `eyes`, by halves. No weights of a
vision-language model are packaged, so the encoder is one of Qwen2-VL's kind with random weights and
a small width: tokens are exact, times are for comparison.

`regions`, one row for each way to show the picture:

    uniform   every region in 400 tokens, at once
    asked     all of it in 64, 256 or 1,024 tokens, by the question
    regions   sixteen tokens a region, and those that a question is about in 64 to 400

    tokens          that a conversation was shown, mean over pictures
    target_tokens   of the region that a question is about, as it was shown closest by then
    words_read      share of a sign's words that the packaged reader finds in it as it was shown
    found           share of questions whose region was shown in 64 tokens or more
    encoded         tokens that the encoder made, both conversations together
    encode_ms, look_ms   processor time that it took, and that looking for relevance took
    hit_rate        share of what questions needed that was not encoded again, in the first and in
                    the second conversation; `cached` of that came from the cache, the rest was in
                    the context
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from headstart.benchmarks.inputs import photos, signs
from headstart.engine import api
from headstart.engine.interfaces import StillEncoder, StillPart, View
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.perception.clips import PictureFeatures
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.perception.still_details import StillDetails, pixels_of, scaled
from headstart.engine.models.perception.still_regions import (
    FINDINGS_BYTES,
    OVERVIEW_TOKENS,
    StillRegions,
)
from headstart.engine.models.qwen2_vl import Qwen2Vl
from headstart.engine.process.stills import DETECTORS, READING, region_finder
from headstart.engine.session.stills import Stills
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.notes import look_for
from headstart.engine.vision.reading.reader import CLOSELY, TextReader
from headstart.engine.vision.regions.findings import Findings, RegionFinder
from headstart.engine.vision.regions.grid import Grid
from headstart.engine.vision.regions.patch_cache import PatchCache
from headstart.engine.weights import ensure

ROWS, COLUMNS, REGION_PX = 2, 3, 448
PART_PX = 380  # a photograph's longer side in its region
HEIGHTS_PX = (12, 18, 28)  # of the letters' em
SCENES = 6
WINDOW_TOKENS = 1536  # of pictures in the context; older ones are evicted
CACHE_BYTES = 8 << 20
CLOSE_TOKENS = 64
WAYS = ("uniform", "asked", "regions")
PLACES = (
    *("in the upper left corner", "at the top in the middle", "in the upper right corner"),
    *("in the lower left corner", "at the bottom in the middle", "in the lower right corner"),
)
_QWEN2_VL = {
    "model_type": "qwen2_vl",
    "hidden_size": 896,
    "num_hidden_layers": 1,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 1000,
    "max_position_embeddings": 32_768,
    "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
    "vision_config": {"depth": 4, "embed_dim": 320, "num_heads": 4, "hidden_size": 896},
    "vision_start_token_id": 990,
    "vision_end_token_id": 991,
}


@dataclass(frozen=True)
class Scene:
    """A picture, what lies in its regions, and questions with the regions that they are about."""

    image: api.Image
    words: dict[int, tuple[str, ...]]  # of the signs
    questions: tuple[tuple[str, tuple[int, ...]], ...]


def rows(half: str) -> list[dict[str, Any]]:
    """Measure on the scenes of one half. Raises `photos.PhotosMissing`."""
    torch.set_num_threads(1)
    finder = region_finder({name: ensure(name) for name in DETECTORS})
    reader = TextReader.load(ensure(READING))
    model = Qwen2Vl(RandomTensors(torch.float32), Config(Path("random"), dict(_QWEN2_VL)))
    scenes = [scene(half, number) for number in range(SCENES)]
    with torch.inference_mode():
        return [_row(way, scenes, model, finder, reader) for way in WAYS]


# --- scenes --------------------------------------------------------------------------------------


def scene(half: str, number: int) -> Scene:
    """Three photographs of things, a face and two signs, in random places."""
    random = np.random.default_rng([number, signs.HALVES.index(half)])
    things = [p for p in photos.load() if signs.half_of(p.name) == half]
    faces = [picture for _, picture, count in signs.people() if count == 1]
    rgb = np.full((ROWS * REGION_PX, COLUMNS * REGION_PX, 3), random.integers(90, 210), np.uint8)
    places = random.permutation(ROWS * COLUMNS).tolist()
    chosen = _different(things, random)
    for photo, place in zip(chosen, places, strict=False):
        _put(rgb, _fitted(pixels_of(photo.image)), place, random)
    face = places[3]
    _put(rgb, _fitted(pixels_of(faces[signs.HALVES.index(half) % len(faces)])), face, random)
    words = {}
    for place in places[4:]:
        text, panel = _sign(half, random)
        words[place] = signs.words_of(text)
        _put(rgb, panel, place, random)
    one, two, three = (photo.names[0] for photo in chosen)
    asked = (
        ("What is this?", ()),
        ("What does the sign say?", tuple(places[4:])),
        ("Who is the person?", (face,)),
        (f"What colour is the {one}?", (places[0],)),
        (f"How large is the {two}?", (places[1],)),
        (f"What is {PLACES[places[2]]}?", (places[2],)),
        ("Can you read the small print?", tuple(places[4:])),
        (f"Do you like the {three}?", (places[2],)),
        ("Is the person smiling?", (face,)),
        (f"And the {one}, is it old?", (places[0],)),
    )
    return Scene(api.Image(rgb.shape[1], rgb.shape[0], rgb.tobytes()), words, asked)


def _different(things: Sequence[photos.Photo], random: np.random.Generator) -> list[photos.Photo]:
    """Three photographs with different names."""
    kept: list[photos.Photo] = []
    for index in random.permutation(len(things)).tolist():
        if not any(set(things[index].names) & set(other.names) for other in kept):
            kept.append(things[index])
    return kept[:3]


def _sign(half: str, random: np.random.Generator) -> tuple[str, Rgb]:
    listed = photos.fetched(signs.LIST, "font")
    fonts = [p for p, entry in listed if not entry.get("han") and signs.half_of(p.name) == half]
    texts = [text for text in signs.TEXTS if signs.half_of(text) == half]
    text = texts[random.integers(len(texts))]
    colours = signs.PANELS[random.integers(len(signs.PANELS))]
    height = int(random.choice(HEIGHTS_PX))
    return text, signs.panel_of(fonts[random.integers(len(fonts))], text, height, colours)


def _fitted(part: Rgb) -> Rgb:
    scale = PART_PX / max(part.shape[:2])
    size = round(part.shape[1] * scale), round(part.shape[0] * scale)
    return np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)


def _put(rgb: Rgb, part: Rgb, place: int, random: np.random.Generator) -> None:
    part = part[: REGION_PX - 8, : REGION_PX - 8]
    row, column = divmod(place, COLUMNS)
    top, left = (
        start * REGION_PX + int(random.integers(REGION_PX - side + 1))
        for start, side in zip((row, column), part.shape[:2], strict=True)
    )
    rgb[top : top + part.shape[0], left : left + part.shape[1]] = part


# --- conversations -------------------------------------------------------------------------------


class Uniform:
    """Every region in the most tokens, whatever is asked (`StillEncoder`)."""

    def __init__(self, regions: StillRegions) -> None:
        self._regions = regions

    def parts_for(
        self,
        image: api.Image,
        words: Sequence[str],
        domain: bytes,
        before: api.Image | None = None,
    ) -> tuple[StillPart, ...]:
        count = ROWS * COLUMNS
        return tuple(StillPart(400, region + 1, count) for region in range(count))

    def encode(self, image: api.Image, stream: Stream, part: StillPart) -> View:
        return self._regions.encode(image, stream, part)

    def take_spans(self) -> list[api.Span]:
        return self._regions.take_spans()


@dataclass
class Counted:
    """A `StillEncoder` that counts what is shown and what is encoded of `inner`."""

    inner: StillEncoder
    caches: Sequence[Any]
    needed: int = 0
    shown: int = 0
    encoded: int = 0
    encoded_tokens: int = 0
    parts: list[StillPart] = field(default_factory=list)

    def parts_for(
        self,
        image: api.Image,
        words: Sequence[str],
        domain: bytes,
        before: api.Image | None = None,
    ) -> Sequence[StillPart]:
        parts = self.inner.parts_for(image, words, domain, before)
        self.needed += sum(_is_close(part) for part in parts)
        self.parts += [part for part in parts if part not in self.parts]
        return parts

    def encode(self, image: api.Image, stream: Stream, part: StillPart) -> View:
        misses = sum(cache.misses for cache in self.caches)
        view = self.inner.encode(image, stream, part)
        is_encoded = sum(cache.misses for cache in self.caches) > misses
        self.shown += _is_close(part)
        self.encoded += _is_close(part) and is_encoded
        if is_encoded:
            self.encoded_tokens += len(view.ids)
        return view

    def take_spans(self) -> list[api.Span]:
        return self.inner.take_spans()


def _is_close(part: StillPart) -> bool:
    """Whether it is more than an overview."""
    return bool(part.region) or part.max_tokens > OVERVIEW_TOKENS * ROWS * COLUMNS


@dataclass
class Talked:
    """What conversations about one picture came to."""

    tokens: list[int] = field(default_factory=list)
    target_tokens: list[float] = field(default_factory=list)
    read: int = 0
    printed: int = 0
    encoded_tokens: int = 0
    ms: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    needed: list[int] = field(default_factory=list)
    encoded: list[int] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)


def _row(
    way: str, scenes: Sequence[Scene], model: StreamModel, finder: RegionFinder, reader: TextReader
) -> dict[str, Any]:
    all_of = [_talk(way, scene, model, finder, reader) for scene in scenes]
    targets = [tokens for talked in all_of for tokens in talked.target_tokens]

    def hit_rates(number: int) -> float:
        needed = sum(talked.needed[number] for talked in all_of)
        return round(1 - sum(talked.encoded[number] for talked in all_of) / needed, 3)

    def cached(number: int) -> float:
        needed = sum(talked.needed[number] for talked in all_of)
        shown = sum(talked.shown[number] - talked.encoded[number] for talked in all_of)
        return round(shown / needed, 3)

    return {
        "way": way,
        "scenes": len(scenes),
        "tokens": round(statistics.fmean(t for talked in all_of for t in talked.tokens)),
        "target_tokens": round(statistics.fmean(targets)),
        "found": round(statistics.fmean(t >= CLOSE_TOKENS for t in targets), 3),
        "words_read": round(sum(t.read for t in all_of) / sum(t.printed for t in all_of), 3),
        "encoded": round(statistics.fmean(talked.encoded_tokens for talked in all_of)),
        "encode_ms": round(statistics.fmean(talked.ms["encode"] for talked in all_of)),
        "look_ms": round(statistics.fmean(talked.ms["read"] for talked in all_of)),
        "hit_rate": [hit_rates(0), hit_rates(1)],
        "cached": [cached(0), cached(1)],
    }


def _talk(
    way: str, scene: Scene, model: StreamModel, finder: RegionFinder, reader: TextReader
) -> Talked:
    """Two conversations about a picture, by one engine."""
    clock, work = time.monotonic_ns, time.process_time_ns
    whole = StillDetails(
        model, EncoderCache[PictureFeatures](CACHE_BYTES, 1e3, clock), look_for, work
    )
    patches = PatchCache[PictureFeatures](CACHE_BYTES, 1e3, clock)
    known = EncoderCache[Findings](FINDINGS_BYTES, 1e3, clock)
    regions = StillRegions(whole, finder, patches, known, work)
    ways: dict[str, StillEncoder] = {
        "uniform": Uniform(regions),
        "asked": whole,
        "regions": regions,
    }
    talked = Talked()
    for conversation in range(2):
        encoder = Counted(ways[way], (whole.cache, patches))
        stream = Stream(f"{conversation}", BlockPool(64, 16), 1000, 16_384, model.new_positions())
        stills = Stills(encoder, ModelImageEncoder(model), stream, time.monotonic_ns)
        item = api.Item("p", api.Role.USER, (scene.image,))
        context = [stills.view(scene.image, stream, []).ids]
        stills.added(item)
        tokens = len(context[0])
        for question, targets in scene.questions:
            view = stills.closer(question, context)
            if view is not None:
                context.append(view.ids)
                tokens += len(view.ids)
            while len(context) > 1 and sum(map(len, context)) > WINDOW_TOKENS:
                context.pop(0)
            if conversation == 0:
                for target in targets:
                    talked.target_tokens.append(_tokens_of(target, encoder.parts, scene.image))
        if conversation == 0:
            _read(scene, encoder.parts, model, reader, talked)
        for span in stills.take_spans():
            talked.ms[span.stage] += (span.end_ns - span.start_ns) / 1e6
        talked.tokens.append(tokens)
        talked.encoded_tokens += encoder.encoded_tokens
        talked.needed.append(encoder.needed)
        talked.encoded.append(encoder.encoded)
        talked.shown.append(encoder.shown)
    return talked


def _tokens_of(region: int, parts: Sequence[StillPart], image: api.Image) -> float:
    """Tokens of a region in the part that shows it closest."""
    return max((_share(region, part, image) for part in parts), default=0.0)


def _share(region: int, part: StillPart, image: api.Image) -> float:
    grid = Grid.of(image.height, image.width, 28 * 28)
    if not part.region:
        return part.max_tokens / len(grid)
    full = grid.box(part.region - 1).pixels / 28**2
    return min(part.max_tokens, full) if part.region == region + 1 else 0.0


def _read(
    scene: Scene,
    parts: Sequence[StillPart],
    model: StreamModel,
    reader: TextReader,
    talked: Talked,
) -> None:
    """Which of the signs' words can be read in what was shown."""
    vision, rgb = model.spec.vision, pixels_of(scene.image)
    assert vision is not None
    grid = Grid.of(rgb.shape[0], rgb.shape[1], 28 * 28)
    for region, words in scene.words.items():
        talked.printed += len(words)
        best = max(parts, key=lambda part: _share(region, part, scene.image))
        if best.region:
            seen = scaled(grid.box(region).of(rgb), vision, best.max_tokens)
        else:
            whole = scaled(rgb, vision, best.max_tokens)
            small = Grid(whole.shape[0], whole.shape[1], grid.rows, grid.columns)
            seen = small.box(region).of(whole)
        found = reader.read(seen, CLOSELY).text
        talked.read += signs.words_found(words, found)
