"""headstart.engine.asr.recording: the sound that is heard again at the end."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.asr.recording import LONGEST_SAMPLES, Mark, Recording

SECOND = 16_000


def test_short_speech_is_held_whole() -> None:
    """Up to 28 s all of it is heard again, from the first sample."""
    recording = Recording()
    sound = np.arange(3 * SECOND, dtype=np.float32)
    for start in range(0, len(sound), 700):
        recording.push(sound[start : start + 700])
    np.testing.assert_array_equal(recording.whole(), sound)
    assert (recording.start, recording.samples) == (Mark(), len(sound))


def test_nothing_is_nothing() -> None:
    """Before the first sample there is no sound."""
    assert len(Recording().whole()) == 0


def test_what_was_pushed_is_a_copy() -> None:
    """A caller's buffer may be used again."""
    recording, buffer = Recording(), np.ones(10, np.float32)
    recording.push(buffer)
    buffer[:] = 0
    assert recording.whole().sum() == 10


@given(st.lists(st.integers(1, 40_000), max_size=80), st.lists(st.integers(2, 9), max_size=8))
def test_of_long_speech_the_end_is_held(pieces: list[int], marks_s: list[int]) -> None:
    """Never more than 28 s, always up to the newest sample, from the first mark that is not too far
    back; and what is held of the sound is bounded by that and one piece."""
    recording, sent = Recording(), 0
    waiting = [sum(marks_s[: i + 1]) * SECOND for i in range(len(marks_s))]
    for number, size in enumerate(pieces):
        recording.push(np.arange(sent, sent + size, dtype=np.float32))
        sent += size
        if waiting and waiting[0] <= sent:
            recording.mark(waiting.pop(0), number)
        whole = recording.whole()
        assert len(whole) == min(sent - recording.start.sample, LONGEST_SAMPLES)
        assert whole[-1] == sent - 1
        assert sum(map(len, recording._pieces)) < len(whole) + 40_000
        start = recording.start.sample
        assert sent - start <= LONGEST_SAMPLES or len(recording.marks) == 1


def test_sound_that_is_held_in_part_is_not_held() -> None:
    """Hearing the tail alone would lose the words before it, which are known."""
    recording = Recording()
    recording.push(np.zeros(20 * SECOND, np.float32))
    assert recording.holds(20 * SECOND)
    assert not recording.holds(0)
    recording.push(np.zeros(9 * SECOND, np.float32))
    assert not recording.holds(20 * SECOND)
    recording.part(20 * SECOND, 3)
    assert recording.holds(29 * SECOND)
    assert not recording.holds(20 * SECOND)
