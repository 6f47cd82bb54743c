"""headstart.engine.checkpoints.named: what a directory's own files may say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headstart.engine.checkpoints.named import (
    Tensors,
    pairs,
    read_json,
    read_json_value,
    whole_numbers,
)
from headstart.engine.errors import BadWeights

CONFIG = Path("config.json")


def test_lists_of_numbers() -> None:
    """Whole numbers and pairs of them come out; none is an empty list."""
    config = {"ids": [1, 2], "heads": [[0, 1], [2, 3]], "nothing": None}
    assert whole_numbers(CONFIG, config, "ids") == (1, 2)
    assert pairs(CONFIG, config, "heads") == ((0, 1), (2, 3))
    assert whole_numbers(CONFIG, config, "nothing") == ()
    assert pairs(CONFIG, config, "absent") == ()


@pytest.mark.parametrize("value", [3, "ab", {"a": 1}, [1.5], [True], [[1]]])
def test_other_things_are_no_whole_numbers(value: object) -> None:
    """Named with the file, the key and what came."""
    with pytest.raises(BadWeights, match=r"config\.json: ids: expected a list of whole numbers"):
        whole_numbers(CONFIG, {"ids": value}, "ids")


@pytest.mark.parametrize("value", [3, [1, 2], [[1]], [[1, 2, 3]], [["a", 1]]])
def test_other_things_are_no_pairs(value: object) -> None:
    """Named in the same way."""
    with pytest.raises(BadWeights, match=r"config\.json: heads: expected a list of pairs"):
        pairs(CONFIG, {"heads": value}, "heads")


def test_tensors_by_name() -> None:
    """Layers are counted up to the first gap, and another number of axes is told."""
    tensors = Tensors(Path("model.bin"), {f"layer{n}": torch.zeros(2, 3) for n in (0, 1, 3)})
    assert tensors.count("layer{}") == 2
    assert tensors.shape("layer0", 2) == (2, 3)
    with pytest.raises(BadWeights, match=r"model\.bin: layer0: expected 3 axes, got \[2, 3\]"):
        tensors.shape("layer0", 3)


def test_json_is_an_object_where_one_is_meant(tmp_path: Path) -> None:
    """A list is JSON, but no configuration."""
    (tmp_path / "a.json").write_text("[1]")
    assert read_json_value(tmp_path / "a.json") == [1]
    with pytest.raises(BadWeights, match="expected a JSON object, got list"):
        read_json(tmp_path / "a.json")
