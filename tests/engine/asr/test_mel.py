"""headstart.engine.asr.mel against transformers' feature extractor, and any cut of the sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import WhisperFeatureExtractor

from headstart.engine.asr.mel import LogMel, MaxPolicy, MelState, loudness, normalise
from tests.numerics import assert_as_near

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
    """All frames the sound touches, and the silence behind, equal transformers' features, as near
    as theirs are to the same formula in fp64."""
    sound = _sound(samples) + 0.01
    extractor: Any = WhisperFeatureExtractor(feature_size=mels)  # type: ignore[no-untyped-call]
    theirs = extractor(sound.numpy(), sampling_rate=16_000, return_tensors="pt").input_features[0]
    mel = LogMel(mels)
    ours = mel.features(_pushed(mel, sound, []), pad_frames=100)
    assert ours.shape[1] % 2 == 0
    wanted = _features(extractor, sound)[:, : ours.shape[1]]
    assert_as_near(ours, theirs[:, : ours.shape[1]], wanted)


def _features(extractor: Any, sound: Tensor) -> Tensor:
    """fp64 [mels, 3000]: Whisper's formula by numpy, with the reference's own filters."""
    padded = np.pad(sound.double().numpy(), (0, 480_000 - len(sound)))
    padded = np.pad(padded, 200, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160][:3000]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(windows * hann)) ** 2
    decades = np.log10(np.maximum(power @ extractor.mel_filters, 1e-10)).T
    return torch.from_numpy((np.maximum(decades, decades.max() - 8.0) + 4.0) / 4.0)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), policy=st.sampled_from(MaxPolicy))
def test_any_cut_equals_whole(data: st.DataObject, policy: MaxPolicy) -> None:
    """No bit of the features depends on how the samples were cut, under each policy."""
    sound = _sound(9000)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sound)), max_size=12)))
    mel = LogMel()
    whole = mel.features(_pushed(mel, sound, []), policy)
    parts = mel.features(_pushed(mel, sound, cuts), policy)
    assert torch.equal(parts, whole)


def test_running_policy_never_revises() -> None:
    """Under RUNNING, frames complete half way are the same at the end; under FINAL they are not."""
    mel, sound = LogMel(), _sound(32_000)
    half, whole = _pushed(mel, sound[:9000], []), _pushed(mel, sound, [])
    done = len(half.frames)
    for policy, same in ((MaxPolicy.RUNNING, True), (MaxPolicy.FINAL, False)):
        early = normalise(half.frames, policy)
        late = normalise(whole.frames, policy)[:done]
        assert torch.equal(early, late) is same


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
    assert torch.equal(state.frames, whole[50:])


def test_drops_everything_and_goes_on() -> None:
    """After all frames held were dropped the next frames are not taken for the sound's first."""
    mel, sound = LogMel(), _sound(8000)
    whole = _pushed(mel, sound, []).frames
    state = _pushed(mel, sound[:4000], [])
    held = len(state.frames)
    mel.drop(state, held)
    mel.push(state, sound[4000:])
    assert torch.equal(state.frames, whole[held:])


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


@pytest.mark.parametrize("mels", [1, 5, 80, 128])
def test_loudness_is_the_mean_over_the_bands(mels: int) -> None:
    """Within what fp32 rounds of some additions."""
    frames = torch.randn(7, mels) - 4
    wanted = frames.double().mean(dim=1)
    assert_as_near(loudness(frames), frames.mean(dim=1), wanted)
