"""What a model will take is known before it is loaded, and refused if it is too much."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headstart.engine.config import EngineConfig
from headstart.engine.models import footprint
from headstart.engine.models.checkpoint.errors import NotEnoughMemory
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.families import Loading
from headstart.engine.models.footprint import check_fits, weights_bytes
from headstart.engine.models.source import ModelSource, loading_of, source_of
from headstart.engine.process.model_directory import assemble_source
from tests.engine.models.served import write_served


def published(size: str) -> ModelSource:
    source = source_of(EngineConfig(weights="dummy", size=size))
    assert source is not None
    return source


def test_it_is_what_loading_takes(tmp_path: Path) -> None:
    """Of a tiny model: byte for byte what its tensors take, in both float forms."""
    write_served(tmp_path)
    source = source_of(EngineConfig(model=str(tmp_path)))
    assert source is not None
    for dtype in (torch.bfloat16, torch.float32):
        made = RandomTensors(dtype)
        source.on(Loading(dtype), made)
        # a random model ties its head to its embedding
        head = 280 * 64 * dtype.itemsize
        assert weights_bytes(source, Loading(dtype)) - made.nbytes in (0, head)


@pytest.mark.parametrize(
    ("size", "weights", "gb"),
    [("3b", "bf16", 9.4), ("7b", "bf16", 17.9), ("7b", "fp32", 35.7)],
)
def test_what_published_sizes_take(size: str, weights: str, gb: float) -> None:
    """Of the Thinkers, in GB; nothing is made for it."""
    how = loading_of(EngineConfig(weights=weights))
    assert weights_bytes(published(size), how) / 1e9 == pytest.approx(gb, abs=0.05)


def test_int8_is_for_the_decoder() -> None:
    """8.5 bits a weight there, and encoders as they were: 7B in 10.7 GB."""
    how = loading_of(EngineConfig(weights="int8"))
    assert weights_bytes(published("7b"), how) / 1e9 == pytest.approx(10.7, abs=0.05)


def test_too_much_is_refused_before_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it would take, what there is, and what to do; where nobody knows, nothing is."""
    monkeypatch.setattr(footprint, "available_bytes", lambda: 12_000_000_000)
    how = loading_of(EngineConfig(weights="bf16"))
    with pytest.raises(NotEnoughMemory, match=r"7b-dummy in bfloat16 needs 17\.9 GB.* 12\.0 GB"):
        check_fits(published("7b"), how, 1 << 28)
    assert check_fits(published("3b"), how, 1 << 28) > 9e9
    monkeypatch.setattr(footprint, "available_bytes", lambda: None)
    assert check_fits(published("7b"), how, 1 << 28) > 17e9
    monkeypatch.setattr(footprint, "available_bytes", lambda: 1 << 20)
    write_served(tmp_path)
    config = EngineConfig(model=str(tmp_path), weights="int8", kv_pool_bytes=1 << 22)
    source = source_of(config)
    assert source is not None
    with pytest.raises(NotEnoughMemory, match="Use a smaller model"):
        assemble_source(source, config, lambda event: None, lambda *told: None)
