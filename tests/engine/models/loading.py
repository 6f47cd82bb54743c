"""A model directory loaded as the server loads it, and known to be of one family."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch

from headstart.engine.models.families import Loading, load

Model = TypeVar("Model")


def loaded(kind: type[Model], folder: Path, dtype: torch.dtype) -> Model:
    """The model in `folder`, which must be a `kind`."""
    model = load(folder, Loading(dtype=dtype))
    assert isinstance(model, kind)
    return model
