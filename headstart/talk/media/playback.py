"""Any file that PyAV opens, as 24 kHz mono PCM16 packets and JPEG frames in time order.

`probe` decodes the first minute of the audio, storing nothing, so that the faults of a shorter file
are reported before anything is sent; those further on, and pictures that cannot be decoded, are
told when it was played (`Play.remarks`).
Whatever can be played is played, and `MediaFile.remarks` describes the faults;
only a file without any audio is refused: `gateway.errors.MediaError` and subclasses.

"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
from av.audio.stream import AudioStream
from av.container.input import InputContainer

from headstart.gateway.errors import (
    FileEmpty,
    FileMissing,
    FileTruncated,
    FileUndecodable,
    MediaError,
    NoAudio,
)
from headstart.talk.media.audio import (
    AS_IT_IS,
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    Heard,
    Mixing,
    pieces,
    to_pcm,
)
from headstart.talk.media.container import (
    ogg_has_end,
    opened,
    parts,
    wav_data_bytes,
    why_no_file,
    xing_s,
)
from headstart.talk.media.gaps import Gaps, beginning_s
from headstart.talk.media.losses import LOST_MIN_S
from headstart.talk.media.times import clock
from headstart.talk.media.video import Shown, first_s, jpegs, stream_of

PROBED_S = 60.0
"""How much of a file's sound is decoded before it is played."""
MISSING_S = 0.3
MISSING_SHARE = 0.03
"""A file is truncated when more than both of these are missing of its declared duration; encoders'
padding and rounding stay below."""
CORRUPT_SHARE_MAX = 0.05
"""Packets that may fail to decode without a remark; players skip a few too."""
BROKEN_SHARE_MAX = 0.5
"""Samples that may be NaN or infinite; with more, the rest is useless."""
CLIPPED_SHARE_MAX = 0.1
QUIET_DBFS = -40.0
"""Speech peaks some 15 dB over its level, and below -55 the voice detector takes none for it."""
PICTURES_AFTER_S = 60.0
"""Images this long after the last audio have wrong timestamps, or are of no use."""
WAV_STREAMED_BYTES = 0x7FFF_0000
"""Programs that write to a pipe put this or more, or 0, for an unknown length."""

# Containers that store their duration; others (raw AAC, …) only estimate it from the bit rate.
EXACT_CONTAINERS = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flac", "aiff", "w64")


@dataclass(frozen=True)
class MediaFile:
    """A probed file. `has_video`: moving pictures; a cover does not count. `stream`: the index of
    the audio stream; `start_s`: the timestamp at which its time begins; `remarks`: one sentence per
    fault of a file that is played anyway. `duration_s`: of one that was not probed to its end
    (`probed_whole`) as the file says, or as far as it was probed. `declared_s`: what it says of its
    sound, if that is exact."""

    path: Path
    duration_s: float
    has_video: bool
    has_still: bool
    stream: int = 0
    start_s: float = 0.0
    mixing: Mixing = AS_IT_IS
    remarks: tuple[str, ...] = ()
    probed_whole: bool = True
    declared_s: float | None = None


@dataclass(frozen=True)
class AudioPacket:
    """s16le mono 24 kHz; `start_ms` from the clip's start."""

    start_ms: float
    pcm: bytes

    @property
    def end_ms(self) -> float:
        return self.start_ms + pcm_ms(len(self.pcm))


@dataclass(frozen=True)
class JpegFrame:
    """A picture, and when in its file it is shown."""

    start_ms: float
    jpeg: bytes


def pcm_ms(size_bytes: int) -> float:
    """Duration of s16 mono at `SAMPLE_RATE_HZ`."""
    return size_bytes / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ * 1000


def silence(ms: float) -> bytes:
    return bytes(BYTES_PER_SAMPLE * round(ms * SAMPLE_RATE_HZ / 1000))


