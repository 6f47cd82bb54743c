"""headstart.benchmarks.peers.clips: what is planned, and how it is spoken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headstart.benchmarks.inputs import pauses
from headstart.benchmarks.inputs.pauses import RATE_HZ, Samples
from headstart.benchmarks.inputs.spoken import write
from headstart.benchmarks.peers import clips as subject
from headstart.benchmarks.peers.clips import Plan, plans, questions


def test_half_of_the_clips_have_a_pause() -> None:
    """Half of these inside the question, half between two sentences."""
    planned = plans(20)
    kinds = [plan.kind for plan in planned]
    assert (kinds.count("whole"), kinds.count("inside"), kinds.count("between")) == (10, 5, 5)
    for plan in planned:
        assert bool(plan.pause_ms) == (plan.kind != "whole")
        assert bool(plan.opening) == (plan.kind == "between")
        assert plan.text.endswith(plan.question)
    assert {plan.voice for plan in planned} == set(subject.VOICES)


def test_questions_are_held_out() -> None:
    """Of the half that no endpoint policy was tuned on, each once."""
    texts = [text for text, _ in questions()]
    assert len(texts) == len(set(texts))
    assert all(pauses.half_of(text) == "held_out" for text in texts)
    assert not any("picture" in text for text in texts)


def test_a_question_comes_again_in_another_voice() -> None:
    """Names are those of files."""
    count = len(questions())
    every = plans(count * len(subject.VOICES))
    assert len({(plan.question, plan.voice) for plan in every}) == len(every)
    assert len({plan.name for plan in every}) == len(every)


@pytest.mark.parametrize("count", [0, 10_000])
def test_too_many_clips_are_refused(count: int) -> None:
    """With how many there are."""
    with pytest.raises(ValueError, match=rf"expected 1 to \d+ clips, got {count}"):
        plans(count)


def tone(seconds: float) -> Samples:
    """A loud tone, with silence at both ends."""
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    loud = np.rint(np.sin(2 * np.pi * 440 * times) * 8000).astype(np.int16)
    quiet = np.zeros(RATE_HZ // 5, np.int16)
    return np.concatenate([quiet, loud, quiet])


def test_pauses_have_their_length() -> None:
    """The pause is quiet, and no silence is left at the ends."""
    plan = Plan(0, "between", "joe", "What is it?", "", "Listen.", pause_ms=600)
    sound = subject._spoken(plan, lambda _: tone(1.0))
    assert len(sound) == pytest.approx(2.6 * RATE_HZ, abs=RATE_HZ // 50)
    middle = sound[round(1.1 * RATE_HZ) : round(1.5 * RATE_HZ)]
    assert np.abs(middle).max() < 100
    assert np.abs(sound[:200]).max() > 1000
    assert np.abs(sound[-200:]).max() > 1000


def test_files_are_kept(tmp_path: Path) -> None:
    """What is there already is not spoken again."""
    planned = plans(1)
    write(subject._path(tmp_path, planned[0]), tone(0.5), RATE_HZ)
    (clip,) = subject.clips(tmp_path, planned, lambda _: pytest.fail("nothing to speak"))
    assert clip.plan == planned[0]
    assert clip.duration_s == pytest.approx(0.9, abs=0.01)
