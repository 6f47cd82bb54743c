"""Real files through real decoders, each odd in one way."""

import gc
import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from headstart.gateway.errors import FileEmpty, FileMissing, FileUndecodable
from headstart.gateway.video.file_sampling import MAX_FPS
from headstart.talk.long_file import video_reader
from headstart.talk.long_file.file_info import FileInfo, NothingToSee, read_info, within
from headstart.talk.long_file.frame_choice import FrameChooser
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.reader import PartMedia, read
from headstart.talk.long_file.video_reader import Picture
from headstart.talk.media.audio import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from headstart.talk.media.container import decoded
from headstart.talk.media.losses import Loss
from tests.headstart.talk.long_file.video_files import (
    BLUE,
    FPS,
    GREEN,
    RED,
    break_middle,
    changing,
    noise,
    plain,
    write_empty_video,
    write_hdr,
    write_interlaced,
    write_rotated,
    write_video,
)
from tests.headstart.talk.media_files import cut, tone, write_audio
from tests.headstart.talk.odd_files import joined, write_timed

SECOND_BYTES = BYTES_PER_SAMPLE * SAMPLE_RATE_HZ


def parts_of(
    path: Path, *, part_s: float = 30.0, from_s: float = 0.0
) -> tuple[FileInfo, list[PartMedia]]:
    """The parts, of whose pictures those are left that are shown by default."""
    info = read_info(path)
    start_s, end_s = within(info, from_s, None)
    chooser = FrameChooser()
    return info, [chosen(media, chooser) for media in read(info, Plan(start_s, end_s, part_s))]


def chosen(media: PartMedia, chooser: FrameChooser) -> PartMedia:
    return replace(media, pictures=tuple(chooser.choose(media.pictures)))


def pixels(shown: Picture) -> np.ndarray:
    with av.open(io.BytesIO(shown.jpeg), "r") as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


def colour(shown: Picture) -> tuple[int, ...]:
    """Which of the three it is, all over; () for none of them."""
    middle = pixels(shown).mean(axis=(0, 1))
    near = [c for c in (RED, GREEN, BLUE) if np.abs(middle - c).max() < 12]
    return near[0] if near else ()


def test_pictures_have_their_times(tmp_path: Path) -> None:
    """Three colours, two seconds each: three pictures, within a sampling step of each change."""
    path = write_video(tmp_path / "a.mp4", changing(6, RED, GREEN, BLUE))
    _, (material,) = parts_of(path)
    assert [colour(shown) for shown in material.pictures] == [RED, GREEN, BLUE]
    assert [shown.at_s for shown in material.pictures] == pytest.approx([0, 2, 4], abs=0.3)
    assert material.pcm == b""


def test_parts_share_their_overlap(tmp_path: Path) -> None:
    """12 s in parts of 5 s: the sound of each is its own length, and the last 2 s come again."""
    samples = np.random.default_rng(0).integers(-8000, 8000, 12 * 24_000, np.int16)
    path = write_video(tmp_path / "a.mkv", changing(12, RED, GREEN), pcm=samples)
    _, materials = parts_of(path, part_s=5)
    lengths = [len(m.pcm) / SECOND_BYTES for m in materials]
    assert lengths == pytest.approx([m.part.lasts_s for m in materials], abs=0.01)
    for before, after in pairwise(materials):
        shared = round(before.part.end_s - after.part.start_s) * SECOND_BYTES
        assert before.pcm[-shared:] == after.pcm[:shared]
    assert all(material.pictures for material in materials)


def test_a_range_begins_where_it_was_asked(tmp_path: Path) -> None:
    """From 7.5 s on: the colour shown there, and the sound of that moment."""
    pcm = np.concatenate([(tone(1.0, 24_000)[0] * (n / 12)).astype(np.int16) for n in range(12)])
    path = write_video(tmp_path / "a.mkv", changing(12, RED, GREEN, BLUE), pcm=pcm)
    _, (material,) = parts_of(path, from_s=7.5)
    assert [colour(shown) for shown in material.pictures] == [GREEN, BLUE]
    assert material.pictures[0].at_s == pytest.approx(7.5, abs=0.3)
    heard = np.frombuffer(material.pcm, "<i2")
    assert len(heard) == pytest.approx(4.5 * 24_000, abs=300)
    assert np.abs(heard[6_000:11_000]).max() == pytest.approx(8192 * 7 / 12, rel=0.02)
    assert np.abs(heard[14_000:30_000]).max() == pytest.approx(8192 * 8 / 12, rel=0.02)


def test_a_video_of_one_frame(tmp_path: Path) -> None:
    """It is shown."""
    _, (material,) = parts_of(write_video(tmp_path / "one.mp4", [plain(RED)]))
    assert [colour(shown) for shown in material.pictures] == [RED]


