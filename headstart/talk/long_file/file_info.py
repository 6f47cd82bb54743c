"""What a file's header says, without decoding all of it: ten hours are opened like ten seconds.

A fault that shows only later is told when it is met (`damage.Loss`). Raises
`gateway.errors.MediaError`s.

"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import av
from av.container.input import InputContainer

from headstart.gateway.errors import FileEmpty, FileMissing, MediaError
from headstart.talk.media.container import UNDECODABLE, ogg_links, opened, parts, why_no_file
from headstart.talk.media.times import clock
from headstart.talk.media.video import is_cover

LARGE_PX = 3840 * 2160
_HDR = {16: "PQ", 18: "HLG"}  # ITU-T H.273, transfer characteristics
_PROGRESSIVE = 1  # of FFmpeg's field orders; 0: unknown


class NothingToSee(MediaError):
    """A file with neither moving pictures nor sound, or none in the range asked for."""


@dataclass(frozen=True)
class FileInfo:
    """`start_s`: the timestamp at which the file's time begins. `sound`, `video`: indices of the
    streams; None: there is none, or none whose codec is known. `covers`: whether that video is a
    still, shown all the time. `remarks`: sentences about what is unusual."""

    path: Path
    duration_s: float
    start_s: float
    sound: int | None
    video: int | None
    width: int = 0
    height: int = 0
    fps: float = 0.0
    hdr: str = ""
    covers: bool = False
    remarks: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, object]:
        return {
            "file": str(self.path),
            "duration_s": round(self.duration_s, 3),
            "has_sound": self.sound is not None,
            "has_video": self.video is not None and not self.covers,
            "width": self.width,
            "height": self.height,
            "fps": round(self.fps, 3),
            "hdr": self.hdr or None,
            "remarks": list(self.remarks),
        }


def read_info(path: Path) -> FileInfo:
    """Read a file's header. Raises a `MediaError` that says what is wrong with it."""
    _check_readable(path)
    with opened(path) as container:
        remarks: list[str] = []
        sound, sound_from_s = _sound(container, remarks)
        moving = [v for v in container.streams.video if not is_cover(v)]
        videos = moving or [v for v in container.streams.video if is_cover(v)]
        known = [v for v in videos if v.codec_context is not None]
        if videos and not known:
            remarks.append("its pictures are in a format that is not known here: only its sound")
        video = known[0] if known else None
        if sound is None and video is None:
            kinds = sorted({str(stream.type) for stream in container.streams})
            holds = ", ".join(kinds) or "nothing"
            raise NothingToSee(str(path), f"has nothing to see or hear; it holds {holds}")
        starts_s = [s for s in (sound_from_s, _starts_s(video)) if s is not None]
        start_s = min(starts_s, default=0.0) if not _unrelated(starts_s) else starts_s[0]
        duration_s = _whole_s(path, container)
        if not duration_s:
            remarks.append("it does not say how long it is: it was read once to find out")
            duration_s = _measured_s(container, start_s)
        if video is None:
            return FileInfo(path, duration_s, start_s, sound, None, remarks=tuple(remarks))
        context = video.codec_context
        hdr = _HDR.get(int(context.color_trc or 0), "")
        fps = float(video.average_rate or video.guessed_rate or 0)
        if hdr:
            remarks.append(f"its pictures have a high dynamic range ({hdr}): they are tone-mapped")
        if int(context.field_order) > _PROGRESSIVE:
            remarks.append("its pictures are interlaced: one field of each is used")
        if context.width * context.height > LARGE_PX:
            size = f"{context.width} x {context.height}"
            remarks.append(f"its pictures are large ({size}): decoding them takes long")
        return FileInfo(
            path,
            duration_s,
            start_s,
            sound,
            video.index,
            width=context.width,
            height=context.height,
            fps=fps,
            hdr=hdr,
            covers=is_cover(video),
            remarks=tuple(remarks),
        )


def within(info: FileInfo, from_s: float, to_s: float | None) -> tuple[float, float]:
    """The range to look at. Raises `NothingToSee` if it lies outside of the file."""
    end_s = info.duration_s
    until_s = end_s if to_s is None else min(to_s, end_s)
    if from_s < 0 or until_s <= from_s:
        to = "the end" if to_s is None else clock(to_s)
        raise NothingToSee(
            str(info.path),
            f"has nothing from {clock(from_s)} to {to}: it lasts {clock(end_s)}",
        )
    return from_s, until_s


def _check_readable(path: Path) -> None:
    if (reason := why_no_file(path)) is not None:
        raise FileMissing(str(path), f"{reason}: give the path of a video or sound file")
    if path.stat().st_size == 0:
        raise FileEmpty(str(path), "is empty: 0 bytes; record or copy it again")


def _sound(container: InputContainer, remarks: list[str]) -> tuple[int | None, float | None]:
    streams = [s for s in container.streams.audio if s.codec_context is not None]
    if container.streams.audio and not streams:
        remarks.append("its sound is in a format that is not known here: it is not heard")
    if not streams:
        return None, None
    best = container.streams.best("audio")
    stream = next((s for s in streams if s is best), streams[0])
    return stream.index, _starts_s(stream)


def _starts_s(stream: av.stream.Stream | None) -> float | None:
    if stream is None or stream.start_time is None or stream.time_base is None:
        return None
    return float(stream.start_time * stream.time_base)


def _unrelated(starts_s: list[float]) -> bool:
    """Streams that begin more than a minute apart have clocks of their own."""
    return bool(starts_s) and max(starts_s) - min(starts_s) > 60


def _whole_s(path: Path, container: InputContainer) -> float:
    """Of a chained Ogg all links together: each says how long it is itself."""
    if len(ogg_links(path)) > 1:
        return sum(_duration_s(link) for link in parts(path))
    return _duration_s(container)


def _duration_s(container: InputContainer) -> float:
    lengths_s = [
        float(stream.duration * stream.time_base)
        for stream in (*container.streams.audio, *container.streams.video)
        if stream.duration and stream.time_base
    ]
    if lengths_s:
        return max(lengths_s)
    return (container.duration or 0) / av.time_base


def _measured_s(container: InputContainer, start_s: float) -> float:
    """The end of the last packet, without decoding any."""
    end_s, counts = 0.0, Counter[int]()
    with contextlib.suppress(*UNDECODABLE):
        for packet in container.demux():
            if packet.size:
                counts[packet.stream_index] += 1
            if packet.pts is not None and packet.time_base is not None:
                until = packet.pts + (packet.duration or 0)
                end_s = max(end_s, float(until * packet.time_base) - start_s)
    if end_s > 0:
        return end_s
    rates = [
        (v.index, float(v.average_rate or v.guessed_rate or 25)) for v in container.streams.video
    ]
    return max((counts[index] / rate for index, rate in rates), default=0.0)
