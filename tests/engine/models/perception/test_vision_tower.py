"""The vision encoders, against `transformers`' on the same patches."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from headstart.engine.models.perception.vision_tower import VisionTower, window_order
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from tests.engine.models.loading import loaded
from tests.engine.models.omni_twin import in_double, tiny_twin, write_directory


class Towers(NamedTuple):
    theirs: Any
    ours: VisionTower


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Towers:
    theirs = tiny_twin(torch.float64)
    folder = write_directory(theirs, tmp_path_factory.mktemp("omni"))
    return Towers(theirs.model.visual, loaded(Qwen25Omni, folder, torch.float64).vision.tower)


def seen(tower: VisionTower, patches: Tensor, rows: int, columns: int) -> Tensor:
    with torch.inference_mode():
        return tower.project(tower.encode(patches, rows, columns))


@pytest.mark.parametrize(("units", "rows", "columns"), [(1, 1, 1), (3, 2, 2), (2, 3, 7), (2, 5, 4)])
def test_pictures_of_any_grid(towers: Towers, units: int, rows: int, columns: int) -> None:
    """Grids that windows fit into, and that they don't, at once and unit by unit: to 1e-9."""
    torch.manual_seed(rows)
    sizes = towers.ours.sizes
    values = 3 * sizes.frames * sizes.patch_px**2
    patches = torch.randn(units * rows * columns * 4, values, dtype=torch.float64)
    grid = torch.tensor([[units, 2 * rows, 2 * columns]])
    with in_double(), torch.inference_mode():
        wanted = towers.theirs(patches, grid_thw=grid).pooler_output
    assert (seen(towers.ours, patches, rows, columns) - wanted).abs().max() <= 1e-9
    single = [seen(towers.ours, part, rows, columns) for part in patches.chunk(units)]
    assert (torch.cat(single) - wanted).abs().max() <= 1e-9


def test_few_grids_are_kept_and_no_large_ones(towers: Towers) -> None:
    """Whoever shows pictures of ever new sizes takes no more memory for it."""
    tower = towers.ours
    with torch.inference_mode():
        assert tower._grid(3, 4, 1) is tower._grid(3, 4, 1)
        assert tower._grid(40, 26, 2) is not tower._grid(40, 26, 2)
        for columns in range(1, 30):
            tower._grid(2, columns, 1)
    kept = tower._kept_grid.cache_info()
    assert kept.currsize == kept.maxsize == 16


def test_windows_cover_the_grid_once() -> None:
    """5 x 3 merged patches in windows of 2 x 2: whole ones, and then the rest at the edges, those
    of one length beside each other."""
    windows = window_order(5, 3, 2, 4)
    assert sorted(windows.order.tolist()) == list(range(15))
    assert windows.order.tolist() == [0, 1, 3, 4, 6, 7, 9, 10, 2, 5, 8, 11, 12, 13, 14]
    assert [length // 4 for length in windows.lengths] == [4, 4, 2, 2, 2, 1]
    assert window_order(5, 3, 0, 4).lengths == (60,)
