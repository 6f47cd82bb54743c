"""A still in three resolutions."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from headstart.engine import api
from headstart.engine.interfaces import Detail, Look, StillPart
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.clips import PictureFeatures
from headstart.engine.models.perception.interface import StreamModel, VisionSpec
from headstart.engine.models.perception.senses import ModelImageEncoder
from headstart.engine.models.perception.still_details import (
    StillDetails,
    least_cache_bytes,
    pixels_of,
    scaled,
)
from headstart.engine.vision.encoder_cache import EncoderCache
from tests.engine.models import twins

LOW = StillPart(Detail.LOW)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StreamModel:
    folder = twins.save(twins.qwen2_vl(), tmp_path_factory.mktemp("vl"))
    return load(folder, Loading(torch.float32))


def stills_of(model: StreamModel, room: int = 1 << 22) -> StillDetails:
    def look_for(text: str) -> Look:
        return Look.WRITING if "read" in text else Look.GLANCE

    cache = EncoderCache[PictureFeatures](room, 100.0, clock=lambda: 0)
    return StillDetails(model, cache, look_for, lambda: 0)


def stream_of(model: StreamModel, domain: bytes = b"") -> Stream:
    stream = Stream("s", BlockPool(100, 16), 200, 4_000, model.new_positions())
    stream.share_within(domain)
    return stream


def picture(height: int, width: int) -> api.Image:
    rng = np.random.default_rng(height)
    return api.Image(width, height, rng.integers(0, 256, (height, width, 3), np.uint8).tobytes())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> StreamModel:
    """Takes pictures of up to 1,024 tokens."""
    folder = twins.save(twins.qwen2_vl(), tmp_path_factory.mktemp("large"))
    budget = {"min_pixels": 28 * 28, "max_pixels": 1024 * 28 * 28}
    (folder / "preprocessor_config.json").write_text(json.dumps(budget))
    return load(folder, Loading(torch.float32))


def test_no_resolution_beyond_the_model(model: StreamModel) -> None:
    """One that takes 64 tokens has nothing to gain."""
    assert stills_of(model).detail_for(["Can you read it?"]) is Detail.LOW


def test_words_choose_the_resolution(large: StreamModel) -> None:
    """None, some, and some about writing."""
    stills = stills_of(large)
    assert stills.detail_for([]) is stills.detail_for([" "]) is Detail.LOW
    assert stills.detail_for(["Is it nice?"]) is Detail.MEDIUM
    assert stills.detail_for(["Look!", "Can you read it?"]) is Detail.HIGH


@pytest.mark.parametrize("size", [(300, 400), (90, 1400), (1400, 90), (50, 60), (1, 3000)])
@pytest.mark.parametrize("detail", Detail)
def test_no_more_pixels_than_the_tokens_show(size: tuple[int, int], detail: Detail) -> None:
    """Any shape, aspect kept within rounding; small pictures stay as they are."""
    vision = VisionSpec(28, 2, 28 * 28, 1 << 30)
    height, width = size
    rgb = scaled(pixels_of(picture(height, width)), vision, detail)
    high, wide = rgb.shape[:2]
    assert high * wide <= max(detail * 28 * 28, wide)  # of a line of pixels one row is left
    if height * width <= detail * 28 * 28:
        assert (high, wide) == size
    elif min(high, wide) > 20:
        assert wide / high == pytest.approx(width / height, rel=0.1)


def test_each_resolution_is_encoded_once(model: StreamModel) -> None:
    """For all sessions of a domain; another domain learns nothing from the cache."""
    stills, image = stills_of(model), picture(200, 300)
    first, again = (stills.encode(image, stream_of(model), LOW) for _ in range(2))
    assert (first.ids, first.key, first.text) == (again.ids, again.key, again.text)
    assert (stills.cache.misses, stills.cache.hits) == (1, 1)
    higher = stills.encode(image, stream_of(model), StillPart(Detail.MEDIUM))
    assert higher.key != first.key
    stills.encode(image, stream_of(model, b"another"), LOW)
    assert (stills.cache.misses, stills.cache.hits) == (3, 1)


def test_a_small_picture_is_as_without_resolutions(model: StreamModel) -> None:
    """The same tokens at the same places as the model's own encoder gives."""
    image, stream = picture(112, 140), stream_of(model)
    own = ModelImageEncoder(model).encode_image(image, stream)
    assert stills_of(model).encode(image, stream, StillPart(Detail.HIGH)).ids == own.ids


def test_the_cache_has_room_for_some_pictures() -> None:
    """Four in all resolutions, as fp32."""
    assert least_cache_bytes(1536) == 4 * (64 + 256 + 1024) * 1536 * 4