def test_a_video_stream_without_frames(tmp_path: Path) -> None:
    """Sound beside a stream that has no picture: heard, nothing seen, and that is told."""
    _, (material,) = parts_of(write_empty_video(tmp_path / "none.mkv", 1.0))
    assert material.pictures == ()
    assert len(material.pcm) == pytest.approx(SECOND_BYTES, abs=2000)
    assert material.losses == (Loss("pictures", 0.0, 1.0),)


def test_slides_that_stand_for_long(tmp_path: Path) -> None:
    """A variable frame rate, two frames a minute apart: every part shows what stands there."""
    path = write_video(
        tmp_path / "slides.mkv", [plain(RED), plain(GREEN), plain(BLUE)], at=[0, 3, 700]
    )
    _, materials = parts_of(path)
    seen = [[colour(shown) for shown in material.pictures] for material in materials]
    assert seen == [[RED, GREEN], [GREEN], [GREEN, BLUE]]


def test_eight_k_becomes_small(tmp_path: Path) -> None:
    """7680 x 4320: shown at 960 x 540, and the plan says that it will take long."""
    path = write_video(
        tmp_path / "8k.mp4", [plain(GREEN, 7680, 4320)] * 2, codec="mjpeg", pix_fmt="yuvj420p"
    )
    info, (material,) = parts_of(path)
    assert pixels(material.pictures[0]).shape == (540, 960, 3)
    assert any("large (7680 x 4320)" in remark for remark in info.remarks)


def test_one_pixel_wide(tmp_path: Path) -> None:
    """1 x 10,000: a JPEG with sides that every decoder takes."""
    path = write_video(
        tmp_path / "thin.mov", [plain(RED, 1, 10_000)] * 2, codec="png", pix_fmt="rgb24"
    )
    _, (material,) = parts_of(path)
    assert pixels(material.pictures[0]).shape == (960, 2, 3)
    assert colour(material.pictures[0]) == RED


@pytest.mark.parametrize(
    ("nits", "least", "most"), [(0.01, 0, 8), (50, 100, 190), (203, 215, 250), (4000, 250, 255)]
)
def test_a_high_dynamic_range_is_mapped(tmp_path: Path, nits: float, least: int, most: int) -> None:
    """PQ in BT.2020, 10 bit: black is black, the reference white nearly white, grey between, and
    grey stays grey."""
    info, (material,) = parts_of(write_hdr(tmp_path / "hdr.mp4", nits))
    middle = pixels(material.pictures[0])[32, 64].astype(int)
    assert least <= middle.mean() <= most
    assert np.ptp(middle) <= 4
    assert info.hdr == "PQ"


def test_interlaced_frames_show_one_moment(tmp_path: Path) -> None:
    """Red and blue fields: only the upper one, at the size of both."""
    path = write_interlaced(tmp_path / "i.mkv", RED, BLUE)
    info, (material,) = parts_of(path)
    assert pixels(material.pictures[0]).shape == (96, 160, 3)
    assert colour(material.pictures[0]) == RED
    assert any("interlaced" in remark for remark in info.remarks)


@pytest.mark.parametrize(
    ("orientation", "place"), [(1, (48, 20)), (3, (48, 140)), (6, (20, 48)), (8, (140, 48))]
)
def test_rotated_videos_are_upright(
    tmp_path: Path, orientation: int, place: tuple[int, int]
) -> None:
    """The half that is red lies where a player shows it."""
    _, (material,) = parts_of(write_rotated(tmp_path / "r.mp4", orientation))
    assert np.abs(pixels(material.pictures[0])[place].astype(int) - RED).max() < 12


def test_transparency_is_white(tmp_path: Path) -> None:
    """As on a web page."""
    picture = np.zeros((96, 160, 4), np.uint8)
    picture[:, 80:] = (*BLUE, 255)
    path = write_video(tmp_path / "a.mov", [picture] * 2, codec="png", pix_fmt="rgba")
    _, (material,) = parts_of(path)
    assert pixels(material.pictures[0])[48, 20].min() > 245


def test_what_is_behind_a_broken_middle_is_shown(tmp_path: Path) -> None:
    """A transport stream with noise in the middle: pictures before and behind it, and the times of
    what was lost."""
    path = write_video(tmp_path / "x.ts", noise(200), codec="mpeg2video", options={"g": "10"})
    _, materials = parts_of(break_middle(path))
    times_s = [shown.at_s for material in materials for shown in material.pictures]
    assert min(times_s) < 1
    assert max(times_s) > 16
    (lost,) = [lost for material in materials for lost in material.losses]
    assert (lost.what, "cannot be decoded" in str(lost)) == ("pictures", True)
    assert 5 < lost.start_s < lost.end_s < 15


