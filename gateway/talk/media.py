"""Any file PyAV opens, as 24 kHz mono PCM16 packets and JPEG frames in time order.

`probe` decodes the audio once, storing nothing, so that every fault of a file has its name before
a server hears anything of it. Errors: `gateway.errors.MediaError` and below.
"""

from __future__ import annotations

import heapq
import itertools
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container.input import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from gateway.errors import FileEmpty, FileMissing, FileTruncated, FileUndecodable, NoAudio

SAMPLE_RATE_HZ = 24_000
BYTES_PER_SAMPLE = 2
FRAME_INTERVAL_S = 1.0
FRAME_SIDE_PX_MAX = 640
JPEG_QSCALE = "4"  # ffmpeg's scale: 2 is best, 31 worst
MISSING_S = 0.3
MISSING_SHARE = 0.03
"""A file is truncated when more than both of these are missing of its declared length: encoders'
padding and rounding stay below."""
CORRUPT_SHARE_MAX = 0.05
"""Packets that may fail to decode; players skip a few too."""
HEAD_BYTES = 8192
OGG_PAGE_BYTES_MAX = 65_307

# Containers that know their length; others (raw AAC, …) only guess it from the bit rate.
EXACT_CONTAINERS = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flac", "aiff", "w64")


@dataclass(frozen=True)
class Clip:
    """A file that has been probed. `has_video`: moving pictures; a cover picture does not count."""

    path: Path
    duration_s: float
    has_video: bool
    has_still: bool


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
    start_ms: float
    jpeg: bytes


def pcm_ms(size_bytes: int) -> float:
    return size_bytes / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ * 1000


def silence(ms: float) -> bytes:
    return bytes(BYTES_PER_SAMPLE * round(ms * SAMPLE_RATE_HZ / 1000))


def probe(path: Path) -> Clip:
    """Check a file from end to end. Raises a `MediaError` that says what is wrong with it."""
    if not path.is_file():
        kind = "is a folder, not a file" if path.is_dir() else "there is no such file"
        raise FileMissing(str(path), kind)
    if path.stat().st_size == 0:
        raise FileEmpty(str(path), "is empty: 0 bytes")
    with _open(path) as container:
        stream = _audio_stream(container, path)
        videos = [video for video in container.streams.video if not _is_cover(video)]
        tally = _Tally()
        rate_hz = stream.rate
        samples = sum(frame.samples for frame in _decode(container, stream, path, tally))
        duration_s = samples / rate_hz if rate_hz else 0.0
        clip = Clip(path, duration_s, bool(videos), bool(container.streams.video))
        _judge(path, container, stream, duration_s, tally)
    return clip


def play(clip: Clip, packet_ms: int, frames: bool) -> Iterator[AudioPacket | JpegFrame]:
    """The clip's packets and, with `frames`, one picture a second, in time order."""
    streams: list[Iterator[AudioPacket | JpegFrame]] = [_audio(clip.path, packet_ms)]
    if frames and clip.has_still:
        streams.append(_frames(clip.path, clip.has_video))
    # At the same instant the picture comes first: it is seen while the sound is heard.
    return heapq.merge(*streams, key=lambda part: (part.start_ms, isinstance(part, AudioPacket)))


# --- audio --------------------------------------------------------------------------------------


@dataclass
class _Tally:
    packets: int = 0
    corrupt: int = 0
    last_was_corrupt: bool = False


def _open(path: Path) -> InputContainer:
    try:
        return av.open(str(path))
    except (av.FFmpegError, ValueError) as error:
        raise FileUndecodable(
            str(path), f"is no sound or video file, or is cut short ({_words(error)})"
        ) from error


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _audio_stream(container: InputContainer, path: Path) -> AudioStream:
    if not container.streams.audio:
        kinds = sorted({str(stream.type) for stream in container.streams})
        raise NoAudio(str(path), f"has no audio stream; it holds {', '.join(kinds) or 'nothing'}")
    return container.streams.audio[0]


def _is_cover(video: VideoStream) -> bool:
    return bool(video.disposition & av.stream.Disposition.attached_pic)


