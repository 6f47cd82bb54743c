"""A recording, decoded part by part, forwards and once: 30 s of sound and pictures in memory.

Sound and pictures are read by two decoders of their own, so that neither waits for the other in a
badly interleaved file. What does not decode is skipped, and told as `Loss` with its times; where a
file cannot even be read on, reading starts again a little later in it.

Memory: the sound of a part (1.4 MB), and at most `MAX_FPS` small JPEGs for each second.

"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headstart.talk.long_file.audio_reader import AudioReader
from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.parts import Part, Plan
from headstart.talk.long_file.video_reader import Picture, VideoReader
from headstart.talk.media.losses import Loss, Losses


class ReadingStopped(Exception):
    """The reader was told to stop."""


@dataclass(frozen=True)
class PartMedia:
    """One part: s16le mono 24 kHz from `part.start_s` on, and all pictures of which some may be
    shown, in order. `losses`: newly noticed."""

    part: Part
    pcm: bytes
    pictures: tuple[Picture, ...]
    losses: tuple[Loss, ...] = ()


def read(
    info: FileInfo,
    plan: Plan,
    *,
    hear: bool = True,
    see: bool = True,
    find_scenes: bool = False,
    first: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[PartMedia]:
    """The parts from number `first` on, until the plan or the file ends. `find_scenes`: as in
    `VideoReader`. Raises `ReadingStopped` in the middle of a part once `stopped` says so."""

    def check() -> None:
        if stopped():
            raise ReadingStopped

    start_s = plan.part(first).start_s
    losses = Losses()
    audio = AudioReader(info, start_s, losses, check) if hear and info.sound is not None else None
    video = None
    if see and info.video is not None:
        video = VideoReader(info, start_s, plan.end_s, losses, check, find_scenes=find_scenes)
    for index in range(first, plan.count):
        part = plan.part(index)
        pcm = audio.until(part) if audio else b""
        pictures = video.until(part) if video else []
        if video and info.covers and index > first:
            pictures = []
        ended = (audio is None or audio.ended) and (video is None or video.ended or info.covers)
        if ended and not pcm and not pictures:
            missing_s = min(plan.end_s, info.duration_s)
            for what, there in (("sound", audio), ("pictures", None if info.covers else video)):
                if there:
                    losses.add(what, part.start_s, missing_s)
            lost = losses.take()
            if lost:
                yield PartMedia(part, b"", (), lost)
            return
        yield PartMedia(part, pcm, tuple(pictures), losses.take())
