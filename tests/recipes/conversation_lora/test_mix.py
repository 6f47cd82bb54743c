"""Two fits of one base, and what lies between them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.recipes.conversation_lora.mix import CONFIG, TENSORS, mix

RANK, ROWS, COLS = 4, 9, 7
ALPHA = 8
MODULE = "base_model.model.model.layers.3.self_attn.q_proj"


def _adapter(folder: Path, seed: int, rank: int = RANK, directions: int = RANK) -> Path:
    """`directions`: of the delta, at most `rank`."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(seed)
    a = torch.randn((rank, COLS), generator=draw)
    a[directions:] = 0
    tensors = {
        f"{MODULE}.lora_A.weight": a.half(),
        f"{MODULE}.lora_B.weight": torch.randn((ROWS, rank), generator=draw).half(),
    }
    (folder / CONFIG).write_text(json.dumps({"r": rank, "lora_alpha": ALPHA}))
    save_file(tensors, folder / TENSORS)
    return folder


def _delta(folder: Path) -> Tensor:
    tensors = load_file(folder / TENSORS)
    a, b = (tensors[f"{MODULE}.lora_{side}.weight"].float() for side in "AB")
    return ALPHA / len(a) * (b @ a)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_delta_lies_where_share_says(tmp_path: Path, share: float) -> None:
    """Where the rank has room for both deltas, their mean is exact but for half precision."""
    first, second = _adapter(tmp_path / "a", 1, directions=2), _adapter(tmp_path / "b", 2, 4, 2)
    assert mix(first, second, share, tmp_path / "out") == pytest.approx(1.0)
    wanted = _delta(first).lerp(_delta(second), share)
    torch.testing.assert_close(_delta(tmp_path / "out"), wanted, rtol=0.01, atol=0.02)


def test_two_scales_are_minded(tmp_path: Path) -> None:
    """A second adapter of half the rank has twice the scale, and a mean all the same."""
    first = _adapter(tmp_path / "a", 1, directions=2)
    second = _adapter(tmp_path / "b", 2, rank=2, directions=2)
    mix(first, second, 0.5, tmp_path / "out")
    wanted = (_delta(first) + _delta(second)) / 2
    torch.testing.assert_close(_delta(tmp_path / "out"), wanted, rtol=0.01, atol=0.02)


def test_what_the_rank_cannot_hold_is_the_least(tmp_path: Path) -> None:
    """Of eight directions the four strongest stay: no delta of that rank is nearer, and the part of
    the energy that stays is told."""
    first, second = _adapter(tmp_path / "a", 1), _adapter(tmp_path / "b", 2)
    kept = mix(first, second, 0.5, tmp_path / "out")
    wanted = (_delta(first) + _delta(second)) / 2
    strengths = torch.linalg.svdvals(wanted)
    lost = (_delta(tmp_path / "out") - wanted).square().sum() / wanted.square().sum()
    assert kept < 0.999
    assert float(lost) == pytest.approx(1 - kept, abs=1e-3)
    assert kept == pytest.approx(float(strengths[:RANK].square().sum() / strengths.square().sum()))


def test_two_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Adapters of other layers have no mean."""
    first, other = _adapter(tmp_path / "a", 1), tmp_path / "b"
    other.mkdir()
    save_file({"y": torch.zeros(3)}, other / TENSORS)
    with pytest.raises(ValueError, match="same layers"):
        mix(first, other, 0.5, tmp_path / "out")
