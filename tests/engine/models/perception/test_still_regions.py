"""A still of which some regions are shown closely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.engine import api
from headstart.engine.interfaces import Look, StillPart
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.clips import PictureFeatures
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.perception.still_details import StillDetails
from headstart.engine.models.perception.still_regions import FINDINGS_BYTES, StillRegions
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.regions.findings import Findings, RegionFinder
from headstart.engine.vision.regions.grid import Grid
from headstart.engine.vision.regions.patch_cache import PatchCache
from tests.engine.models import twins

MAKERS = {"qwen2_vl": twins.qwen2_vl, "qwen2_5_vl": twins.qwen2_5_vl, "pixtral": twins.pixtral}


@pytest.fixture(scope="module", params=MAKERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StreamModel:
    folder: Path = twins.save(MAKERS[request.param](), tmp_path_factory.mktemp(request.param))
    return load(folder, Loading(torch.float32))


def stills_of(model: StreamModel, room: int = 1 << 24) -> StillRegions:
    """Without detectors: regions are known by place, and by what has changed."""
    whole = StillDetails(
        model,
        EncoderCache[PictureFeatures](room, 100.0, lambda: 0),
        lambda text: Look.WRITING if "read" in text else Look.GLANCE,
        lambda: 0,
    )
    patches = PatchCache[PictureFeatures](room, 100.0, lambda: 0)
    known = EncoderCache[Findings](4 * FINDINGS_BYTES, 100.0, lambda: 0)
    return StillRegions(whole, RegionFinder(), patches, known, lambda: 0)


def stream_of(model: StreamModel, domain: bytes = b"") -> Stream:
    stream = Stream("s", BlockPool(100, 16), 200, 4_000, model.new_positions())
    stream.share_within(domain)
    return stream


def picture_for(model: StreamModel, rows: int = 2, columns: int = 2) -> api.Image:
    """Of so many regions."""
    vision = model.spec.vision
    assert vision is not None
    side = round((256 * vision.still.cell_pixels) ** 0.5)
    rgb = np.random.default_rng(3).integers(0, 256, (rows * side, columns * side, 3), np.uint8)
    return api.Image(columns * side, rows * side, rgb.tobytes())


def pixels(image: api.Image) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3).copy()


def as_image(rgb: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> api.Image:
    return api.Image(rgb.shape[1], rgb.shape[0], rgb.tobytes())


ON_THE_LEFT = "What is in the upper left corner?"


def test_an_overview_comes_first(model: StreamModel) -> None:
    """Sixteen tokens a region; a question adds those that it is about."""
    stills, image = stills_of(model), picture_for(model)
    assert stills.parts_for(image, [" "], b"") == (StillPart(64),)
    asked = stills.parts_for(image, [ON_THE_LEFT], b"")
    assert asked == (StillPart(64), StillPart(400, 1, 4))


def test_a_region_is_seen_like_a_picture_of_its_own(model: StreamModel) -> None:
    """Its tokens and their places are what the model's own encoder gives for these pixels."""
    vision = model.spec.vision
    assert vision is not None
    stills, image, stream = stills_of(model), picture_for(model), stream_of(model)
    grid = Grid.of(image.height, image.width, vision.still.cell_pixels)
    box = grid.box(3)
    assert box.pixels <= 400 * vision.still.cell_pixels
    view = stills.encode(image, stream, StillPart(400, 4, 4))
    own = ModelImageEncoder(model).encode_image(as_image(box.of(pixels(image))), stream)
    assert view.ids == own.ids
    assert "region 4 of 4" in view.text


def test_a_region_is_encoded_once(model: StreamModel) -> None:
    """In each number of tokens, for all sessions of a domain, also if it comes in another picture
    whose other regions differ."""
    stills, image = stills_of(model), picture_for(model)
    part = StillPart(64, 1, 4)
    first = stills.encode(image, stream_of(model), part)
    changed = pixels(image)
    changed[-20:, -20:] = 0
    again = stills.encode(as_image(changed), stream_of(model), part)
    assert first.ids == again.ids
    assert (stills.patches.misses, stills.patches.hits) == (1, 1)
    stills.encode(as_image(changed), stream_of(model), StillPart(64, 4, 4))
    stills.encode(image, stream_of(model), StillPart(144, 1, 4))
    stills.encode(image, stream_of(model, b"another"), part)
    assert (stills.patches.misses, stills.patches.hits) == (4, 1)
    assert [span.stage for span in stills.take_spans()] == ["encode"] * 4
    assert stills.take_spans() == []


def test_questions_are_counted(model: StreamModel) -> None:
    """What is asked about again stays in a cache that is too small for all."""
    image = picture_for(model)
    one = stills_of(model)
    one.encode(image, stream_of(model), StillPart(400, 1, 4))
    stills = stills_of(model, one.patches.size_bytes * 2)
    stills.encode(image, stream_of(model), StillPart(400, 1, 4))
    for _ in range(2):
        stills.parts_for(image, [ON_THE_LEFT], b"")
    for region in (2, 3, 4):
        stills.encode(image, stream_of(model), StillPart(400, region, 4))
    assert stills.patches.evicted == 2
    misses = stills.patches.misses
    stills.encode(image, stream_of(model), StillPart(400, 1, 4))
    assert stills.patches.misses == misses


def test_what_changed_since_the_last_picture_is_shown(model: StreamModel) -> None:
    """By comparison with the picture before."""
    stills, image = stills_of(model), picture_for(model)
    changed = pixels(image)
    changed[: image.height // 4, -image.width // 4 :] = 0
    parts = stills.parts_for(as_image(changed), ["What has changed?"], b"", image)
    assert parts[1:] == (StillPart(256, 2, 4),)


def test_a_small_picture_and_a_general_question_are_about_all_of_it(model: StreamModel) -> None:
    """As without regions: the resolution is chosen by the question."""
    stills, image = stills_of(model), picture_for(model)
    whole = stills.parts_for(image, ["Can you read it?"], b"")
    assert [part.region for part in whole] == [0]
    small = picture_for(model, 1, 1)
    assert [part.region for part in stills.parts_for(small, [ON_THE_LEFT], b"")] == [0]


def test_parts_cover_each_other() -> None:
    """The same region in as many tokens, or all of the picture at that resolution."""
    part = StillPart(144, 2, 4)
    assert part.covers(StillPart(64, 2, 4))
    assert not part.covers(StillPart(256, 2, 4))
    assert not part.covers(StillPart(64, 1, 4))
    assert StillPart(1024).covers(StillPart(256, 1, 4))
    assert not StillPart(1023).covers(StillPart(256, 1, 4))
    assert not StillPart(400, 1, 4).covers(StillPart(64))
