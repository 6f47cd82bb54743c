"""headstart.benchmarks.inputs.spoken: lists of sentences by packaged voices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headstart.benchmarks.inputs import spoken
from headstart.benchmarks.inputs.recordings import load_s16
from headstart.benchmarks.inputs.voices import Line, Samples, Say
from headstart.gateway.tts.synthesiser import RATE_HZ


def test_what_is_reported_was_not_chosen_on() -> None:
    """No sentence and no voice is in both parts; questions are fifty."""
    choose, report = spoken.CHOOSE, spoken.REPORT
    assert not set(spoken.SENTENCES[choose]) & set(spoken.SENTENCES[report])
    assert not set(spoken.VOICES[choose]) & set(spoken.VOICES[report])
    assert all(len(voices) >= 3 for voices in spoken.VOICES.values())
    assert len(set(spoken.SENTENCES[spoken.QUESTIONS])) == 50


def test_clips_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sentence is a file of the voice's sound between two quiet rooms, made when missing."""
    said: list[str] = []

    def say(line: Line) -> Samples:
        said.append(line.text)
        return np.full(2400, 1000, np.int16)

    def cast(names: tuple[str, ...]) -> Iterator[tuple[str, Say]]:
        yield "a voice", say

    monkeypatch.setattr(spoken, "cast", cast)
    monkeypatch.setitem(spoken.SENTENCES, spoken.CHOOSE, ("One.", "Two."))
    first = list(spoken.spoken(tmp_path, spoken.CHOOSE))
    assert [text for _, text in first] == said == ["One.", "Two."]
    sound = load_s16(first[0][0], RATE_HZ)
    assert len(sound) == 2400 + 0.6 * RATE_HZ
    assert sound[len(sound) // 2] == 1000
    assert list(spoken.spoken(tmp_path, spoken.CHOOSE)) == first
    assert said == ["One.", "Two."]
