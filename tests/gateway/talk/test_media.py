import io
from pathlib import Path

import av
import numpy as np
import pytest

from gateway.errors import (
    FileEmpty,
    FileMissing,
    FileTruncated,
    FileUndecodable,
    MediaError,
    NoAudio,
)
from gateway.talk.media import AudioPacket, JpegFrame, play, probe, silence
from tests.gateway.talk.media_files import (
    TONE_HZ,
    cut,
    write_audio,
    write_quiet,
    write_video_only,
)

FORMATS = [
    ("a.wav", "pcm_s16le", 8000, "mono"),
    ("b.wav", "pcm_s16le", 48000, "stereo"),
    ("a.mp3", "mp3", 44100, "stereo"),
    ("a.ogg", "libopus", 48000, "stereo"),
    ("a.mp4", "aac", 44100, "stereo"),
    ("a.flac", "flac", 16000, "mono"),
    ("a.mkv", "aac", 16000, "mono"),
]


@pytest.mark.parametrize(("name", "codec", "rate_hz", "layout"), FORMATS)
def test_any_format_becomes_24_khz_mono(
    name: str, codec: str, rate_hz: int, layout: str, tmp_path: Path
) -> None:
    """Same length (but for the codec's padding), same pitch, same loudness, whole packets."""
    clip = probe(write_audio(tmp_path / name, codec, rate_hz, layout))
    assert clip.duration_s == pytest.approx(1.0, abs=0.08)
    packets = [part for part in play(clip, 40, frames=False) if isinstance(part, AudioPacket)]
    assert {len(packet.pcm) for packet in packets[:-1]} == {2 * 24 * 40}
    assert [packet.start_ms for packet in packets] == [40.0 * i for i in range(len(packets))]
    wave = np.frombuffer(b"".join(packet.pcm for packet in packets), np.int16)
    assert len(wave) / 24000 == pytest.approx(clip.duration_s, abs=0.005)
    middle = wave[6000:18000].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle))
    assert np.argmax(spectrum) * 24000 / len(middle) == pytest.approx(TONE_HZ, abs=2)
    assert np.sqrt((middle**2).mean()) == pytest.approx(8192 / np.sqrt(2), rel=0.1)


def test_pictures_come_each_second_at_their_times(tmp_path: Path) -> None:
    """2.5 s of video give the pictures of 0, 1 and 2 s, each before the sound of its instant."""
    clip = probe(write_audio(tmp_path / "v.mp4", "aac", 16000, duration_s=2.5, video_s=2.5))
    assert clip.has_video
    parts = list(play(clip, 100, frames=True))
    pictures = [part for part in parts if isinstance(part, JpegFrame)]
    assert [picture.start_ms for picture in pictures] == [0.0, 1000.0, 2000.0]
    assert [part.start_ms for part in parts] == sorted(part.start_ms for part in parts)
    assert isinstance(parts[0], JpegFrame)
    levels = [_mean_level(picture.jpeg) for picture in pictures]
    assert levels == pytest.approx([0, 80, 160], abs=6)
    assert not any(isinstance(part, JpegFrame) for part in play(clip, 100, frames=False))


def _mean_level(jpeg: bytes) -> float:
    with av.open(io.BytesIO(jpeg), "r") as container:
        return float(next(container.decode(video=0)).to_ndarray(format="gray").mean())


@pytest.mark.parametrize(("name", "codec"), [
    ("a.wav", "pcm_s16le"), ("a.mp3", "mp3"), ("a.ogg", "libopus"), ("a.mp4", "aac"),
    ("a.flac", "flac"), ("a.mkv", "aac"),
])  # fmt: skip
def test_half_a_file_is_truncated(name: str, codec: str, tmp_path: Path) -> None:
    """Half of the bytes is noticed in every container, and named with how much is there."""
    whole = write_audio(tmp_path / name, codec, 48000, duration_s=3.0)
    with pytest.raises(FileTruncated, match="is truncated"):
        probe(cut(whole, 0.5))


def test_mp4_without_its_index_does_not_decode(tmp_path: Path) -> None:
    """A cut MP4 whose index was at the end cannot even be opened."""
    whole = write_audio(tmp_path / "a.m4a", "aac", 16000)
    with pytest.raises(FileUndecodable, match="cut short"):
        probe(cut(whole, 0.5))


def test_streamed_wav_declares_nothing(tmp_path: Path) -> None:
    """A WAV from a pipe carries no length; it is not called truncated."""
    path = write_audio(tmp_path / "a.wav", "pcm_s16le", 8000)
    data = bytearray(path.read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert probe(path).duration_s == pytest.approx(1.0)


def test_useless_files_have_their_names(tmp_path: Path) -> None:
    """Missing, folder, 0 bytes, text, no audio, no samples: each its own error and sentence."""
    empty = tmp_path / "empty.wav"
    empty.touch()
    text = tmp_path / "text.wav"
    text.write_text("this is not sound\n" * 100)
    mute = write_quiet(tmp_path / "mute.wav", 0.0)
    cases: list[tuple[Path, type[MediaError], str]] = [
        (tmp_path / "none.wav", FileMissing, "there is no such file"),
        (tmp_path, FileMissing, "is a folder"),
        (empty, FileEmpty, "0 bytes"),
        (text, FileUndecodable, "is no sound or video file"),
        (write_video_only(tmp_path / "v.mp4"), NoAudio, "it holds video"),
        (mute, NoAudio, "without a single sample"),
    ]
    for path, error, sentence in cases:
        with pytest.raises(error, match=sentence) as raised:
            probe(path)
        assert str(raised.value).startswith(str(path))


def test_silence_has_its_length() -> None:
    """Whole samples of zero."""
    assert silence(40) == bytes(2 * 24 * 40)
    assert len(silence(0.7)) % 2 == 0
