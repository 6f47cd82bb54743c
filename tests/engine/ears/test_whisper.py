"""engine.ears.whisper: the encoder against transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.ears.checkpoint import Checkpoint


@pytest.mark.weights
def test_thirty_seconds_equal_transformers(exact: Checkpoint, twin: Any) -> None:
    """On a full window the encoder's output is that of the reference."""
    features = torch.randn(80, 3000, generator=torch.Generator().manual_seed(0)) * 0.5
    with torch.inference_mode():
        ours = exact.encoder(features)
        theirs = twin.model.encoder(features[None]).last_hidden_state[0]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.weights
@pytest.mark.parametrize("frames", [2, 100, 347])
def test_shorter_sounds_equal_a_shorter_reference(
    exact: Checkpoint, twin: Any, frames: int
) -> None:
    """A shorter window is the reference with fewer positions, not a padded one."""
    features = torch.randn(80, frames, generator=torch.Generator().manual_seed(1)) * 0.5
    reference = twin.model.encoder
    with torch.inference_mode():
        x = torch.nn.functional.gelu(reference.conv1(features[None]))
        x = torch.nn.functional.gelu(reference.conv2(x)).transpose(1, 2)
        x = x + reference.embed_positions.weight[: x.shape[1]]
        for layer in reference.layers:
            out = layer(x, None)
            x = out[0] if isinstance(out, tuple) else out
        theirs = reference.layer_norm(x)[0]
        ours = exact.encoder(features)
    assert len(ours) == -(-frames // 2)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.weights
def test_longer_than_its_positions_is_refused(exact: Checkpoint) -> None:
    """Over 30 s there are no positions, and it says so."""
    with pytest.raises(ValueError, match="expected at most 1500 audio positions, got 1501"):
        exact.encoder(torch.zeros(80, 3002))
