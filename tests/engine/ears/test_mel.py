"""engine.ears.mel against transformers' feature extractor, and any cut of the sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import WhisperFeatureExtractor

from engine.ears.mel import LogMel, MaxPolicy, MelState, normalise

_SILENT_FRAME_DECADES = -10.0


def _sound(samples: int, seed: int = 0) -> Tensor:
    """Noise that grows and fades, so that the loudest frame is in the middle."""
    swell = torch.sin(torch.linspace(0, torch.pi, samples)) ** 4
    return torch.randn(samples, generator=torch.Generator().manual_seed(seed)) * swell * 0.3


def _pushed(mel: LogMel, sound: Tensor, cuts: list[int]) -> MelState:
    state = mel.open()
    for start, end in zip([0, *cuts], [*cuts, len(sound)], strict=True):
        mel.push(state, sound[start:end])
    return state


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("samples", [1, 150, 200, 201, 399, 5000, 16_000, 40_123])
def test_equals_whisper_feature_extractor(mels: int, samples: int) -> None:
    """All frames the sound touches, and the silence behind, equal transformers' features."""
    sound = _sound(samples) + 0.01
    extractor: Any = WhisperFeatureExtractor(feature_size=mels)  # type: ignore[no-untyped-call]
    theirs = extractor(sound.numpy(), sampling_rate=16_000, return_tensors="pt").input_features[0]
    mel = LogMel(mels)
    ours = mel.features(_pushed(mel, sound, []), pad_frames=100)
    assert ours.shape[1] % 2 == 0
    torch.testing.assert_close(ours, theirs[:, : ours.shape[1]], atol=2e-5, rtol=0)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), policy=st.sampled_from(MaxPolicy))
def test_any_cut_equals_whole(data: st.DataObject, policy: MaxPolicy) -> None:
    """Features do not depend on how the samples were cut, under each policy."""
    sound = _sound(9000)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sound)), max_size=12)))
    mel = LogMel()
    whole = mel.features(_pushed(mel, sound, []), policy)
    parts = mel.features(_pushed(mel, sound, cuts), policy)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)


def test_running_policy_never_revises() -> None:
    """Under RUNNING, frames complete half way are the same at the end; under FINAL they are not."""
    mel, sound = LogMel(), _sound(32_000)
    half, whole = _pushed(mel, sound[:9000], []), _pushed(mel, sound, [])
    done = len(half.frames)
    for policy, same in ((MaxPolicy.RUNNING, True), (MaxPolicy.FINAL, False)):
        early = normalise(half.frames, policy)
        late = normalise(whole.frames, policy)[:done]
        assert torch.allclose(early, late, atol=1e-5) is same


def test_each_sample_is_transformed_once() -> None:
    """Frames complete one by one as their last sample comes, and asking changes nothing."""
    mel, sound = LogMel(), _sound(1600)
    state = mel.open()
    completed = [mel.push(state, sound[i : i + 40]) for i in range(0, 1600, 40)]
    # Frame t needs samples up to 160 t + 200: by 1600 samples, frames 0 to 8.
    assert sum(completed) == len(state.frames) == (1600 - 200) // 160 + 1
    before = state.frames.clone()
    mel.features(state)
    assert torch.equal(state.frames, before)


def test_dropped_frames_leave_the_rest_as_it_was() -> None:
    """Sound given up at the front changes no frame behind it, nor those that come later."""
    mel, sound = LogMel(), _sound(20_000)
    whole = _pushed(mel, sound, []).frames
    state = _pushed(mel, sound[:12_000], [])
    mel.drop(state, 50)
    mel.push(state, sound[12_000:])
    assert state.dropped == 50
    torch.testing.assert_close(state.frames, whole[50:], atol=1e-5, rtol=0)


def test_drops_everything_and_goes_on() -> None:
    """After all frames held were dropped the next frames are not taken for the sound's first."""
    mel, sound = LogMel(), _sound(8000)
    whole = _pushed(mel, sound, []).frames
    state = _pushed(mel, sound[:4000], [])
    held = len(state.frames)
    mel.drop(state, held)
    mel.push(state, sound[4000:])
    torch.testing.assert_close(state.frames, whole[held:], atol=1e-5, rtol=0)


def test_cannot_drop_what_is_not_there() -> None:
    """Dropping more than is held is refused."""
    mel = LogMel()
    with pytest.raises(ValueError, match="cannot drop 1 of 0"):
        mel.drop(mel.open(), 1)


def test_no_sound_gives_only_padding() -> None:
    """Before the first sample there is nothing but the silence asked for."""
    mel = LogMel()
    features = mel.features(mel.open(), MaxPolicy.FIXED, pad_frames=4)
    floor = (max(_SILENT_FRAME_DECADES, 1.5 - 8) + 4) / 4
    np.testing.assert_allclose(features.numpy(), floor)
    assert features.shape == (80, 4)
