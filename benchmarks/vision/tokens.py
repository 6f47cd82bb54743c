"""Fewer tokens of a picture: what is lost, and what it saves.

No encoder of a vision-language model is packaged, so what is lost is measured on the packaged image
network: its features of a photograph half way through are 256 tokens. They are pooled, each token
is replaced by the one that it became part of, and the rest of the network names the picture.

`rows`, one for each way to pool single frames, and `groups` for four frames of a video at once:

    tokens        of a frame, or of a group
    error         share of the features' variance (over the picture) that is lost
    same_label    share of pictures whose name stays the same
    kv_bytes      K and V of a frame (a quarter of a group's) in the model
    ttft_ms       prefill of FRAMES frames and of a question, up to the first token's logits, steps
                  of all ways in turns

Ways: `all`; `mean` and `merge` as `frame_pooling` has them; `skip` every second row and column;
`smaller`, the picture at half its sides before the encoder, which also saves the encoder's time.
`sizes` and `under_load`: smaller frames, and the load-shedding ladder
(`benchmarks/vision/sizes.py`); with `--sizes` nothing else.
`regions`: stills of which some regions are shown closely (`benchmarks/vision/regions.py`).

The pictures are the half of `eyes`' photographs with an odd CRC-32 of their names; what there was
to choose was chosen on the even half (`--choose`).
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.benchmarks import report
from headstart.benchmarks.engine.kv import Lane
from headstart.benchmarks.harness.in_process import paths_of
from headstart.benchmarks.inputs import photos
from headstart.benchmarks.vision import frames, regions, sizes
from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.models.perception.pooling import (
    Embedded,
    MeanPooling,
    coarser,
    merge_similar,
)
from headstart.engine.process.load import load_model
from headstart.engine.vision.efficientnet import EfficientNetLite0
from headstart.engine.vision.efficientnet import load as load_network
from headstart.kernels.native import set_threads

SIDE_PX = 256
SIDE, TOKENS = 16, 64
CELLS = tuple((row, column) for row in range(SIDE) for column in range(SIDE))
HALFWAY = 11  # blocks of the network before its features are 16 x 16
GROUP = 4
FRAMES = 8
QUESTION_TOKENS = 12
STEP_TOKENS = 64  # the engine's token budget of a step
VIDEO_FPS = 2.0

Row = dict[str, Any]
Restore = Callable[[Tensor], Tensor]  # [n, 256, width] -> the same, as pooling leaves it


class Halves:
    """The packaged image network in two halves."""

    def __init__(self, network: EfficientNetLite0) -> None:
        self._network = network

    def features(self, pixels: Tensor) -> Tensor:
        """[n, 3, side, side] -> [n, (side / 16) ** 2, width]."""
        grid: Tensor = self._network.blocks[:HALFWAY](self._network.stem(pixels))
        return grid.flatten(2).transpose(1, 2)

    def label(self, features: Tensor) -> list[int]:
        """The likeliest class of each picture."""
        side = round(features.shape[1] ** 0.5)
        grid = features.transpose(1, 2).reshape(len(features), -1, side, side)
        seen = self._network.head(self._network.blocks[HALFWAY:](grid)).mean(dim=(2, 3))
        labels: list[int] = self._network.classifier(seen).argmax(dim=1).tolist()
        return labels


def run(model: str, repeats: int, *, choose: bool, only_sizes: bool, as_json: bool) -> None:
    """Measure and report. Raises `photos.PhotosMissing`."""
    by_size = _by_size(model, repeats)
    if only_sizes:
        report.finish("tokens", {"model": model, **by_size}, as_json=as_json)
        return
    paths = paths_of(model)
    net = Halves(load_network(paths.eyes))
    torch.set_num_threads(1)
    with torch.inference_mode():
        rows = _single(
            net, [photo.image for photo in photos.load() if _is_odd(photo.name) != choose]
        )
        groups = _groups(net)
    costs = _costs(model, repeats, sorted({row["tokens_in_context"] for row in (*rows, *groups)}))
    for row in (*rows, *groups):
        row |= costs[row.pop("tokens_in_context")]
        report.say(str(row))
    by_region = regions.rows("choose" if choose else "report")
    for row in by_region:
        report.say(str(row))
    result: dict[str, object] = {"model": model, "rows": rows, "groups": groups}
    result |= {"regions": by_region, "frames": FRAMES, **by_size}
    report.finish("tokens", result, as_json=as_json)


def _by_size(model: str, repeats: int) -> dict[str, object]:
    found = sizes.rows(repeats)
    costs = _costs(model, repeats, [FRAMES * row["tokens"] for row in found])
    for row in found:
        row |= costs[FRAMES * row["tokens"]]
        report.say(str(row))
    return {"sizes": found, "under_load": sizes.under_load(found)}


def _is_odd(name: str) -> bool:
    return bool(zlib.crc32(name.encode()) % 2)


# --- what is lost --------------------------------------------------------------------------------


def _single(net: Halves, pictures: Sequence[api.Image]) -> list[Row]:
    features = torch.cat([net.features(_pixels(picture)) for picture in pictures])
    labels = net.label(features)
    small = torch.cat([net.features(_pixels(picture, SIDE_PX // 2)) for picture in pictures])
    rows: list[Row] = [
        {"way": "all", "tokens": SIDE**2, "error": 0.0, "same_label": 1.0},
        {"way": "smaller", "tokens": TOKENS, "same_label": _same(net.label(small), labels)},
    ]
    for way, restore in {"skip": _skip, "mean": _mean, "merge": merge(TOKENS)}.items():
        left = torch.cat([restore(one[None]) for one in features])
        rows.append({"way": way, "tokens": TOKENS, **_lost(net, features, left, labels)})
    for row in rows:
        row |= {"pictures": len(pictures), "tokens_in_context": FRAMES * row["tokens"]}
    return rows


def _groups(net: Halves) -> list[Row]:
    found = [group for name in frames.VIDEOS for group in _videos(name)]
    rows = []
    for way, restore in {"mean": _mean, "merge": merge(TOKENS)}.items():
        lost = []
        for group in found:
            features = torch.cat([net.features(_pixels(picture)) for picture in group])
            lost.append(_lost(net, features, restore(features), net.label(features)))
        row: Row = {"way": way, "tokens": TOKENS, "groups": len(found)}
        row |= {key: round(statistics.fmean(one[key] for one in lost), 3) for key in lost[0]}
        rows.append(row | {"tokens_in_context": FRAMES // GROUP * TOKENS})
    return rows


def _videos(name: str) -> list[list[api.Image]]:
    """Groups of frames of a video, `VIDEO_FPS` of them a second."""
    kept: list[api.Image] = []
    next_ms = 0.0
    for at_ms, seen in frames.pictures_of(name):
        if at_ms >= next_ms:
            kept.append(seen.image)
            next_ms += 1000 / VIDEO_FPS
    return [kept[i : i + GROUP] for i in range(0, len(kept) - GROUP + 1, GROUP)]


def _lost(net: Halves, features: Tensor, left: Tensor, labels: Sequence[int]) -> Row:
    spread = (features - features.mean(dim=1, keepdim=True)).square().sum(dim=(1, 2))
    error = (features - left).square().sum(dim=(1, 2)) / spread
    same = _same(net.label(left), labels)
    return {"error": round(float(error.mean()), 3), "same_label": same}


def _same(labels: Sequence[int], wanted: Sequence[int]) -> float:
    pairs = zip(labels, wanted, strict=True)
    return round(statistics.fmean(one == other for one, other in pairs), 3)


def merge(tokens: int, round_share: int | None = None) -> Restore:
    """What is left of all tokens of the given frames together if they are merged to `tokens`."""

    def restore(features: Tensor) -> Tensor:
        flat = features.flatten(0, 1)
        share = {} if round_share is None else {"round_share": round_share}
        merged = merge_similar(flat, tokens, **share)
        return merged.vectors[merged.owner].view_as(features)

    return restore


def _mean(features: Tensor) -> Tensor:
    pooled = MeanPooling().pool([Embedded(one, CELLS, SIDE, SIDE) for one in features], TOKENS)
    rows, columns = coarser(SIDE, SIDE, TOKENS)
    return _spread(pooled.vectors, rows, columns).expand(len(features), -1, -1)


def _skip(features: Tensor) -> Tensor:
    grid = features[0].view(SIDE, SIDE, -1)[::2, ::2]
    return _spread(grid.flatten(0, 1), SIDE // 2, SIDE // 2)


def _spread(tokens: Tensor, rows: int, columns: int) -> Tensor:
    """[rows * columns, width] -> [1, 256, width]: each token in all cells that it stands for."""
    grid = tokens.T.reshape(1, -1, rows, columns)
    return F.interpolate(grid, (SIDE, SIDE), mode="nearest").flatten(2).transpose(1, 2)


def _pixels(picture: api.Image, side_px: int = SIDE_PX) -> Tensor:
    """The middle square of a picture, as the network takes it: [1, 3, side_px, side_px]."""
    rgb = np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3)
    side = min(picture.height, picture.width)
    top, left = (picture.height - side) // 2, (picture.width - side) // 2
    square = torch.from_numpy(rgb[top : top + side, left : left + side].copy())
    pixels = square.permute(2, 0, 1)[None].float()
    size = (side_px, side_px)
    resized = F.interpolate(pixels, size, mode="bicubic", align_corners=False, antialias=True)
    return (resized.clamp(0, 255) - 127) / 128


# --- what it saves -------------------------------------------------------------------------------


@dataclass
class _Timed:
    lane: Lane
    times_s: list[float]


def _costs(model: str, repeats: int, contexts: Sequence[int]) -> dict[int, Row]:
    """K/V bytes of a frame, and time to the first token's logits behind so many picture tokens."""
    config = EngineConfig(model=model)
    loaded = load_model(paths_of(model).llm, config)
    set_threads(config.threads)
    lanes = {count: _Timed(Lane(loaded, config, config.kv_dtype), []) for count in contexts}
    for _ in range(repeats):
        for count, timed in lanes.items():
            timed.lane.stream.truncate(0)
            began_s = time.perf_counter()
            for at in range(0, count + QUESTION_TOKENS, STEP_TOKENS):
                timed.lane.step(*[1] * min(STEP_TOKENS, count + QUESTION_TOKENS - at))
            timed.times_s.append(time.perf_counter() - began_s)
    return {
        count: {
            "kv_bytes": round(count / FRAMES * timed.lane.cache.bytes_per_token),
            "ttft_ms": round(statistics.median(timed.times_s) * 1000),
        }
        for count, timed in lanes.items()
    }