def test_lost_sound_keeps_its_place(tmp_path: Path) -> None:
    """Broken packets in an MP4: silence in their place, what is behind them at its time."""
    pcm = tone(20.0, 24_000)[0].astype(np.int16)
    pcm[: 18 * 24_000] //= 8
    path = write_video(tmp_path / "x.mp4", [plain(RED)] * 200, codec="mpeg4", pcm=pcm)
    _, (material,) = parts_of(break_middle(path, 0.4, 0.15))
    heard = np.frombuffer(material.pcm, "<i2").astype(int)
    assert len(heard) / SAMPLE_RATE_HZ == pytest.approx(20, abs=0.2)
    loud = np.flatnonzero(np.abs(heard) > 4000)
    assert loud[0] / SAMPLE_RATE_HZ == pytest.approx(18, abs=0.1)
    (lost,) = [lost for lost in material.losses if lost.what == "sound"]
    assert 7 < lost.start_s < lost.end_s < 13


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    """Its beginning is shown; what is missing of its length is told."""
    path = tmp_path / "x.mp4"
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        video = container.add_stream("mpeg4", rate=10)
        video.width, video.height, video.pix_fmt = 160, 96, "yuv420p"
        for picture in noise(200):
            container.mux(video.encode(av.VideoFrame.from_ndarray(picture)))
        container.mux(video.encode(None))
    info, materials = parts_of(cut(path, 0.5), part_s=5)
    assert info.duration_s == pytest.approx(20)
    assert max(shown.at_s for material in materials for shown in material.pictures) < 13
    told = [lost for material in materials for lost in material.losses]
    assert told[-1].end_s == pytest.approx(20)
    assert 6 < told[0].start_s < 13


def test_joined_and_unequal_files(tmp_path: Path) -> None:
    """Timestamps that start again (two transport streams in one file) go on."""
    one = write_video(tmp_path / "1.ts", changing(6, RED), codec="mpeg2video")
    two = write_video(tmp_path / "2.ts", changing(6, BLUE), codec="mpeg2video")
    path = joined(tmp_path / "both.ts", one, two)
    info = read_info(path)
    materials = [chosen(media, FrameChooser()) for media in read(info, Plan(0, 12))]
    assert [colour(shown) for m in materials for shown in m.pictures] == [RED, BLUE]


def test_the_links_of_a_chain_follow_each_other(tmp_path: Path) -> None:
    """An Ogg of two links, each with times of its own: heard to its end."""
    one = write_audio(tmp_path / "1.ogg", "libopus", 48_000, duration_s=2.0)
    two = write_audio(tmp_path / "2.ogg", "libopus", 48_000, duration_s=3.0)
    info, (material,) = parts_of(joined(tmp_path / "both.ogg", one, two))
    assert info.duration_s == pytest.approx(5, abs=0.1)
    heard = np.frombuffer(material.pcm, "<i2").astype(int)
    assert len(heard) / SAMPLE_RATE_HZ == pytest.approx(5, abs=0.1)
    assert np.abs(heard[-SAMPLE_RATE_HZ:]).mean() > 500


