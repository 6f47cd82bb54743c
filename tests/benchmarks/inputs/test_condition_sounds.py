"""headstart.benchmarks.inputs.condition_sounds: one clip under many conditions."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.benchmarks.inputs.condition_sounds import (
    CONDITIONS,
    Condition,
    Places,
    Sound,
    active_rms,
)
from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from headstart.benchmarks.inputs.voices import Samples

RATE_HZ = 24_000


@pytest.fixture(scope="module")
def clip() -> Samples:
    return load_s16(CLIPS / "capital.wav", RATE_HZ)


@pytest.fixture(scope="module")
def places() -> Places:
    return Places(load_s16(CLIPS / "monologue.ogg", RATE_HZ))


def level_db(sound: Samples) -> float:
    return float(10 * np.log10(np.mean((sound / 32768) ** 2)))


def _moved_by(before: Sound, after: Sound) -> int:
    """The lag in samples at which the two are most alike."""
    lags = range(-720, 721, 4)
    return max(lags, key=lambda lag: float(np.roll(before, lag) @ after))


def test_there_are_36_with_names_of_their_own() -> None:
    """Every kind among them."""
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS) == 36
    assert {condition.codec for condition in CONDITIONS} == {"", "opus", "g711"}
    assert {condition.noise for condition in CONDITIONS} == {"", "pink", "babble"}


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_the_clip_stays_in_its_place(condition: Condition, clip: Samples, places: Places) -> None:
    """As long as it was and, after every codec, within 5 ms where it was; the same sound each
    time."""
    placed = places.put(clip, condition)
    assert placed.end - placed.first == len(clip)
    assert placed.first == RATE_HZ + condition.offset_samples
    assert len(placed.pcm) == placed.end + 3 * RATE_HZ
    if not condition.noise:
        there = placed.pcm[placed.first : placed.end].astype(float)
        assert abs(_moved_by(clip.astype(float), there)) <= 120
    again = places.put(clip, condition)
    assert np.array_equal(placed.pcm, again.pcm)


@pytest.mark.parametrize("noise", ["pink", "babble"])
@pytest.mark.parametrize("snr_db", [20, 5])
def test_noise_lies_under_the_voice_as_asked(
    noise: str, snr_db: float, clip: Samples, places: Places
) -> None:
    """So many dB under the voice while it speaks, before it and behind it as well."""
    placed = places.put(clip, Condition("", noise=noise, snr_db=snr_db))
    voice_db = 20 * np.log10(active_rms(clip / 32768))
    quiet = np.concatenate([placed.pcm[: placed.first], placed.pcm[placed.end :]])
    assert level_db(quiet) == pytest.approx(voice_db - snr_db, abs=2.5)


@pytest.mark.parametrize("gain_db", [6, -6])
def test_levels(gain_db: float, clip: Samples, places: Places) -> None:
    """So many dB, room and all."""
    as_it_is = places.put(clip, Condition("")).pcm
    changed = places.put(clip, Condition("", gain_db=gain_db)).pcm
    assert level_db(changed) - level_db(as_it_is) == pytest.approx(gain_db, abs=0.1)


def test_a_room_goes_on_sounding(clip: Samples, places: Places) -> None:
    """Behind the last sound there is more of it than in the open."""
    dry, wet = (places.put(clip, Condition("", in_a_room=room)).pcm for room in (False, True))
    last = RATE_HZ + int(np.nonzero(np.abs(clip) > 1000)[0][-1])
    behind = slice(last + 1200, last + 3600)
    assert level_db(wet[behind]) > level_db(dry[behind]) + 6


@pytest.mark.parametrize("noise", ["pink", "babble"])
def test_draws_are_independent_and_repeat(noise: str, clip: Samples, places: Places) -> None:
    """Of the same babble each draw takes another stretch, of pink noise other samples."""
    monologue = load_s16(CLIPS / "monologue.ogg", RATE_HZ)
    condition = Condition("", noise=noise, snr_db=0)
    heard = [Places(monologue, draw).put(clip, condition).pcm for draw in (0, 1, 2, 2)]
    assert np.array_equal(heard[0], places.put(clip, condition).pcm)
    assert np.array_equal(heard[2], heard[3])
    quiet = [pcm[:RATE_HZ].astype(float) for pcm in heard[:3]]
    assert np.abs(np.corrcoef(quiet)[np.triu_indices(3, 1)]).max() < 0.2
