"""Photographs and one pair of eyes for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from headstart.engine.vision import FrameLabeller
from headstart.engine.vision.pixels import Rgb

PHOTOS = Path(__file__).resolve().parents[2] / "data" / "photos"


def read_photo(name: str) -> Rgb:
    """uint8 [H, W, 3]."""
    with av.open(str(PHOTOS / f"{name}.jpg")) as container:
        frame = next(container.decode(video=0))
        return np.ascontiguousarray(frame.to_ndarray(format="rgb24"), dtype=np.uint8)


@pytest.fixture(scope="session")
def cat() -> Rgb:
    return read_photo("chelsea")


@pytest.fixture(scope="session")
def coffee() -> Rgb:
    return read_photo("coffee")


@pytest.fixture(scope="session")
def astronaut() -> Rgb:
    return read_photo("astronaut")


@pytest.fixture(scope="session")
def eyes(efficientnet_path: Path, imagenet_names_path: Path, faces_path: Path) -> FrameLabeller:
    return FrameLabeller.load(efficientnet_path, imagenet_names_path, faces_path)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums over threads may round differently: one thread makes equality a fair demand."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
