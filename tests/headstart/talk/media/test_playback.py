import contextlib
import io
import os
import random
import re
import struct
import wave
from pathlib import Path

import av
import numpy as np
import pytest

from headstart.gateway.errors import (
    FileEmpty,
    FileMissing,
    FileTruncated,
    FileUndecodable,
    MediaError,
    NoAudio,
)
from headstart.talk.media.audio import SAMPLE_RATE_HZ, Heard
from headstart.talk.media.playback import AudioPacket, JpegFrame, MediaFile, play, probe, silence
from tests.headstart.talk.long_file.video_files import (
    break_middle,
    noise,
    write_empty_video,
    write_video,
)
from tests.headstart.talk.media_files import (
    TONE_HZ,
    cut,
    tone,
    write_audio,
    write_quiet,
    write_video_only,
)
from tests.headstart.talk.odd_files import joined, sine, write_cover, write_floats, write_timed

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
    """Half of the bytes is noticed in every container, said with how much is there, and played."""
    whole = write_audio(tmp_path / name, codec, 48000, duration_s=3.0)
    clip = probe(cut(whole, 0.5))
    (remark,) = clip.remarks
    assert remark.startswith(f"cut_{name} is truncated: ")
    assert f"{clip.duration_s:.2f} s" in remark
    assert 0.8 < clip.duration_s < 2.2
    assert len(played(clip)) / 24_000 == pytest.approx(clip.duration_s, abs=0.01)
    assert probe(whole).remarks == ()


def test_a_file_without_its_sound_is_truncated(tmp_path: Path) -> None:
    """A header that promises sound, and nothing behind it."""
    whole = write_audio(tmp_path / "a.flac", "flac", 48000, duration_s=3.0)
    whole.write_bytes(whole.read_bytes()[:8300])  # its header, and not all of the first frame
    with pytest.raises(FileTruncated, match=r"says it lasts 3\.00 s, but none"):
        probe(whole)


