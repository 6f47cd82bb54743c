"""The reader of what is written in pictures, and how large pictures it gains from."""

from __future__ import annotations

import time
from pathlib import Path

from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.reading.background import BackgroundReader
from headstart.engine.vision.reading.reader import TextReader, Written


def reader_of(folder: Path | None, config: EngineConfig) -> BackgroundReader | None:
    """The reader whose weights are in `folder`; None if it is not wanted or they are not there.
    Raises `BadWeights`."""
    if folder is None or config.reading == "off":
        return None
    size, ttl_s = config.encoder_cache_bytes, config.encoder_cache_ttl_s
    known = EncoderCache[Written](size, ttl_s, clock=time.monotonic_ns)
    return BackgroundReader(TextReader.load(folder), known)


def still_size(reader: BackgroundReader | None) -> api.PictureSize:
    """A photograph of a page has letters of some 12 pixels at 960 rows."""
    return api.SMALL_PICTURE if reader is None else api.PictureSize(short_side=960)


def frame_size(reader: BackgroundReader | None) -> api.PictureSize:
    """As a camera gives it: labels alone would do with a quarter of the pixels."""
    return api.SMALL_PICTURE if reader is None else api.PictureSize(short_side=480)
