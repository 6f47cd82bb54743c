"""Features of sound in pieces, under a declared maximum."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.asr.mel import HOP_SAMPLES, LogMel, MaxPolicy, normalise
from headstart.engine.errors import BadSettings
from headstart.engine.models.perception.sound import Spectrogram

MELS, UNIT = 16, 30


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 99),
    samples=st.integers(1, 20_000),
    cuts=st.lists(st.floats(0, 1), max_size=6),
    policy=st.sampled_from([MaxPolicy.RUNNING, MaxPolicy.FIXED]),
)
def test_units_of_any_cut_are_the_whole_sounds_features(
    seed: int, samples: int, cuts: list[float], policy: MaxPolicy
) -> None:
    """The maximum is carried over the units that were given up; nothing of them is kept."""
    torch.manual_seed(seed)
    pcm = (
        torch.randn(samples)
        * 10 ** (torch.rand(samples // 500 + 1).repeat_interleave(500) * -6)[:samples]
    )
    mel = LogMel(MELS)
    whole = mel.open()
    mel.push(whole, pcm)
    raw = torch.cat((whole.frames, mel.tail(whole)))[: -(-samples // HOP_SAMPLES)]
    wanted = normalise(raw, policy).T
    spectrogram = Spectrogram(MELS, policy)
    state, got = spectrogram.open(), []
    edges = sorted({0, samples, *(int(cut * samples) for cut in cuts)})
    for start, stop in itertools.pairwise(edges):
        state = spectrogram.push(state, pcm[start:stop])
        while spectrogram.complete(state) >= UNIT:
            unit, state = spectrogram.take(state, UNIT)
            got.append(unit)
    got.append(spectrogram.rest(state))
    assert torch.equal(torch.cat(got, dim=1), wanted)
    assert spectrogram.complete(state) < UNIT


def test_an_earlier_state_stays_valid() -> None:
    """Pushing and taking give new states: the old one gives the same again."""
    spectrogram = Spectrogram(MELS)
    before = spectrogram.push(spectrogram.open(), torch.randn(8_000))
    first = spectrogram.rest(before)
    spectrogram.take(spectrogram.push(before, torch.randn(8_000)), UNIT)
    assert torch.equal(spectrogram.rest(before), first)


def test_a_maximum_that_needs_the_end_is_refused() -> None:
    """`final` would change units that were committed."""
    with pytest.raises(BadSettings, match="mel_policy"):
        Spectrogram(MELS, MaxPolicy.FINAL)