def probe(path: Path) -> MediaFile:
    """Check a file, its sound up to `PROBED_S`. Raises a `MediaError` that says what is wrong."""
    _check_readable(path)
    with opened(path) as container:
        streams = _audio_streams(container, path)
        numbers = [stream.index for stream in streams]  # not usable after the container is closed
        moving = stream_of(container, moving=True) is not None
        still = stream_of(container, moving=False) is not None
        declared_s = _declared_s(path, container, streams[0])
        lasts_s = declared_s or (container.duration or 0) / av.time_base
    pictures_s = first_s(path) if moving else None
    for number in numbers:
        heard = _hear(path, number, pictures_s)
        if heard.wanted_scale != 1.0:
            heard = _hear(path, number, pictures_s, heard.wanted_scale)
        if heard.samples:
            break
    else:
        raise _nothing_heard(path, heard, declared_s)
    whole = heard.duration_s < PROBED_S
    declared_s = declared_s if number == numbers[0] else None
    remarks = [*_damage(path, heard, declared_s, to_the_end=whole), *_level_remarks(heard)]
    return MediaFile(
        path,
        heard.duration_s if whole else max(heard.duration_s, lasts_s),
        has_video=moving,
        has_still=moving or still,
        stream=number,
        start_s=beginning_s(heard.start_s, pictures_s),
        mixing=heard.mixing,
        remarks=tuple(f"{path.name} {remark}" for remark in remarks),
        probed_whole=whole,
        declared_s=declared_s,
    )


class Play:
    """An iterator over the clip's packets and, with `frames`, one image per second, in time order.
    Behind the last one, `remarks` has what only showed when it was played."""

    def __init__(self, clip: MediaFile, packet_ms: int, frames: bool) -> None:
        self.remarks: tuple[str, ...] = ()
        self._clip = clip
        self._heard = Heard(scale=clip.mixing.scale)
        self._shown = Shown(clip.duration_s)
        streams: list[Iterator[AudioPacket | JpegFrame]] = [_audio(clip, packet_ms, self._heard)]
        if frames and clip.has_still:
            streams.append(_frames(clip, self._shown))
        # At the same time the image comes first, so that it is seen while the audio is heard.
        self._parts = heapq.merge(
            *streams, key=lambda part: (part.start_ms, isinstance(part, AudioPacket))
        )

    def __iter__(self) -> Play:
        return self

    def __next__(self) -> AudioPacket | JpegFrame:
        part = next(self._parts, None)
        if part is not None:
            return part
        self.remarks = (*self.remarks, *self._late_remarks())
        raise StopIteration

    def _late_remarks(self) -> Iterator[str]:
        clip, heard = self._clip, self._heard
        for loss in self._shown.losses.take():
            yield f"{clip.path.name} is damaged: {loss}"
        if clip.probed_whole:
            return
        try:
            found = list(_damage(clip.path, heard, clip.declared_s))
        except FileUndecodable as error:
            yield str(error)
            return
        if heard.loudest_dbfs < QUIET_DBFS:
            found.append(_quiet(heard))
        named = (f"{clip.path.name} {remark}" for remark in found)
        yield from (remark for remark in named if remark not in clip.remarks)


def play(clip: MediaFile, packet_ms: int, frames: bool) -> Play:
    """Play a clip, see `Play`. It is decoded as it is asked for."""
    return Play(clip, packet_ms, frames)


def _check_readable(path: Path) -> None:
    if (reason := why_no_file(path)) is not None:
        raise FileMissing(str(path), f"{reason}: give the path of a sound or video file")
    if path.stat().st_size == 0:
        raise FileEmpty(str(path), "is empty: 0 bytes; record or copy it again")
    try:
        path.open("rb").close()
    except OSError as error:
        raise FileMissing(
            str(path), f"cannot be read ({error.strerror}): check its rights"
        ) from error


