"""How many frames a turn has, and where a turn's count begins, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.engine import api
from tests.gateway.session.camera_bench import DARK, fate, seeing, seen, show
from tests.gateway.session_bench import SessionBench, clip_pcm
from tests.gateway.video.drawn import png


def test_a_turn_has_so_many_and_the_next_as_many_again() -> None:
    """After `max_frames` it is enough until the turn has been heard."""
    bench = seeing(sampler="uniform", max_frames=2)
    for _ in range(4):
        show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 2
    bench.engine(api.Heard("sess_test", api.TurnRef(1), "item_x", "words", 3))
    show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 3
    assert fate(bench, "enough") == 2


@pytest.mark.parametrize("sampler", ["uniform", "load"])
def test_a_short_turn_has_so_many_at_least(sampler: str) -> None:
    """`min_frames` come however close they are, then those that the rate allows on average; never
    more than `max_frames`."""
    for most, kept in ((0, 4), (3, 3), (2, 2)):
        bench = seeing(sampler=sampler, fps=1.0, min_frames=3, max_frames=most)
        for number in range(35):
            show(bench, png(64, 36, 5 * number), after_s=0.1)
        assert len(seen(bench)) == kept
        assert seen(bench)[:3] == [0, 5, 10][:kept]


def test_a_busy_engine_does_not_hurry_to_the_least() -> None:
    """Half of it when half of the rate is left."""
    bench = seeing(sampler="load", fps=1.0, min_frames=6)
    for _ in range(40):
        bench.engine(api.Chunk("sess_test", api.TurnRef(1), 0, 8_000, {}, 450.0, 0, 0))
    for number in range(10):
        show(bench, png(64, 36, 5 * number), after_s=0.02)
    assert len(seen(bench)) == 3


def used_up(**more: Any) -> SessionBench:
    """A session whose camera has shown as much as one turn may have: two frames."""
    bench = SessionBench(**more)
    bench.update(gateway={"events": [], "video": {"sampler": "uniform", "max_frames": 2}})
    bench.clear()
    for _ in range(4):
        show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 2
    return bench


def begin_to_speak(bench: SessionBench) -> None:
    """The first second of a question."""
    bench.hear(clip_pcm("capital.wav")[: 48 * 1_000])
    assert any(isinstance(command, api.BeginSpeech) for command in bench.told)


def test_what_is_shown_between_turns_is_not_of_the_next_turn() -> None:
    """A turn's count begins when its speech does, not when the last turn was heard."""
    bench = used_up()
    begin_to_speak(bench)
    for _ in range(3):
        show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 4


def test_speech_over_an_answer_is_a_turn_too() -> None:
    """Also while it is held, before anybody knows whether it is an interruption."""
    bench = used_up(speaks=True)
    bench.client("response.create")
    bench.engine(api.Delta("sess_test", 1, "A long answer.", 0))
    for _ in range(3):
        show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 4
    begin_to_speak(bench)
    assert "input_audio_buffer.speech_started" not in bench.types()
    for _ in range(3):
        show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 6


def test_a_turn_that_is_typed_is_counted_too() -> None:
    """It begins with its response. One that is refused begins nothing, nor does one out of band."""
    bench = used_up()
    bench.client("response.create", response={"conversation": "none"})
    show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 2
    bench.client("response.create")
    for _ in range(3):
        show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 4
    bench.client("response.create")  # refused: one is active
    show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 4


def test_the_last_turns_words_do_not_begin_a_turn_that_has_begun() -> None:
    """They may come when the user speaks again: that turn still has no more than its own."""
    bench = used_up()
    begin_to_speak(bench)
    for _ in range(3):
        show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 4
    bench.engine(api.Heard("sess_test", api.TurnRef(0), "item_x", "words", 3))
    show(bench, DARK, after_s=1.0)
    bench.client("response.create")
    show(bench, DARK, after_s=1.0)
    assert len(seen(bench)) == 4
