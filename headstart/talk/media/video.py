"""A file's pictures: one per second of its video, or its cover once, as JPEG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
from av.container.input import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from headstart.talk.media.container import UNDECODABLE, Tally, decoded, parts
from headstart.talk.media.frame_image import to_jpeg, to_rgb
from headstart.talk.media.frame_times import FrameTimes
from headstart.talk.media.losses import Losses

FRAME_INTERVAL_S = 1.0


def is_cover(video: VideoStream) -> bool:
    """Whether the stream is a cover image, not a video."""
    return bool(video.disposition & av.stream.Disposition.attached_pic)


def stream_of(container: InputContainer, *, moving: bool) -> VideoStream | None:
    """The first video stream, or the first cover."""
    videos = (video for video in container.streams.video if is_cover(video) != moving)
    return next(videos, None)


def first_s(path: Path) -> float | None:
    """The first timestamp of the video in s. None: nothing of it can be decoded, or it has no
    timestamps."""
    for frame, _ in _decoded(path, Tally(), moving=True):
        return frame.time
    return None


@dataclass
class Shown:
    """What became of a file's moving pictures: how many could be decoded, and what was lost.
    `file_s`: the file's length."""

    file_s: float = 0.0
    frames: int = 0
    losses: Losses = field(default_factory=Losses)


def frames(
    path: Path, *, moving: bool, start_s: float, shown: Shown | None = None
) -> Iterator[tuple[float, VideoFrame, Fraction | None]]:
    """At most one frame a second, each once however long it stands, with the time at which it is
    shown and the shape of its pixels, width by height: one that comes sooner waits, and is shown if
    it still stands then. Or else the cover, at 0. `start_s`: the timestamp at which the file's time
    begins; `shown` takes note of moving ones."""
    tally = Tally()
    if not moving:
        for frame, aspect in _decoded(path, tally, moving=False):
            yield 0.0, frame, aspect
            return
    shown = shown or Shown()
    times = FrameTimes(tally, shown.losses, -start_s, least_s=0.0, last_s=0.0)
    held: tuple[VideoFrame, Fraction | None] | None = None
    due_s = -math.inf  # from when on the next one may be shown
    for frame, aspect in _decoded(path, tally, moving=True):
        if times.is_damaged(frame):
            continue
        at_s = times.place(frame.time)
        shown.frames += 1
        if held is not None and at_s > due_s:
            yield due_s, *held
            held, due_s = None, due_s + FRAME_INTERVAL_S
        if at_s < due_s:
            held = frame, aspect
            continue
        held, due_s = None, at_s + FRAME_INTERVAL_S
        yield at_s, frame, aspect
    if held is not None and due_s <= shown.file_s - FRAME_INTERVAL_S / 2:
        yield due_s, *held
    if not shown.frames or tally.ended_early:
        times.break_off()
    times.end(shown.file_s)


def _decoded(
    path: Path, tally: Tally, *, moving: bool
) -> Iterator[tuple[VideoFrame, Fraction | None]]:
    for container in parts(path):
        stream = stream_of(container, moving=moving)
        if stream is not None:
            for frame in decoded(container, stream, tally):
                if isinstance(frame, VideoFrame):
                    yield frame, stream.codec_context.sample_aspect_ratio


def jpegs(
    path: Path, *, moving: bool, start_s: float, shown: Shown | None = None
) -> Iterator[tuple[float, bytes]]:
    """`frames`, as JPEG; frames that cannot be converted are skipped."""
    for at_s, frame, aspect in frames(path, moving=moving, start_s=start_s, shown=shown):
        try:
            jpeg = to_jpeg(to_rgb(frame, aspect))
        except UNDECODABLE:
            continue
        yield at_s, jpeg