def _audio_streams(container: InputContainer, path: Path) -> list[AudioStream]:
    """The stream that a player would choose, then the others."""
    streams = list(container.streams.audio)
    if not streams:
        kinds = sorted({str(stream.type) for stream in container.streams})
        raise NoAudio(
            str(path),
            f"has no audio stream; it holds {', '.join(kinds) or 'nothing'}: give a file in which "
            "something is said",
        )
    known = [stream for stream in streams if stream.codec_context is not None]
    if not known:
        raise FileUndecodable(
            str(path), "its sound is in a format that is not known here: convert it, to WAV or MP3"
        )
    best = container.streams.best("audio")
    return sorted(known, key=lambda stream: stream is not best)


# --- audio --------------------------------------------------------------------------------------


def _hear(path: Path, stream: int, pictures_s: float | None, scale: float = 1.0) -> Heard:
    """Decode it once, up to `PROBED_S`, to find its properties."""
    heard = Heard(scale=scale)
    gaps = Gaps(beginning_s(_first_sound_s(path, stream), pictures_s))
    for container in parts(path):
        if stream < len(container.streams):
            for wave in pieces(container, container.streams[stream], heard, gaps):
                heard.weigh(wave)
                if heard.duration_s >= PROBED_S:
                    return heard
    return heard


def _first_sound_s(path: Path, stream: int) -> float | None:
    heard = Heard()
    with opened(path) as container:
        for _ in pieces(container, container.streams[stream], heard):
            break
    return heard.start_s


def _nothing_heard(path: Path, heard: Heard, declared_s: float | None) -> MediaError:
    if heard.strange_rate_hz is not None:
        return FileUndecodable(
            str(path),
            f"is damaged: it says that its sound has {heard.strange_rate_hz} samples a second; "
            "export it again",
        )
    if declared_s:
        return FileTruncated(
            str(path),
            f"is truncated: it says it lasts {declared_s:.2f} s, but none of its sound is there; "
            "copy it again",
        )
    if heard.corrupt or heard.ended_early:
        return FileUndecodable(
            str(path), "its audio does not decode at all: check that a media player plays it"
        )
    return NoAudio(
        str(path), "has an audio stream without a single sample: record or copy it again"
    )


def _damage(
    path: Path, heard: Heard, declared_s: float | None, *, to_the_end: bool = True
) -> Iterator[str]:
    """The faults found by decoding, perhaps not `to_the_end`. Raises `FileUndecodable` if it is not
    audio."""
    got_s = heard.duration_s
    if heard.broken_samples > BROKEN_SHARE_MAX * heard.decoded_samples:
        raise FileUndecodable(
            str(path),
            f"{heard.broken_samples} of its {heard.decoded_samples} samples are no numbers (NaN or "
            "infinite): export it again, as 16-bit PCM",
        )
    if heard.broken_samples:
        yield (
            f"has {heard.broken_samples} samples that are no numbers: there is silence in their "
            "place"
        )
    if not to_the_end:
        pass
    elif declared_s is not None and got_s < declared_s - max(MISSING_S, MISSING_SHARE * declared_s):
        yield (
            f"is truncated: it says it lasts {declared_s:.2f} s, but only {got_s:.2f} s are there; "
            "these are played"
        )
    elif _ends_early(path) or heard.ended_early:
        yield f"is truncated: it breaks off after {got_s:.2f} s of sound; these are played"
    if any(map(_is_told, heard.holes)):
        yield _holes(heard.holes)
    if heard.strange_rate_hz is not None:
        yield f"is damaged: sound at {heard.strange_rate_hz} Hz is left out"
    if heard.corrupt > max(1, CORRUPT_SHARE_MAX * heard.packets):
        yield f"is damaged: {heard.corrupt} of its {heard.packets} audio packets do not decode"


