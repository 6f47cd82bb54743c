"""Angles of rotation."""

from __future__ import annotations

import numpy as np
import torch

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.rotary import PagedRotary, SectionRotary, TablelessRotary, frequencies

SPEC = DecoderSpec("qwen2", 1, 64, 96, 4, 2, 16, 271, 2**20, 10_000.0, 1e-6, True, False)


def test_equal_axes_turn_as_one_axis_does() -> None:
    """Words have three equal positions, and are then rotated like any text model's."""
    positions = torch.tensor([0, 1, 7, 31_999])
    sections = SectionRotary(SPEC, (2, 3, 3))(positions.expand(3, -1))
    for one, three in zip(PagedRotary(SPEC)(positions), sections, strict=True):
        assert torch.equal(one, three)
    for one, three in zip(TablelessRotary(SPEC)(positions), sections, strict=True):
        assert torch.equal(one, three)


def test_each_section_turns_with_its_own_axis() -> None:
    """Of eight frequencies two go by time, three by height, three by width."""
    cos, sin = SectionRotary(SPEC, (2, 3, 3), torch.float64)(torch.tensor([[5], [40], [300]]))
    turned = torch.tensor([5.0] * 2 + [40.0] * 3 + [300.0] * 3, dtype=torch.float64)
    angles = turned * frequencies(SPEC)
    assert torch.equal(cos[0], angles.cos())
    assert torch.equal(sin[0], angles.sin())


def test_angles_are_exact_far_out() -> None:
    """cos and sin come from fp64 angles: at position 10^7 they are right to fp32's last bit, which
    angles in fp32 are not."""
    at = 10_000_019
    cos, sin = PagedRotary(SPEC)(torch.tensor([3, at]))
    angles = at * 10_000.0 ** (-np.arange(8) / 8)
    assert np.array_equal(cos[1].numpy(), np.cos(angles).astype(np.float32))
    assert np.array_equal(sin[1].numpy(), np.sin(angles).astype(np.float32))
    assert not np.array_equal(cos[1].numpy(), np.cos(angles.astype(np.float32)))


def test_a_position_has_the_same_bits_in_any_company() -> None:
    """Across pages, repeated and out of order; and old pages are let go and come back equal."""
    rotary = PagedRotary(SPEC)
    positions = torch.tensor([5000, 3, 4095, 4096, 3, 70_000])
    together = rotary(positions)
    for page in range(40):
        rotary(torch.tensor([page * PagedRotary.PAGE]))
    for i, position in enumerate(positions):
        for one, many in zip(rotary(position[None]), together, strict=True):
            assert torch.equal(one[0], many[i])
