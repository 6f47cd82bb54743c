"""headstart.engine.asr.pauses: where a long utterance is parted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.asr.mel import SAMPLE_RATE_HZ
from headstart.engine.asr.pauses import PauseFinder
from headstart.engine.asr.recording import Pcm


def _sound(*parts: tuple[float, float], seed: int = 1) -> Pcm:
    """Noise: seconds and level of each part, one after the other; the loud ones in syllables."""
    random = np.random.default_rng(seed)
    drawn = []
    for seconds, level in parts:
        samples = round(seconds * SAMPLE_RATE_HZ)
        noise = random.uniform(-1, 1, samples) * level
        if level == LOUD:
            between = np.arange(samples) % SYLLABLE_SAMPLES >= VOICED_SAMPLES
            noise[between] *= QUIET / LOUD
        drawn.append(noise)
    return np.concatenate(drawn).astype(np.float32)


LOUD, QUIET = 0.3, 0.003
SYLLABLE_SAMPLES, VOICED_SAMPLES = 4800, 4000


def _cuts_s(sound: Pcm) -> list[float]:
    return [sample / SAMPLE_RATE_HZ for sample in PauseFinder().push(sound)]


def test_a_pause_parts_in_its_middle_when_speech_goes_on() -> None:
    """Not before: the silence at the end of a turn parts nothing."""
    sound = _sound((8.5, LOUD), (0.4, QUIET), (1.0, LOUD))
    assert _cuts_s(sound) == [pytest.approx(8.7, abs=0.1)]
    assert _cuts_s(sound[: int(9.0 * SAMPLE_RATE_HZ)]) == []
    assert _cuts_s(_sound((8.5, LOUD), (9.0, QUIET))) == []


@pytest.mark.parametrize(
    "parts",
    [
        [(5.0, LOUD), (0.5, QUIET), (2.4, LOUD)],  # what is before it is short
        [(9.0, LOUD), (0.2, QUIET), (3.0, LOUD)],  # a stop between words
        [(9.0, LOUD), (0.5, LOUD / 3), (3.0, LOUD)],  # not quiet
        [(9.0, LOUD), (0.5, QUIET), (0.1, LOUD), (2.0, QUIET)],  # a click
    ],
)
def test_what_parts_nothing(parts: list[tuple[float, float]]) -> None:
    """A part of an utterance is long, a pause clear, and followed by speech."""
    assert _cuts_s(_sound(*parts)) == []


def test_a_long_pause_parts_near_its_end() -> None:
    """What is behind it may be held no longer than its sound is."""
    assert _cuts_s(_sound((9.0, LOUD), (6.0, QUIET), (1.0, LOUD))) == [pytest.approx(14.4, abs=0.2)]
    assert _cuts_s(_sound((9.0, LOUD), (2.4, QUIET), (1.0, LOUD))) == [pytest.approx(10.4, abs=0.1)]


def test_each_part_lasts() -> None:
    """With pauses every 2.5 s, parts are of 7.5 s, the first of less."""
    sound = _sound(*[(2.0, LOUD), (0.5, QUIET)] * 12)
    gaps_s = np.diff([0.0, *_cuts_s(sound)])
    assert len(gaps_s) == 3
    assert min(gaps_s) >= 6.0


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=12), st.integers(0, 9))
def test_chunks_do_not_matter(sizes: list[int], seed: int) -> None:
    """The same samples are found, whatever pieces the sound comes in."""
    sound = _sound(*[(2.3, LOUD), (0.45, QUIET)] * 8, seed=seed)
    finder, found, start = PauseFinder(), [], 0
    for size in sizes:
        found += finder.push(sound[start : start + size])
        start += size
    found += finder.push(sound[start:])
    assert found == PauseFinder().push(sound)
    assert found
