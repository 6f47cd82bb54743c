"""The encoder of stills in as many tokens as a question needs, and its detectors."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from headstart.engine.config import EngineConfig
from headstart.engine.errors import BadSettings
from headstart.engine.interfaces import StillEncoder
from headstart.engine.models.perception.clips import PictureFeatures
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.perception.still_details import (
    StillDetails,
    has_resolutions,
    least_cache_bytes,
)
from headstart.engine.models.perception.still_regions import FINDINGS_BYTES, StillRegions
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.faces import Faces
from headstart.engine.vision.labeller import FrameLabeller
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.regions.findings import Findings, ReadLine, ReadLines, RegionFinder
from headstart.engine.vision.regions.patch_cache import PatchCache
from headstart.engine.weights import FetchFailed, Progress, ensure

log = logging.getLogger("headstart.engine")

READING, FACES, EYES, NAMES = "pp-ocrv6", "mtcnn", "efficientnet-lite0", "imagenet-names"
DETECTORS = {
    READING: "writing",
    FACES: "faces",
    EYES: "things",
    NAMES: "things",
}
"""What each of these weights finds in a picture."""
KNOWN_PICTURES = 64
READ_LINES = 24


def find_detectors(setting: str, progress: Progress) -> dict[str, Path]:
    """Paths of `DETECTORS`, fetched if necessary, for the setting `still_detail`. Those that cannot
    be had are left out, and `progress` is told."""
    found = {}
    for name, what in DETECTORS.items() if setting == "regions" else ():
        try:
            found[name] = ensure(name, progress)
        except FetchFailed as error:
            progress.note(f"{what} in pictures won't count for still_detail: {error}")
    return found


def still_encoder(
    model: StreamModel, config: EngineConfig, detectors: Mapping[str, Path]
) -> StillEncoder | None:
    """The encoder for the setting `still_detail`; None for stills as large as the model takes them.
    Raises `BadSettings` for a model that cannot do with fewer tokens, or `BadWeights`."""
    vision = model.spec.vision
    if config.still_detail == "full":
        return None
    if vision is None or not has_resolutions(vision):
        takes = "takes no pictures" if vision is None else "takes stills by rules of its own"
        expected = f"full: {model.spec.family} {takes}"
        raise BadSettings("still_detail", expected, config.still_detail)
    # With it comes the reader's runtime, which other model directories do without.
    from headstart.engine.vision.reading.notes import look_for

    ttl_s, clock = config.encoder_cache_ttl_s, time.monotonic_ns
    room = max(config.encoder_cache_bytes, least_cache_bytes(model.spec.decoder.hidden))
    whole = StillDetails(model, EncoderCache[PictureFeatures](room, ttl_s, clock), look_for, clock)
    if config.still_detail == "asked":
        return whole
    known = EncoderCache[Findings](KNOWN_PICTURES * FINDINGS_BYTES, ttl_s, clock)
    return StillRegions(
        whole, region_finder(detectors), PatchCache(room, ttl_s, clock), known, clock
    )


def region_finder(detectors: Mapping[str, Path]) -> RegionFinder:
    """What looks for relevance with the `DETECTORS` that are there. Raises `BadWeights`."""
    faces, eyes, names = (detectors.get(name) for name in (FACES, EYES, NAMES))
    labeller = None if eyes is None or names is None else FrameLabeller.load(eyes, names)
    finder = None if faces is None else Faces.load(faces)
    return RegionFinder(_lines_of(detectors.get(READING)), finder, labeller)


def _lines_of(folder: Path | None) -> ReadLines | None:
    """What reads the lines of a picture, those with the tallest letters."""
    if folder is None:
        return None
    from headstart.engine.vision.reading.reader import Detail, TextReader

    reader, detail = TextReader.load(folder), Detail(longest_sides=(640,), max_lines=READ_LINES)

    def read(rgb: Rgb) -> Iterator[ReadLine]:
        for line in reader.find(rgb, detail)[: detail.max_lines]:
            text, _ = reader.read_line(rgb, line)
            if text:
                yield ReadLine(line.corners, line.thickness, text)

    return read
