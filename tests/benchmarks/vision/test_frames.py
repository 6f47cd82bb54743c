"""headstart.benchmarks.vision.frames: policies, rows and picture, without a model."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from headstart.benchmarks.vision import frames, frames_chart
from headstart.gateway.video.file_sampling import POLICIES


def test_every_policy_chooses_from_a_real_video() -> None:
    """In order, each frame once: 64 of the reference, 16 at most of a file's policies, and of a
    camera's no more than a turn may have; half of the latter or fewer at one frame a second."""
    path = frames.video_path("carphone_pristine")
    pictures = list(frames._pictures(path))
    counts = {}
    for name, choose in frames._policies().items():
        indexes = choose(path, pictures)
        assert indexes == sorted(set(indexes)), name
        assert 0 <= indexes[0] <= indexes[-1] < len(pictures), name
        counts[name] = len(indexes)
    assert counts.pop("uniform_64") == 64
    assert all(1 <= count <= 16 for count in counts.values()), counts
    assert {f"file_{policy}" for policy in POLICIES} <= counts.keys()
    assert counts["camera_motion"] <= counts["camera_load"]


def shown(count: int, answer: str) -> dict[str, Any]:
    tokens = 17 * count
    times = {"ttft_ms": 10.0 * count, "first_ms": 2.0 * count, "cpu_ms": 5.0 * count}
    texts = {"answers": ("yes", answer), "choose_ms": 1.0}
    return {"frames": count, "tokens": tokens, "kv_bytes": 24 * tokens, **times, **texts}


def test_a_row_compares_with_the_64_frames() -> None:
    """Shares of sums over all videos, and of equal answers over all questions."""
    videos = [
        {"policies": {"uniform_64": shown(64, "a cup"), "camera_motion": shown(8, "a cup")}},
        {"policies": {"uniform_64": shown(64, "a car"), "camera_motion": shown(24, "a bus")}},
    ]
    row = frames._row("camera_motion", videos)
    assert (row["policy"], row["frames"]) == ("camera_motion", 32)
    assert row["frames_share"] == row["kv_share"] == row["ttft_share"] == 0.25
    assert row["same_answers"] == 0.75


def test_the_picture_is_one() -> None:
    """Well-formed, with a name and two bars for each row, and the bands of the thesis."""
    rows = [
        {"policy": name, "ttft_share": share, "kv_share": share / 2}
        for name, share in (("uniform_64", 1.0), ("camera_<x>", 0.2))
    ]
    root = ElementTree.fromstring(frames_chart.svg(rows, frames.THESIS))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"uniform_64", "camera_<x>"} <= set(texts)
    bands = [r for r in root.iter("{http://www.w3.org/2000/svg}rect") if "opacity" in r.attrib]
    assert len(bands) == len(frames.THESIS)


def test_an_unknown_video_is_named() -> None:
    """What was expected, and what came."""
    with pytest.raises(FileNotFoundError, match=r"expected some of bikes.* got nonsense"):
        frames._paths(["nonsense"])
