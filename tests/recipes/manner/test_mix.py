"""Two stages of a fit, and what lies between them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from recipes.manner.mix import CONFIG, TENSORS, mix


def _adapter(folder: Path, **tensors: torch.Tensor) -> Path:
    folder.mkdir()
    (folder / CONFIG).write_text("{}")
    save_file(tensors, folder / TENSORS)
    return folder


def test_the_mean_lies_where_share_says(tmp_path: Path) -> None:
    """At 0 the first, at 1 the second, at a quarter a quarter of the way; half precision."""
    first = _adapter(tmp_path / "a", x=torch.zeros(3))
    second = _adapter(tmp_path / "b", x=torch.full((3,), 4.0))
    for share, value in ((0.0, 0.0), (0.25, 1.0), (1.0, 4.0)):
        mix(first, second, share, tmp_path / "out")
        mixed = load_file(tmp_path / "out" / TENSORS)["x"]
        assert torch.equal(mixed, torch.full((3,), value).half())
    assert (tmp_path / "out" / CONFIG).exists()


def test_two_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Adapters of other layers have no mean."""
    first = _adapter(tmp_path / "a", x=torch.zeros(3))
    with pytest.raises(ValueError, match="same layers"):
        mix(first, _adapter(tmp_path / "b", y=torch.zeros(3)), 0.5, tmp_path / "out")
