"""When frames are shown whose timestamps are missing, wrong or start anew, and what is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from av.video.frame import VideoFrame

from headstart.talk.media.container import Tally
from headstart.talk.media.frame_times import RESTART_S, FrameTimes
from headstart.talk.media.losses import Losses


def frame(*, corrupt: bool = False) -> VideoFrame:
    return cast(VideoFrame, SimpleNamespace(is_corrupt=corrupt))


def spans(losses: Losses) -> list[tuple[float, float]]:
    return [(loss.start_s, loss.end_s) for loss in losses.take()]


def test_timestamps_that_start_anew_go_on() -> None:
    """Another file behind the first, say: its frames come behind, with their own distances."""
    times = FrameTimes(Tally(), Losses(), offset_s=-10.0)
    placed = [times.place(stamp_s) for stamp_s in (10.0, 15.0, 0.0, 2.0)]
    assert placed == pytest.approx([0.0, 5.0, 5.0 + RESTART_S, 7.0 + RESTART_S])


def test_small_steps_back_are_disorder() -> None:
    """They are kept: less than a second is no new beginning."""
    times = FrameTimes(Tally(), Losses(), offset_s=0.0)
    assert [times.place(stamp_s) for stamp_s in (1.0, 0.5, 1.5)] == [1.0, 0.5, 1.5]


def test_a_frame_without_a_timestamp_follows_on_the_one_before() -> None:
    """By as much as a frame lasts; the first is at the beginning."""
    times = FrameTimes(Tally(), Losses(), offset_s=0.0, lasts_s=0.5)
    assert [times.place(stamp_s) for stamp_s in (None, None, 4.0, None)] == [0.0, 0.5, 4.0, 4.5]


def test_what_was_damaged_is_lost_up_to_the_next_whole_frame() -> None:
    """Frames that say so, and packets of which no frame came."""
    tally, losses = Tally(), Losses()
    times = FrameTimes(tally, losses, offset_s=0.0)
    times.place(1.0)
    assert times.is_damaged(frame(corrupt=True))
    times.place(3.0)
    tally.corrupt = 2
    assert not times.is_damaged(frame())
    times.place(6.0)
    times.end(9.0)
    assert spans(losses) == [(1.0, 6.0)]  # told as one


def test_nothing_decodable_is_lost_from_the_beginning() -> None:
    """Of what was asked for, not of the file."""
    losses = Losses()
    FrameTimes(Tally(), losses, offset_s=0.0, begins_s=30.0).end(45.0)
    assert spans(losses) == [(30.0, 45.0)]


def test_an_end_that_could_not_be_read_is_lost() -> None:
    """From the last frame on; a whole file loses nothing."""
    for broken, wanted in ((True, [(2.0, 5.0)]), (False, [])):
        losses = Losses()
        times = FrameTimes(Tally(), losses, offset_s=0.0)
        times.place(2.0)
        if broken:
            times.break_off()
        times.end(5.0)
        assert spans(losses) == wanted


def test_no_frame_is_before_the_first_time() -> None:
    """A stream may begin before its file does."""
    times = FrameTimes(Tally(), Losses(), offset_s=-1.0, least_s=0.0, last_s=0.0)
    assert [times.place(stamp_s) for stamp_s in (0.5, 2.0)] == [0.0, 1.0]
    assert times.has_passed(2.0)
    assert not times.has_passed(2.5)