def _level_remarks(heard: Heard) -> Iterator[str]:
    if heard.scale != 1.0:
        yield (
            f"has samples up to {1 / heard.scale:.0f} where full scale is 1: all are divided by "
            "that"
        )
    if heard.offset != (0.0, 0.0):
        worst = max(heard.offset, key=abs)
        yield f"has a constant offset of {worst:.2f} of full scale, which is taken away"
    elif heard.clipped_samples > CLIPPED_SHARE_MAX * heard.samples:
        share = heard.clipped_samples / heard.samples
        yield f"is clipped: {share:.0%} of its samples are at full scale or beyond"
    if heard.loudest_dbfs < QUIET_DBFS and heard.duration_s < PROBED_S:
        yield _quiet(heard)


def _is_told(hole: tuple[float, float]) -> bool:
    """Whether somebody would miss it. Sound that begins later than pictures has no hole."""
    return hole[0] > 0 and hole[1] - hole[0] >= LOST_MIN_S


def _holes(holes: Sequence[tuple[float, float]]) -> str:
    (begin_s, end_s), *others = filter(_is_told, holes)
    more = f" (and {len(others)} times more)" if others else ""
    return f"has no sound from {clock(begin_s)} to {clock(end_s)}{more}: there is silence instead"


def _quiet(heard: Heard) -> str:
    return (
        f"is nearly silent: its loudest sample lies {-heard.loudest_dbfs:.0f} dB under full scale, "
        "too quiet to be heard as speech; record it louder"
    )


def _ends_early(path: Path) -> bool:
    with path.open("rb") as file:
        is_ogg = file.read(4) == b"OggS"
    return is_ogg and not ogg_has_end(path)


def _declared_s(path: Path, container: InputContainer, stream: AudioStream) -> float | None:
    """The duration that the file declares for its audio; None if it does not, or estimates it."""
    name = container.format.name
    if name == "wav":
        return _wav_declared_s(path, stream)
    if name == "mp3":
        return xing_s(path, stream.rate)
    if name not in EXACT_CONTAINERS:
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is None or len(container.streams) > 1:
        return None  # that of the longest stream
    # Matroska's is the last timestamp, wherever the first one is.
    return (container.duration - max(0, container.start_time or 0)) / av.time_base


def _wav_declared_s(path: Path, stream: AudioStream) -> float | None:
    """From the `data` chunk's own size, which the demuxer limits to the file's size."""
    size_bytes = wav_data_bytes(path)
    bytes_per_s = (stream.codec_context.bit_rate or 0) // 8
    if not size_bytes or size_bytes >= WAV_STREAMED_BYTES or not bytes_per_s:
        return None
    return size_bytes / bytes_per_s


def _audio(clip: MediaFile, packet_ms: int, heard: Heard) -> Iterator[AudioPacket]:
    """`heard` takes note of the faults."""
    packet_bytes = BYTES_PER_SAMPLE * SAMPLE_RATE_HZ * packet_ms // 1000
    sent_bytes = 0
    pending = bytearray()
    gaps = Gaps(clip.start_s)
    for container in parts(clip.path):
        if clip.stream >= len(container.streams):
            continue
        for wave in pieces(container, container.streams[clip.stream], heard, gaps):
            if not clip.probed_whole:
                heard.weigh(wave)
            pending += to_pcm(clip.mixing.apply(wave))
            while len(pending) >= packet_bytes:
                yield AudioPacket(pcm_ms(sent_bytes), bytes(pending[:packet_bytes]))
                sent_bytes += packet_bytes
                del pending[:packet_bytes]
    if pending:
        yield AudioPacket(pcm_ms(sent_bytes), bytes(pending))


# --- pictures -----------------------------------------------------------------------------------


def _frames(clip: MediaFile, shown: Shown) -> Iterator[JpegFrame]:
    """One frame a second of the video (`video.frames`), or else the cover once."""
    found = jpegs(clip.path, moving=clip.has_video, start_s=clip.start_s, shown=shown)
    for at_s, jpeg in found:
        if at_s > clip.duration_s + PICTURES_AFTER_S:
            return
        yield JpegFrame(at_s * 1000, jpeg)