def test_mp4_without_its_index_does_not_decode(tmp_path: Path) -> None:
    """A cut MP4 whose index was at the end cannot even be opened."""
    whole = write_audio(tmp_path / "a.m4a", "aac", 16000)
    with pytest.raises(FileUndecodable, match="cut short"):
        probe(cut(whole, 0.5))


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFDB, 0xFFFFFFFF])
def test_streamed_wav_declares_nothing(size: int, tmp_path: Path) -> None:
    """A WAV from a pipe carries no length, or the largest that its writer knows; it is not called
    truncated."""
    path = write_audio(tmp_path / "a.wav", "pcm_s16le", 8000)
    data = bytearray(path.read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", size)
    data[4:8] = struct.pack("<I", min(size + 36, 0xFFFFFFFF))
    path.write_bytes(data)
    clip = probe(path)
    assert clip.duration_s == pytest.approx(1.0)
    assert clip.remarks == ()
    assert len(played(clip)) == 24_000


def played(clip: MediaFile) -> np.ndarray:
    """All of its sound."""
    packets = [part for part in play(clip, 40, frames=False) if isinstance(part, AudioPacket)]
    return np.frombuffer(b"".join(packet.pcm for packet in packets), np.int16)


def pitch_hz(wave: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(wave.astype(np.float64)))
    return float(np.argmax(spectrum) * 24_000 / len(wave))


@pytest.mark.parametrize(
    ("suffix", "codec", "formats"),
    [
        ("mp3", "mp3", [(44_100, "stereo"), (44_100, "mono"), (22_050, "mono")]),
        ("aac", "aac", [(44_100, "stereo"), (16_000, "mono"), (48_000, "stereo")]),
        ("ogg", "libopus", [(48_000, "stereo"), (48_000, "mono"), (48_000, "stereo")]),
    ],
)
def test_files_joined_play_one_after_the_other(
    suffix: str, codec: str, formats: list[tuple[int, str]], tmp_path: Path
) -> None:
    """Whatever rate and channels each has (Ogg: a chain), all is heard, at its pitch."""
    files = [
        write_audio(tmp_path / f"{i}.{suffix}", codec, rate_hz, layout)
        for i, (rate_hz, layout) in enumerate(formats)
    ]
    clip = probe(joined(tmp_path / f"all.{suffix}", *files))
    assert clip.remarks == ()
    assert clip.duration_s == pytest.approx(len(files), abs=0.25)
    wave = played(clip)
    for i in range(len(files)):
        middle = wave[i * 24_000 + 8000 : i * 24_000 + 20_000]
        assert pitch_hz(middle) == pytest.approx(TONE_HZ, abs=4)
        assert np.sqrt((middle.astype(float) ** 2).mean()) == pytest.approx(5793, rel=0.1)


@pytest.mark.parametrize("start_s", [0.0, 9.75, 36_000.0])
@pytest.mark.parametrize("codec", ["pcm_s16le", "flac"])
def test_timestamps_may_begin_anywhere(start_s: float, codec: str, tmp_path: Path) -> None:
    """The pictures stay beside their sound, and nothing is called truncated."""
    pictures = [(start_s + at_s, level) for at_s, level in ((0.0, 0), (1.0, 120), (2.0, 240))]
    path = write_timed(tmp_path / "v.mkv", [(start_s, 3.0)], pictures, codec)
    clip = probe(path)
    assert clip.duration_s == pytest.approx(3.0, abs=0.01)
    assert clip.remarks == ()
    parts = list(play(clip, 100, frames=True))
    shown = [part for part in parts if isinstance(part, JpegFrame)]
    assert [part.start_ms for part in shown] == pytest.approx([0, 1000, 2000], abs=20)
    assert [_mean_level(part.jpeg) for part in shown] == pytest.approx([0, 120, 240], abs=6)
    assert [part.start_ms for part in parts] == sorted(part.start_ms for part in parts)


def test_timestamps_may_be_negative(tmp_path: Path) -> None:
    """Sound that begins half a second before 0: the picture of 0 is seen when it is heard."""
    clip = probe(write_timed(tmp_path / "v.mkv", [(-0.5, 3.0)], [(0.0, 0), (1.0, 120)]))
    assert clip.duration_s == pytest.approx(3.0, abs=0.01)
    assert clip.remarks == ()
    shown = [part for part in play(clip, 100, frames=True) if isinstance(part, JpegFrame)]
    assert [part.start_ms for part in shown] == pytest.approx([500, 1500], abs=20)


def test_sound_later_than_pictures_is_later(tmp_path: Path) -> None:
    """Silence until it begins, and where it pauses: a picture is seen with the sound it was taken
    with."""
    pictures = [(float(at_s), 40 * at_s) for at_s in range(6)]
    clip = probe(write_timed(tmp_path / "v.mkv", [(1.5, 1.0), (4.0, 1.0)], pictures))
    assert clip.duration_s == pytest.approx(5.0, abs=0.01)
    wave = played(clip).astype(float)
    heard = [float(np.abs(wave[round(at * 24_000) :][:2400]).max()) > 1000
             for at in (0.2, 1.3, 1.6, 2.3, 2.7, 3.8, 4.1, 4.8)]  # fmt: skip
    assert heard == [False, False, True, True, False, False, True, True]


def test_the_sound_that_a_player_would_play_is_heard(tmp_path: Path) -> None:
    """Of several streams: the first one that has any sound."""
    path = tmp_path / "two.mkv"
    with av.open(str(path), "w") as container:
        streams = [container.add_stream("pcm_s16le", rate=16_000) for _ in range(2)]
        for stream in streams:
            assert isinstance(stream, av.AudioStream)
            stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(tone(1.0, 16_000), "s16", "mono")
        frame.sample_rate, frame.pts = 16_000, 0
        container.mux([*streams[1].encode(frame), *streams[1].encode(None)])
    clip = probe(path)
    assert clip.duration_s == pytest.approx(1.0)
    assert pitch_hz(played(clip)) == pytest.approx(TONE_HZ, abs=2)


@pytest.mark.parametrize("name", ["a.mp3", "a.mp4"])
def test_a_cover_is_no_video(name: str, tmp_path: Path) -> None:
    """Its picture is there for who asks for frames, once, before the sound."""
    codec = "mp3" if name == "a.mp3" else "aac"
    clip = probe(write_cover(tmp_path / name, codec, np.full((40, 60, 3), 200, np.uint8)))
    assert (clip.has_video, clip.has_still) == (False, True)
    parts = list(play(clip, 100, frames=True))
    assert [isinstance(part, JpegFrame) for part in parts[:2]] == [True, False]
    assert sum(isinstance(part, JpegFrame) for part in parts) == 1


def test_two_sides_that_cancel_are_heard(tmp_path: Path) -> None:
    """A microphone wired the wrong way round: the louder side alone."""
    side = sine(1.0, 48_000)
    clip = probe(write_floats(tmp_path / "a.wav", np.stack([side, -side]), 48_000, "pcm_f32le"))
    assert np.sqrt((played(clip).astype(float) ** 2).mean()) == pytest.approx(5793, rel=0.02)


def test_samples_that_are_no_numbers_are_said(tmp_path: Path) -> None:
    """A few are silence and a remark; a file of nothing else is refused, and says what to do."""
    samples = sine(1.0, 16_000)[None].copy()
    samples[0, 100:200] = np.nan
    clip = probe(write_floats(tmp_path / "few.wav", samples, 16_000, "pcm_f32le"))
    assert "100 samples that are no numbers" in clip.remarks[0]
    samples[:] = np.inf
    with pytest.raises(FileUndecodable, match="export it again"):
        probe(write_floats(tmp_path / "all.wav", samples, 16_000, "pcm_f32le"))


FUZZED = [
    ("a.wav", "pcm_s16le"), ("f.wav", "pcm_f32le"), ("a.mp3", "mp3"), ("a.ogg", "libopus"),
    ("v.mp4", "aac"), ("a.flac", "flac"), ("v.mkv", "aac"), ("a.aac", "aac"), ("v.avi", "mp3"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "codec"), FUZZED)
def test_broken_files_play_or_have_a_sentence(name: str, codec: str, tmp_path: Path) -> None:
    """Cut anywhere, bits turned anywhere, noise anywhere: what is there is played, or one sentence
    says why not. Never another error, never sound without end."""
    video_s = 0.4 if name.startswith("v") else 0.0
    whole = write_audio(
        tmp_path / name, codec, 48000, "stereo", duration_s=0.4, video_s=video_s
    ).read_bytes()
    draw = random.Random(name)
    for number in range(40):
        data = bytearray(whole)
        if number % 4 == 0:
            del data[draw.randrange(len(data)) :]
        elif number % 4 == 1:
            at = draw.randrange(len(data))
            data[at : at + 64] = draw.randbytes(64)
        else:
            end = len(data) if number % 4 == 2 else min(400, len(data))
            for _ in range(draw.randrange(1, 12)):
                data[draw.randrange(end)] ^= 1 << draw.randrange(8)
        path = tmp_path / f"{number}_{name}"
        path.write_bytes(data)
        with contextlib.suppress(MediaError):
            clip = probe(path)
            seconds = 0.0
            for part in play(clip, 100, frames=True):
                if isinstance(part, AudioPacket):
                    seconds += len(part.pcm) / 48_000
            assert seconds == pytest.approx(clip.duration_s, abs=0.01)


def test_useless_files_have_their_names(tmp_path: Path) -> None:
    """Missing, folder, 0 bytes, text, no audio, no samples: each its own error and sentence."""
    empty = tmp_path / "empty.wav"
    empty.touch()
    text = tmp_path / "text.wav"
    text.write_text("this is not sound\n" * 100)
    mute = write_quiet(tmp_path / "mute.wav", 0.0)
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "loop.wav").symlink_to("loop.wav")
    cases: list[tuple[Path, type[MediaError], str]] = [
        (tmp_path / "pipe.wav", FileMissing, "is a pipe"),
        (tmp_path / "loop.wav", FileMissing, "cannot be reached"),
        (tmp_path / ("n" * 300), FileMissing, "cannot be reached"),
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


def write_bytes_wav(path: Path, samples: np.ndarray, rate_hz: int = 1_000) -> Path:
    """8-bit sound, a byte a sample."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(rate_hz)
        file.writeframes(samples.astype(np.uint8).tobytes())
    return path


def test_ten_hours_are_not_decoded_before_they_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute is; then packets come as they are asked for, and the length is the header's."""
    path = write_bytes_wav(tmp_path / "long.wav", np.tile([98, 158], 18_000_000))
    decoded: list[int] = []
    weigh = Heard.weigh

    def counted(self: Heard, piece: np.ndarray) -> None:
        decoded.append(piece.shape[1])
        weigh(self, piece)

    monkeypatch.setattr(Heard, "weigh", counted)
    clip = probe(path)
    assert clip.duration_s == pytest.approx(36_000)
    assert sum(decoded) / SAMPLE_RATE_HZ == pytest.approx(60, abs=2)
    decoded.clear()
    assert isinstance(next(play(clip, 40, frames=True)), AudioPacket)
    assert sum(decoded) / SAMPLE_RATE_HZ < 10


def test_a_fault_far_into_a_file_is_told_when_it_was_played(tmp_path: Path) -> None:
    """A file of 100 s that declares 200: played, then told; a short one is told before."""
    whole = write_bytes_wav(tmp_path / "w.wav", np.tile([98, 158], 100_000)).read_bytes()
    path = tmp_path / "long.wav"
    path.write_bytes(whole[:100_044])
    clip = probe(path)
    assert clip.remarks == ()
    playing = play(clip, 1000, frames=False)
    assert sum(1 for _ in playing) == pytest.approx(100, abs=1)
    (remark,) = playing.remarks
    assert remark.startswith("long.wav is truncated: it says it lasts 200.00 s")
    path.write_bytes(whole[:30_044])
    assert "is truncated" in probe(path).remarks[0]


def test_who_speaks_only_after_a_minute_is_not_called_silent(tmp_path: Path) -> None:
    """That is known at the end; then it is told of who never does."""
    samples = np.full(90_000, 128)
    quiet = probe(write_bytes_wav(tmp_path / "q.wav", samples))
    samples[80_000::2] = 250
    samples[80_001::2] = 6
    loud = probe(write_bytes_wav(tmp_path / "l.wav", samples))
    remarks = []
    for clip in (quiet, loud):
        assert clip.remarks == ()
        playing = play(clip, 1000, frames=False)
        for _ in playing:
            pass
        remarks.append(playing.remarks)
    assert "nearly silent" in remarks[0][0]
    assert remarks[1] == ()


# --- pictures that are not there ------------------------------------------------------------------


def told(path: Path) -> tuple[list[float], tuple[str, ...]]:
    """The times in s of the pictures that are played, and all that is said of the file."""
    clip = probe(path)
    playing = play(clip, 1000, frames=True)
    shown = [part.start_ms / 1000 for part in playing if isinstance(part, JpegFrame)]
    return shown, (*clip.remarks, *playing.remarks)


@pytest.mark.parametrize(("name", "codec"), [("x.mkv", "mpeg2video"), ("x.mp4", "mpeg4")])
def test_a_broken_middle_is_told_and_the_rest_is_played(
    name: str, codec: str, tmp_path: Path
) -> None:
    """Noise in the middle of a file: pictures before and behind it, and from when to when there is
    neither sound nor picture."""
    path = write_video(
        tmp_path / name, noise(200), codec=codec, options={"g": "10"}, pcm=tone(20.0, 24_000)[0]
    )
    shown, remarks = told(path)
    assert (shown[:19], remarks) == ([float(second) for second in range(19)], ())
    shown, remarks = told(break_middle(path))
    assert shown[:7] == [float(second) for second in range(7)]
    assert shown[-1] >= 19  # each a second after the one before
    assert 3 <= 20 - len(shown) <= 7
    assert any("has no sound from 0:0" in remark for remark in remarks)
    (pictures,) = [remark for remark in remarks if "pictures" in remark]
    assert re.search(r"is damaged: pictures from 0:0\d to 0:1\d cannot be decoded", pictures)


def test_a_video_without_a_picture_is_told(tmp_path: Path) -> None:
    """Its sound is played."""
    shown, remarks = told(write_empty_video(tmp_path / "none.mkv", 2.0))
    assert shown == []
    assert remarks == ("none.mkv is damaged: pictures from 0:00 to 0:02 cannot be decoded",)
    clip = probe(tmp_path / "none.mkv")
    unasked = play(clip, 1000, frames=False)
    assert sum(1 for _ in unasked) == 2
    assert unasked.remarks == ()
