"""What picture sizes models ask for."""

from __future__ import annotations

from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.engine.models.perception.anyres import Anyres
from headstart.engine.models.perception.interface import VisionSpec
from headstart.engine.models.perception.picture_sizes import frame_size, still_size

QWEN = VisionSpec(28, 2, min_pixels=128 * 784, max_pixels=768 * 784)
GRID = tuple((384 * rows, 384 * columns) for rows in range(1, 7) for columns in range(1, 7))
TILES = Anyres(GRID, tile_px=384, tile_tokens=27, max_tiles=9)
LLAVA = VisionSpec(384, 1, min_pixels=384**2, max_pixels=384**2, tiled=TILES.still)


def test_a_model_that_sees_nothing_wants_small_pictures() -> None:
    """They are refused by the engine, at little cost."""
    assert still_size(None, 8192) == frame_size(None) == SMALL_PICTURE


def test_a_models_own_budget_holds_where_there_is_room() -> None:
    """Of stills and of frames; a frame that is squeezed into a square needs its sides only."""
    assert still_size(QWEN, 100_000) == frame_size(QWEN) == PictureSize(pixels=768 * 784)
    assert still_size(LLAVA, 100_000) == PictureSize(pixels=(6 * 384) ** 2)
    assert frame_size(LLAVA) == PictureSize(short_side=384)


def test_a_still_takes_at_most_its_share_of_the_context() -> None:
    """It takes half of a session at most: so many cells, or whole tiles beside the small picture;
    and no less than the model makes of any picture."""
    large = VisionSpec(28, 2, min_pixels=3136, max_pixels=12_845_056)
    assert still_size(large, 8192) == PictureSize(pixels=4096 * 784)
    assert still_size(LLAVA, 8192) == PictureSize(pixels=4 * 384**2)
    assert still_size(LLAVA, 1000) == PictureSize(pixels=384**2)
    assert still_size(QWEN, 100) == PictureSize(pixels=128 * 784)
