"""A file's pictures: one per second of its video, or its cover once, as JPEG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import av
from av.container.input import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from headstart.talk.media.container import UNDECODABLE, Tally, decoded, parts
from headstart.talk.media.frame_image import to_jpeg, to_rgb

FRAME_INTERVAL_S = 1.0
BACKWARDS_S = 1.0
"""Timestamps that go back further have restarted; smaller steps back are disorder."""


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
    for frame in _decoded(path, moving=True):
        return frame.time
    return None


def frames(path: Path, *, moving: bool, start_s: float) -> Iterator[tuple[float, VideoFrame]]:
    """The frames shown at 0 s, 1 s, 2 s … with their times, or else the cover, at 0. `start_s`: the
    timestamp at which the file's time begins."""
    if not moving:
        for frame in _decoded(path, moving=False):
            yield 0.0, frame
            return
    next_s, last_s, lasts_s = 0.0, 0.0, 1 / 25
    for frame in _decoded(path, moving=True):
        at_s = last_s + lasts_s if frame.time is None else frame.time - start_s
        if at_s < last_s - BACKWARDS_S:
            start_s -= last_s + lasts_s - at_s
            at_s = last_s + lasts_s
        last_s = at_s = max(at_s, 0.0)
        if at_s >= next_s:
            next_s = (math.floor(at_s / FRAME_INTERVAL_S) + 1) * FRAME_INTERVAL_S
            yield at_s, frame


def _decoded(path: Path, *, moving: bool) -> Iterator[VideoFrame]:
    for container in parts(path):
        stream = stream_of(container, moving=moving)
        if stream is not None:
            found = decoded(container, stream, Tally())
            yield from (frame for frame in found if isinstance(frame, VideoFrame))


def jpegs(path: Path, *, moving: bool, start_s: float) -> Iterator[tuple[float, bytes]]:
    """`frames`, as JPEG; frames that cannot be converted are skipped."""
    for at_s, frame in frames(path, moving=moving, start_s=start_s):
        try:
            jpeg = to_jpeg(to_rgb(frame))
        except UNDECODABLE:
            continue
        yield at_s, jpeg
