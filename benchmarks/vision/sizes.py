"""Smaller frames, and the load-shedding ladder: what they cost less, and what is lost.

`rows`, one for each side of a frame that the ladder knows (448, 336, 224 px):

    tokens            of a frame, one for 28 x 28 px, as in Qwen's families
    encode_ms         a frame in DEPTH of the 32 layers of Qwen2-VL's image encoder, random weights
    encode_share      of the time at 448 px
    words_read_share  of drawn signs (the half that nothing was chosen on) in frames of 640 x 480
                      scaled by the same share, at a glance

`under_load`, in virtual time: a camera of FPS frames a second, for LASTS_S. `offered` is the work
of a chunk without the ladder as a share of the chunk's length; AUDIO_SHARE of it is audio. The
work of a picture is as measured in `rows`. The ladder is told how long each chunk takes.

    offered, rung (where it stands most of the time), frames, refused, frames_share and encode_share
    (of what a camera without the ladder has), load_p50, load_p95 (from a chunk until its work is
    done, behind that of earlier ones, as a share of the chunk), late_share and late_without (share
    of chunks that are not done before the next one, with the ladder and without)
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch

from headstart.benchmarks import report
from headstart.benchmarks.inputs import signs
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.perception.clips import encode_picture
from headstart.engine.models.perception.interface import VideoFrame
from headstart.engine.models.qwen2_vl import Qwen2Vl
from headstart.engine.models.sizes import QWEN2_VL, config_of
from headstart.engine.vision.reading.reader import GLANCE, TextReader
from headstart.engine.weights import ensure
from headstart.gateway.video.ladder import SIDE_SHARES, Ladder, Paced, Refusal, Rung
from headstart.gateway.video.sampling import Every, FrameVerdict, SampledFrame

SIDES_PX = (448, 336, 224)
CELL_PX = 28
DEPTH = 2
OFFERED = (0.5, 1.0, 1.5, 2.0, 3.0)
AUDIO_SHARE = 0.2
FPS, LASTS_S, CHUNK_MS = 1.0, 300, 2000

Row = dict[str, Any]


def rows(repeats: int) -> list[Row]:
    """Each size. Raises `photos.PhotosMissing`."""
    model = _encoder()
    times_s: dict[int, list[float]] = {side: [] for side in SIDES_PX}
    random = np.random.default_rng(0)
    for _ in range(repeats):
        for side, taken in times_s.items():
            rgb = random.integers(0, 256, (side, side, 3), np.uint8)
            began_s = time.process_time()
            encode_picture(model, VideoFrame(rgb), live=True)
            taken.append(time.process_time() - began_s)
    middle = {side: statistics.median(taken) for side, taken in times_s.items()}
    return [
        {
            "side_px": side,
            "tokens": (side // CELL_PX) ** 2,
            "encode_ms": round(middle[side] * 1000),
            "encode_share": round(middle[side] / middle[SIDES_PX[0]], 3),
            "words_read_share": _words_read(side / SIDES_PX[0]),
        }
        for side in SIDES_PX
    ]


def _encoder() -> Qwen2Vl:
    """Qwen2-VL's image encoder, shortened, before one layer of a decoder."""
    published = config_of(QWEN2_VL)
    values: Row = {
        "text_config": {**published.values["text_config"], "num_hidden_layers": 1},
        "vision_config": {**published.values["vision_config"], "depth": DEPTH},
    }
    return Qwen2Vl(RandomTensors(torch.float32), Config(published.path, values))


def _words_read(scale: float) -> float:
    reader = TextReader.load(ensure("pp-ocrv6"))
    read = printed = 0
    for sign in signs.load("report"):
        if sign.is_photo:
            continue
        pixels = np.frombuffer(sign.image.rgb, np.uint8)
        rgb = pixels.reshape(sign.image.height, sign.image.width, 3)
        if scale < 1:
            rgb = np.asarray(
                cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8
            )
        read += signs.words_found(sign.words, reader.read(rgb, GLANCE).text)
        printed += len(sign.words)
    return round(read / printed, 3)


def under_load(sizes: Sequence[Row]) -> list[Row]:
    """Each offered load, with the ladder. The same sizes give the same numbers each time."""
    costs = {row["side_px"]: row["encode_share"] for row in sizes}
    return [_one_load(offered, costs) for offered in OFFERED]


def _one_load(offered: float, costs: dict[int, float]) -> Row:
    ladder = Ladder()
    ladder.engine(0)
    sampler = Every([Refusal(ladder), Paced(ladder, FPS)])
    a_frame = offered * (1 - AUDIO_SHARE) / (FPS * CHUNK_MS / 1000)
    kept, refused, encoded = 0, 0, 0.0
    loads: list[float] = []
    behind = 0.0  # work of earlier chunks that is still to be done, in chunks
    without, behind_without = 0, 0.0
    stood: Counter[Rung] = Counter()
    for chunk in range(LASTS_S * 1000 // CHUNK_MS):
        load = offered * AUDIO_SHARE
        for number in range(round(FPS * CHUNK_MS / 1000)):
            at_ms = chunk * CHUNK_MS + number * 1000 / FPS
            verdict = sampler.judge(SampledFrame(at_ms))
            refused += verdict is FrameVerdict.REFUSED
            if verdict is not FrameVerdict.KEEP:
                continue
            sampler.keep(SampledFrame(at_ms))
            cost = costs[round(SIDES_PX[0] * SIDE_SHARES.get(ladder.rung, 1.0))]
            kept, encoded, load = kept + 1, encoded + cost, load + a_frame * cost
        load += behind
        behind = max(0.0, load - 1)
        behind_without = max(0.0, behind_without + offered - 1)
        without += behind_without > 0
        loads.append(load)
        stood[ladder.rung] += 1
        ladder.load(load, round((chunk + 1) * CHUNK_MS * 1e6))
    camera = LASTS_S * FPS
    row = {
        "offered": offered,
        "rung": stood.most_common(1)[0][0].label,
        "frames": kept,
        "refused": refused,
        "frames_share": round(kept / camera, 3),
        "encode_share": round(encoded / camera, 3),
        "load_p50": round(statistics.median(loads), 2),
        "load_p95": round(float(np.percentile(loads, 95)), 2),
        "late_share": round(sum(load > 1 for load in loads) / len(loads), 3),
        "late_without": round(without / len(loads), 3),
    }
    report.say(str(row))
    return row