def _decode(
    container: InputContainer, stream: AudioStream, path: Path, tally: _Tally
) -> Iterator[av.AudioFrame]:
    """Decoded frames; packets that do not decode are counted and passed over."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            if packet is None:
                return
            tally.packets += 1
            tally.last_was_corrupt = False
            decoded = packet.decode()
        except av.FFmpegError as error:
            tally.corrupt += 1
            tally.last_was_corrupt = True
            if tally.corrupt == tally.packets > 10:
                raise FileUndecodable(
                    str(path), f"its audio does not decode ({_words(error)})"
                ) from error
            continue
        yield from (frame for frame in decoded if isinstance(frame, av.AudioFrame))


def _judge(
    path: Path, container: InputContainer, stream: AudioStream, got_s: float, tally: _Tally
) -> None:
    """Raise for what decoding showed."""
    declared_s = _declared_s(path, container, stream)
    if declared_s is not None and got_s < declared_s - max(MISSING_S, MISSING_SHARE * declared_s):
        raise FileTruncated(
            str(path),
            f"is truncated: it says it lasts {declared_s:.2f} s, but only {got_s:.2f} s are there",
        )
    if container.format.name == "ogg" and not _ogg_has_end(path):
        raise FileTruncated(str(path), f"is truncated: no end mark after {got_s:.2f} s of audio")
    if tally.corrupt > max(1, CORRUPT_SHARE_MAX * tally.packets):
        raise FileUndecodable(
            str(path), f"{tally.corrupt} of its {tally.packets} audio packets do not decode"
        )
    if got_s == 0.0:
        raise NoAudio(str(path), "has an audio stream without a single sample")


def _declared_s(path: Path, container: InputContainer, stream: AudioStream) -> float | None:
    """How long the file itself says it lasts; None where it does not, or only guesses."""
    name = container.format.name
    if name == "wav":
        return _wav_declared_s(path, stream)
    if name == "mp3":
        head = _head(path)
        if b"Xing" not in head and b"Info" not in head:
            return None
    elif name not in EXACT_CONTAINERS:
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return container.duration / av.time_base if container.duration else None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _wav_declared_s(path: Path, stream: AudioStream) -> float | None:
    """From the `data` chunk's own size, which the demuxer clips to the file's. Streamed WAVs carry
    0 or 2³²-1 there, which declares nothing."""
    with path.open("rb") as file:
        size_bytes = _wav_data_bytes(file)
    bytes_per_s = stream.codec_context.bit_rate // 8 if stream.codec_context.bit_rate else 0
    if size_bytes in (None, 0, 0xFFFFFFFF) or not bytes_per_s:
        return None
    assert size_bytes is not None
    return size_bytes / bytes_per_s


def _wav_data_bytes(file: BinaryIO) -> int | None:
    if file.read(4) != b"RIFF":
        return None
    file.seek(12)
    while len(header := file.read(8)) == 8:
        name, size = struct.unpack("<4sI", header)
        if name == b"data":
            return int(size)
        file.seek(size + size % 2, 1)
    return None


def _ogg_has_end(path: Path) -> bool:
    """Whether the last page carries the end-of-stream flag (RFC 3533 §6: byte 5, bit 2)."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - OGG_PAGE_BYTES_MAX))
        tail = file.read()
    last = tail.rfind(b"OggS")
    return last >= 0 and len(tail) > last + 5 and bool(tail[last + 5] & 4)


def _audio(path: Path, packet_ms: int) -> Iterator[AudioPacket]:
    packet_bytes = BYTES_PER_SAMPLE * SAMPLE_RATE_HZ * packet_ms // 1000
    sent_bytes = 0
    pending = bytearray()
    with _open(path) as container:
        stream = _audio_stream(container, path)
        resampler = AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE_HZ)
        for frame in itertools.chain(_decode(container, stream, path, _Tally()), [None]):
            for piece in resampler.resample(frame):
                pending += piece.to_ndarray().tobytes()
            while len(pending) >= packet_bytes:
                yield AudioPacket(pcm_ms(sent_bytes), bytes(pending[:packet_bytes]))
                sent_bytes += packet_bytes
                del pending[:packet_bytes]
    if pending:
        yield AudioPacket(pcm_ms(sent_bytes), bytes(pending))


# --- pictures -----------------------------------------------------------------------------------


def _frames(path: Path, moving: bool) -> Iterator[JpegFrame]:
    """The picture shown at 0 s, 1 s, 2 s … of the moving stream, or else the still one once."""
    with _open(path) as container:
        videos = [video for video in container.streams.video if _is_cover(video) != moving]
        next_s = 0.0
        for frame in container.decode(videos[0]):
            start_s = frame.time or 0.0
            if start_s >= next_s:
                next_s = (math.floor(start_s / FRAME_INTERVAL_S) + 1) * FRAME_INTERVAL_S
                yield JpegFrame(start_s * 1000, encode_jpeg(frame))


def encode_jpeg(frame: VideoFrame) -> bytes:
    """The picture as JPEG, its longer side at most `FRAME_SIDE_PX_MAX`."""
    scale = min(1.0, FRAME_SIDE_PX_MAX / max(frame.width, frame.height))
    # Even sides, for chroma at half resolution.
    width, height = (max(2, round(side * scale / 2) * 2) for side in (frame.width, frame.height))
    encoder = av.CodecContext.create("mjpeg", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuvj420p"
    encoder.time_base = Fraction(1)
    encoder.options = {"qmin": JPEG_QSCALE, "qmax": JPEG_QSCALE}
    picture = frame.reformat(width=width, height=height, format="yuvj420p")
    picture.pts = None
    packets = [*encoder.encode(picture), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)
