"""Waiting commands: order, bounds, deadlines, and which chunks are taken together."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.engine.session import command_queue as inbox_module
from headstart.engine.session.command_queue import (
    MAX_TOGETHER_SAMPLES,
    MAX_WAITING,
    URGENT_NS,
    CommandQueue,
    chunk_due_ns,
)
from headstart.engine.session.errors import SessionOverloaded

CHUNK_SAMPLES = 8_000
CHUNK_NS = 500_000_000
REF = api.TurnRef(1)


def chunk(number: int, every_ns: int = CHUNK_NS, ref: api.TurnRef = REF) -> api.Audio:
    """The chunk of that number, one received `every_ns`."""
    pcm = bytes(2 * CHUNK_SAMPLES)
    return api.Audio("s", ref, number * CHUNK_SAMPLES, pcm, number * every_ns)


def filled(*commands: api.Command) -> CommandQueue:
    inbox = CommandQueue("s")
    for command in commands:
        inbox.push(command, 0)
    return inbox


def numbers(chunks: tuple[api.Audio, ...]) -> list[int]:
    return [audio.start_sample // CHUNK_SAMPLES for audio in chunks]


def test_a_chunk_on_time_is_taken_alone() -> None:
    """Until its deadline has passed, a chunk takes no other with it."""
    inbox = filled(chunk(0), chunk(1))
    assert numbers(inbox.pop_audio(chunk_due_ns(chunk(0)))) == [0]


def test_late_live_chunks_are_taken_together() -> None:
    """All waiting chunks are taken up to the bound; the others stay, in order."""
    inbox = filled(*(chunk(n) for n in range(6)))
    late_ns = 10 * CHUNK_NS
    most = MAX_TOGETHER_SAMPLES // CHUNK_SAMPLES
    assert numbers(inbox.pop_audio(late_ns)) == list(range(most))
    assert numbers(inbox.pop_audio(late_ns)) == list(range(most, 6))


def test_a_file_sent_fast_is_taken_chunk_by_chunk() -> None:
    """Chunks that arrive faster than real time come from a file, however late they are, and give
    the words of a live session on schedule."""
    inbox = filled(*(chunk(n, every_ns=CHUNK_NS // 4) for n in range(4)))
    assert [numbers(inbox.pop_audio(100 * CHUNK_NS)) for _ in range(4)] == [[0], [1], [2], [3]]


def test_only_consecutive_chunks_of_one_turn_are_taken_together() -> None:
    """A command in between, or another turn or revision, ends the batch."""
    hush = api.Hush("s", REF, 0)
    inbox = filled(chunk(0), hush, chunk(1), chunk(2, ref=api.TurnRef(1, 1)))
    late_ns = 10 * CHUNK_NS
    assert numbers(inbox.pop_audio(late_ns)) == [0]
    assert not inbox.next_is_audio
    assert inbox.pop() == hush
    assert numbers(inbox.pop_audio(late_ns)) == [1]
    assert numbers(inbox.pop_audio(late_ns)) == [2]


def test_an_answer_precedes_late_chunks() -> None:
    """A final pass is due before audio that is late by less than `URGENT_NS`, and after audio that
    is later."""
    now_ns = 10 * URGENT_NS
    final = CommandQueue("s")
    final.push(api.Hush("s", REF, 0), now_ns)
    a_little_late = api.Audio("s", REF, 0, b"", now_ns - URGENT_NS + 1)
    very_late = api.Audio("s", REF, 0, b"", now_ns - URGENT_NS - 1)
    assert filled(very_late).due_ns < final.due_ns < filled(a_little_late).due_ns


def test_what_stands_before_something_urgent_is_as_urgent() -> None:
    """A chunk with time to spare is due at once if a final pass waits behind it, because commands
    are carried out in order."""
    inbox = filled(chunk(9))
    relaxed_ns = inbox.due_ns
    inbox.push(api.Hush("s", REF, 0), now_ns=0)
    assert inbox.due_ns == -URGENT_NS < relaxed_ns


def test_a_resume_takes_a_waiting_hush_back() -> None:
    """A final pass that was not begun is skipped; the chunks stay."""
    inbox = filled(chunk(0), api.Hush("s", REF, 0))
    inbox.push(api.Resume("s", api.TurnRef(1, 1)), 0)
    assert numbers(inbox.pop_audio(0)) == [0]
    assert isinstance(inbox.pop(), api.Resume)
    assert len(inbox) == 0


@pytest.mark.parametrize("ends", [api.Hush("s", REF, 0), api.EndSpeech("s", REF, 0)])
def test_what_ends_right_behind_the_next_sound_is_seen(ends: api.Command) -> None:
    """Behind as many chunks as are taken together, late or not; not behind another command."""
    for count in (1, 2, 4):
        inbox = filled(*(chunk(number) for number in range(count)), ends)
        assert inbox.ends_behind_audio(0)
        assert numbers(inbox.pop_audio(0)) == list(range(count))
        assert inbox.pop() is ends
    inbox = filled(*(chunk(number) for number in range(5)), ends)
    assert not inbox.ends_behind_audio(0)
    assert numbers(inbox.pop_audio(0)) == list(range(4))
    assert inbox.ends_behind_audio(0)
    file = [chunk(number, every_ns=0) for number in range(2)]
    assert not filled(*file, ends).ends_behind_audio(0)
    resume = api.Resume("s", api.TurnRef(1, 1))
    for commands in ([], [ends], [chunk(0)], [chunk(0), resume, ends], [resume, chunk(0), ends]):
        assert not filled(*commands).ends_behind_audio(0)


def test_what_is_too_much_is_refused_by_name() -> None:
    """The bound is MAX_WAITING commands."""
    inbox = filled(*(chunk(0) for _ in range(MAX_WAITING)))
    with pytest.raises(SessionOverloaded):
        inbox.push(chunk(0), 0)
    assert len(inbox) == MAX_WAITING


def test_clips_are_due_as_if_they_were_spoken_now() -> None:
    """Minutes of clips that come at once do not delay other sessions; commands behind them keep
    their urgency."""
    second = api.Clip("s", "c", bytes(2 * api.SAMPLE_RATE_HZ))
    inbox = filled(second, second, api.Respond("s", 1, "a", api.Sampling()))
    assert inbox.due_ns == 10**9
    inbox.pop()
    assert inbox.due_ns == 2 * 10**9
    inbox.pop()
    assert inbox.due_ns == -URGENT_NS


def test_pictures_that_wait_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, and accepted after another was encoded or answered."""
    monkeypatch.setattr(inbox_module, "MAX_PICTURE_BYTES", 20)
    inbox = CommandQueue("s")
    picture = api.Item("p", api.Role.USER, (api.Image(1, 3, bytes(9)),))
    inbox.push(api.AddItem("s", picture), 0)
    inbox.push(api.Respond("s", 1, "a", api.Sampling(), items=(picture,)), 0)
    assert inbox.picture_bytes == 18
    with pytest.raises(SessionOverloaded, match="20 waiting bytes of pictures"):
        inbox.push(api.Frame("s", 0, api.Image(1, 1, bytes(3))), 0)
    inbox.push(api.AddItem("s", api.Item("w", api.Role.USER, (api.Text("words"),))), 0)
    inbox.remove(lambda command: isinstance(command, api.Respond))
    assert inbox.picture_bytes == 9
    inbox.pop()
    assert inbox.picture_bytes == 0


class Encoding:
    def __init__(self, *, done: bool) -> None:
        self.done = done


def test_sound_goes_past_frames_whichever_is_ready() -> None:
    """The second frame is encoded, or is not encoded beside the steps at all; the first is not.
    Both stay in order, and what ends the turn waits."""
    inbox = CommandQueue("s")
    frames = [api.Frame("s", number, api.Image(1, 1, b"rgb")) for number in range(2)]
    first, second = (inbox.push(frame, 0) for frame in frames)
    first.encoding, second.encoding = [Encoding(done=False)], [Encoding(done=True)]
    inbox.push(chunk(0), 0)
    inbox.push(api.EndSpeech("s", REF, CHUNK_SAMPLES), 0)
    assert inbox.next_is_audio
    assert not inbox.ends_behind_audio(0)  # the frames come before the end
    assert numbers(inbox.pop_audio(0)) == [0]
    assert inbox.is_blocked
    first.encoding = [Encoding(done=True)]
    assert [inbox.pop(), inbox.pop()] == frames
    assert isinstance(inbox.pop(), api.EndSpeech)
