"""The pictures of a recording, part by part: some of each second, scored and as JPEG."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from headstart.gateway.video.file_sampling import MAX_FPS, Candidate, Scanner
from headstart.talk.long_file.damage import Position, passes
from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.likeness import look_alike
from headstart.talk.long_file.parts import Part
from headstart.talk.media.container import UNDECODABLE, Tally, decoded
from headstart.talk.media.frame_image import to_jpeg, to_rgb
from headstart.talk.media.frame_times import FrameTimes
from headstart.talk.media.losses import Losses

SIDE_PX = 960
"""Of a picture's longer side: print that fills a fortieth of a slide's height is read at that."""
THREADS_MAX = 4
SKIPS_FROM_FPS = 12.0
"""From this rate on, frames that no other frame refers to are not decoded: enough are left."""


@dataclass(frozen=True)
class Picture:
    """A picture that may be shown. One that looks like the one before has its JPEG and `at_s`: the
    time of the recording at which this look began, or of the beginning of the part."""

    candidate: Candidate
    jpeg: bytes
    at_s: float


class VideoReader:
    """Up to `MAX_FPS` pictures a second from `start_s` of the recording on. What is shown at a
    part's beginning counts as its first, however long ago it came: a slide may stand for minutes.
    `find_scenes`: also look for cuts, in every frame. `check` is called for each frame, and may
    raise."""

    def __init__(
        self,
        info: FileInfo,
        start_s: float,
        end_s: float,
        losses: Losses,
        check: Callable[[], None],
        *,
        find_scenes: bool,
    ) -> None:
        self._info, self._start_s, self._end_s, self._losses = info, start_s, end_s, losses
        self._check, self._find_scenes = check, find_scenes
        self._scanner = Scanner()
        self._held: deque[Picture] = deque()
        self._before: Picture | None = None  # the newest before `_held`
        self._pending: Picture | None = None
        self._reached_s = start_s  # the newest frame's time
        self._pictures = self._decoded()
        self.ended = False

    def until(self, part: Part) -> list[Picture]:
        """The part's pictures, in order."""
        while self._held and self._held[0].candidate.at_s < part.start_s:
            self._before = self._held.popleft()
        while not self.ended:
            picture = self._pending or next(self._pictures, None)
            self._pending = None
            if picture is None:
                self.ended = True
            elif picture.candidate.at_s >= part.end_s:
                self._pending = picture
                break
            elif picture.candidate.at_s < part.start_s:
                self._before = picture
            else:
                self._held.append(picture)
        found = list(self._held)
        late = not found or found[0].candidate.at_s > part.start_s + 1 / MAX_FPS
        is_over = self.ended and self._reached_s < part.start_s
        if self._before is not None and late and not is_over:
            standing = replace(self._before.candidate, at_s=part.start_s, motion=0.0)
            found.insert(0, Picture(standing, self._before.jpeg, part.start_s))
        candidates = [picture.candidate for picture in found]
        if self._find_scenes:
            candidates = self._scanner.in_scenes(candidates)
        return [
            Picture(candidate, picture.jpeg, max(picture.at_s, part.start_s))
            for candidate, picture in zip(candidates, found, strict=True)
        ]

    def _decoded(self) -> Iterator[Picture]:
        encoded: Picture | None = None
        for at_s, frame, aspect in self._timed():
            if at_s > self._end_s:  # the one shown at the end may have come before it
                return
            try:
                if self._find_scenes:
                    self._scanner.watch_for_cuts(at_s, frame)
                if not self._scanner.is_due(at_s):
                    continue
                pixels = to_rgb(frame, aspect, SIDE_PX)
                candidate = self._scanner.score(at_s, pixels)
                if encoded is None or not look_alike(encoded.candidate, candidate):
                    encoded = Picture(candidate, to_jpeg(pixels), at_s)
            except UNDECODABLE:
                continue
            yield Picture(candidate, encoded.jpeg, encoded.at_s)

    def _timed(self) -> Iterator[tuple[float, VideoFrame, Fraction | None]]:
        """Frames with their times in the recording, losses noted."""
        info = self._info
        assert info.video is not None
        tally = Tally()
        at = Position(tally)
        lasts_s = 1 / max(info.fps, 1.0)
        times = FrameTimes(tally, self._losses, -info.start_s, self._start_s, lasts_s)
        for container in passes(info, info.video, self._start_s, at):
            stream = container.streams[info.video]
            assert isinstance(stream, VideoStream)
            context = self._decoder_of(stream)
            again = at.is_again
            for frame in decoded(container, stream, tally):
                self._check()
                if not isinstance(frame, VideoFrame) or times.is_damaged(frame):
                    continue
                stamp_s = _stamp_s(frame)
                if stamp_s is not None:
                    at.time_s = stamp_s
                    if again and times.has_passed(stamp_s):
                        continue
                if again:
                    again = False
                    times.break_off()  # reading did, before this frame
                self._reached_s = times.place(stamp_s)
                yield self._reached_s, frame, context.sample_aspect_ratio
        times.end(min(self._end_s, info.duration_s))

    def _decoder_of(self, stream: VideoStream) -> VideoCodecContext:
        """The stream's decoder, in as many threads and with as few frames as are needed."""
        context = stream.codec_context
        context.thread_type = "AUTO"
        context.thread_count = min(THREADS_MAX, os.cpu_count() or 1)
        if self._info.fps >= SKIPS_FROM_FPS:
            context.skip_frame = "NONREF"
        return context


def _stamp_s(frame: VideoFrame) -> float | None:
    """None for a frame without a time, which PyAV's types do not know of."""
    return frame.time