def test_pictures_keep_their_times_behind_a_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading breaks off, and goes on from a key frame some seconds before: what was shown already
    is not shown again, and what follows has its own time."""
    pictures = changing(24, RED, GREEN, BLUE)
    path = write_video(tmp_path / "a.mkv", pictures, options={"g": "60", "sc_threshold": "1000000"})
    passes: list[Any] = []

    def breaking_off(container: Any, stream: Any, tally: Any) -> Iterator[Any]:
        passes.append(container)
        for frame in decoded(container, stream, tally):
            if len(passes) == 1 and frame.time > 10:
                tally.ended_early = True
                return
            if len(passes) == 1 or not 10 < frame.time < 12:
                yield frame

    monkeypatch.setattr(video_reader, "decoded", breaking_off)
    _, (material,) = parts_of(path)
    assert [colour(shown) for shown in material.pictures] == [RED, GREEN, BLUE]
    assert [shown.at_s for shown in material.pictures] == pytest.approx([0, 8, 16], abs=0.3)
    assert material.losses == (Loss("pictures", 10.0, 12.0),)


def test_a_file_that_does_not_say_how_long_it_is(tmp_path: Path) -> None:
    """A raw H.264 stream, without times: counted at its rate, and said."""
    path = write_video(tmp_path / "a.h264", changing(10, RED, BLUE), codec="libx264", fps=25)
    info, (material,) = parts_of(path)
    assert info.duration_s == pytest.approx(4, abs=0.2)
    assert any("how long" in remark for remark in info.remarks)
    assert [colour(shown) for shown in material.pictures] == [RED, BLUE]


def test_sound_alone(tmp_path: Path) -> None:
    """A file without pictures is heard."""
    _, (material,) = parts_of(write_audio(tmp_path / "a.mp3", "libmp3lame", 24_000))
    assert material.pictures == ()
    assert len(material.pcm) == pytest.approx(SECOND_BYTES, rel=0.1)


def loud_spans(parts: list[PartMedia]) -> list[tuple[int, int]]:
    """Where there is sound, in whole seconds of the recording: begin and end of each span."""
    loud: set[int] = set()
    for material in parts:
        samples = np.frombuffer(material.pcm, np.int16).astype(np.float64)
        for second in range(len(samples) // SAMPLE_RATE_HZ):
            piece = samples[second * SAMPLE_RATE_HZ :][:SAMPLE_RATE_HZ]
            if np.abs(piece).max() > 1000:
                loud.add(round(material.part.start_s) + second)
    starts = [at for at in sorted(loud) if at - 1 not in loud]
    return [(at, next(end for end in range(at, 10**6) if end not in loud)) for at in starts]


@pytest.mark.parametrize("from_s", [0.0, 56.0], ids=["from its beginning", "from within a gap"])
def test_a_long_gap_of_sound_keeps_its_length(tmp_path: Path, from_s: float) -> None:
    """A microphone that was off for two minutes leaves no packets. What is said behind it is heard
    at its time, beside the pictures of then, and the gap is told."""
    sound = [(0.0, 2.0), (130.0, 3.0)]
    pictures = [(float(at), 60) for at in range(140)]
    _, parts = parts_of(write_timed(tmp_path / "v.mkv", sound, pictures), from_s=from_s)
    assert loud_spans(parts) == [(0, 2), (130, 133)][bool(from_s) :]
    if not from_s:
        (loss,) = [loss for material in parts for loss in material.losses if loss.end_s < 135]
        assert (loss.what, round(loss.start_s), round(loss.end_s)) == ("sound", 2, 130)


def test_timestamps_beyond_the_files_end_have_begun_anew(tmp_path: Path) -> None:
    """A header of five seconds, and sound that jumps an hour ahead: it goes on where it was."""
    path = write_timed(tmp_path / "v.mkv", [(0.0, 2.0), (3_600.0, 3.0)])
    info = replace(read_info(path), duration_s=5.0)
    assert loud_spans(list(read(info, Plan(0, 5.0)))) == [(0, 5)]


def test_ten_hours_are_opened_like_ten_seconds(tmp_path: Path) -> None:
    """Two frames ten hours apart: the plan is known at once, and the last part can be reached."""
    path = write_video(tmp_path / "long.mkv", [plain(RED), plain(BLUE)], at=[0, 36_000 * FPS])
    info = read_info(path)
    plan = Plan(0, info.duration_s)
    assert plan.count == 1286
    last = list(read(info, plan, first=plan.count - 1))
    assert colour(last[-1].pictures[-1]) == BLUE


def test_a_part_is_held_until_the_next_but_one(tmp_path: Path) -> None:
    """However long a file is: of what was read, only pictures of the newest parts are alive."""
    path = write_video(tmp_path / "long.mkv", noise(300), pcm=tone(30.0, 24_000)[0])
    info = read_info(path)
    seen, alive = 0, []
    for media in read(info, Plan(0, info.duration_s, 4.0, 1.0)):
        assert len(media.pcm) <= 4 * SECOND_BYTES
        seen += len(media.pictures)
        del media
        gc.collect()
        alive.append(sum(type(thing) is Picture for thing in gc.get_objects()))
    assert seen > 100
    assert max(alive) <= 3 * 4 * MAX_FPS


def test_what_is_no_recording(tmp_path: Path) -> None:
    """Each with its own error, which names the file."""
    with pytest.raises(FileMissing, match="no such file"):
        read_info(tmp_path / "none.mp4")
    with pytest.raises(FileMissing, match="folder"):
        read_info(tmp_path)
    with pytest.raises(FileMissing, match="cannot be reached"):
        read_info(tmp_path / ("n" * 300))
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(FileEmpty):
        read_info(tmp_path / "empty.mp4")
    (tmp_path / "text.mp4").write_text("Dear diary")
    with pytest.raises(FileUndecodable):
        read_info(tmp_path / "text.mp4")
    info = read_info(write_video(tmp_path / "a.mp4", changing(6, RED)))
    with pytest.raises(NothingToSee, match="nothing from 0:07 to the end: it lasts 0:06"):
        within(info, 7, None)
    with pytest.raises(NothingToSee, match="nothing from 0:04 to 0:02"):
        within(info, 4, 2)
