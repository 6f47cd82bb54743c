"""headstart.engine.asr.whisper.encoder: the encoder against transformers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from headstart.engine.asr.whisper.caches import ROOM_STEP, EncodedSound, Frozen
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.asr.whisper.encoder import MANY_POSITIONS
from tests.numerics import assert_as_near, nudged


@pytest.mark.weights
def test_thirty_seconds_equal_transformers(exact: Checkpoint, twin: Any, fp64_twin: Any) -> None:
    """On a full window the encoder's output is that of the reference, as near as fp32 lets it."""
    features = torch.randn(80, 3000, generator=torch.Generator().manual_seed(0)) * 0.5
    with torch.inference_mode():
        ours = exact.encoder(features)
        theirs, wanted = (
            model.model.encoder(features[None].to(model.dtype)).last_hidden_state[0]
            for model in (twin, fp64_twin)
        )
    assert_as_near(ours, theirs, wanted)


@pytest.mark.weights
@pytest.mark.parametrize("frames", [2, 100, 347])
def test_shorter_sounds_equal_a_shorter_reference(
    exact: Checkpoint, twin: Any, fp64_twin: Any, frames: int
) -> None:
    """A shorter window is the reference with fewer positions, not a padded one."""
    features = torch.randn(80, frames, generator=torch.Generator().manual_seed(1)) * 0.5
    with torch.inference_mode():
        theirs = [_encoded(twin, near) for near in nudged(features, 6)]
        wanted = _encoded(fp64_twin, features)
        ours = exact.encoder(features)
    assert len(ours) == -(-frames // 2)
    assert_as_near(ours, theirs, wanted, times=2.0)


def _encoded(twin: Any, features: Tensor) -> Tensor:
    """What the reference makes of features of any length."""
    reference = twin.model.encoder
    x = torch.nn.functional.gelu(reference.conv1(features[None].to(twin.dtype)))
    x = torch.nn.functional.gelu(reference.conv2(x)).transpose(1, 2)
    x = x + reference.embed_positions.weight[: x.shape[1]]
    for layer in reference.layers:
        out = layer(x, None)
        x = out[0] if isinstance(out, tuple) else out
    rows: Tensor = reference.layer_norm(x)[0]
    return rows


@pytest.mark.weights
def test_longer_than_its_positions_is_refused(exact: Checkpoint) -> None:
    """Over 30 s there are no positions, and it says so."""
    with pytest.raises(ValueError, match="expected at most 1500 audio positions, got 1501"):
        exact.encoder(torch.zeros(80, 3002))


@pytest.mark.weights
@pytest.mark.parametrize("frozen", [1, 60, 119])
def test_frozen_positions_are_as_good_as_encoded_ones(
    exact: Checkpoint, fp64_twin: Any, frozen: int
) -> None:
    """With a window's beginning frozen as it is, its end comes out as when all is encoded."""
    features = torch.randn(80, 240, generator=torch.Generator().manual_seed(3)) * 0.5
    with torch.inference_mode():
        ((whole, kept),) = exact.encoder.encode([EncodedSound(features, keep=frozen)])
        ((end, again),) = exact.encoder.encode([EncodedSound(features, kept, keep=frozen + 1)])
    assert (kept.positions, again.positions) == (frozen, frozen + 1)
    assert len(end) == 120 - frozen
    with torch.inference_mode():
        wanted = _encoded(fp64_twin, features)[frozen:]
    assert_as_near(end, whole[frozen:], wanted)
    for layer in range(len(kept.keys)):
        assert torch.equal(again.keys[layer][:, :frozen], kept.keys[layer])


@pytest.mark.weights
@pytest.mark.usefixtures("our_kernels")
def test_a_batch_changes_no_bit(packed: Checkpoint) -> None:
    """Sounds of several lengths encoded together are, bit for bit, each what it is alone."""
    random = torch.Generator().manual_seed(4)
    sounds = [
        EncodedSound(torch.randn(80, n, generator=random) * 0.5, keep=7) for n in (100, 302, 40)
    ]
    with torch.inference_mode():
        together = packed.encoder.encode(sounds)
        for (rows, frozen), sound in zip(together, sounds, strict=True):
            ((alone, kept),) = packed.encoder.encode([sound])
            assert torch.equal(rows, alone)
            assert all(map(torch.equal, frozen.keys, kept.keys))
            assert all(map(torch.equal, frozen.values, kept.values))


@pytest.mark.weights
@pytest.mark.usefixtures("our_kernels")
def test_what_is_frozen_grows_in_place(packed: Checkpoint) -> None:
    """Positions are frozen behind the others in their memory, as long as there is room; then they
    move into a larger one, unchanged."""
    features = torch.randn(80, 700, generator=torch.Generator().manual_seed(5)) * 0.5
    frozen, addresses = Frozen(), []
    with torch.inference_mode():
        for keep in range(10, 300, 10):
            before = frozen.keys.clone(), frozen.values.clone(), frozen.positions
            ((_, frozen),) = packed.encoder.encode([EncodedSound(features, frozen, keep)])
            assert frozen.keys.shape[2] == frozen.values.shape[2] == frozen.positions == keep
            if before[2]:
                assert torch.equal(frozen.keys[:, :, : before[2]], before[0])
                assert torch.equal(frozen.values[:, :, : before[2]], before[1])
            addresses.append(frozen.keys.data_ptr())
            assert frozen.room is not None
            assert frozen.room[0].shape[2] < keep + ROOM_STEP
    moved = sum(one != other for one, other in itertools.pairwise(addresses))
    assert moved == 3  # from 10 positions to 128, to 256, to 384


@pytest.mark.weights
@pytest.mark.usefixtures("our_kernels")
def test_piece_by_piece_is_all_at_once(packed: Checkpoint) -> None:
    """A long sound is encoded layer by layer, another one between, with the bits of the whole; a
    short one is one piece."""
    random = torch.Generator().manual_seed(6)
    long, short = (
        EncodedSound(torch.randn(80, 2 * n, generator=random) * 0.5, keep=20)
        for n in (MANY_POSITIONS, MANY_POSITIONS - 1)
    )
    with torch.inference_mode():
        ((whole, kept),) = packed.encoder.encode([long])
        pieces, count = packed.encoder.encode_in_pieces([long]), 0
        while True:
            try:
                next(pieces)
            except StopIteration as ended:
                ((rows, frozen),) = ended.value
                break
            packed.encoder.encode([short])
            count += 1
        assert count == packed.settings.encoder_layers
        assert torch.equal(rows, whole)
        assert torch.equal(frozen.keys, kept.keys)
        with pytest.raises(StopIteration):
            next(packed.encoder.encode_in_pieces([short]))
