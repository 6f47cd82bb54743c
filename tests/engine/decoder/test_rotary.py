"""Angles of rotation."""

from __future__ import annotations

import torch

from engine.decoder.rotary import LineRotary, SectionRotary, TableRotary, frequencies
from engine.decoder.spec import DecoderSpec

SPEC = DecoderSpec("qwen2", 1, 64, 96, 4, 2, 16, 271, 2**20, 10_000.0, 1e-6, True, False)


def test_equal_axes_turn_as_one_axis_does() -> None:
    """Words have three equal positions, and are then rotated like any text model's."""
    positions = torch.tensor([0, 1, 7, 31_999])
    sections = SectionRotary(SPEC, (2, 3, 3))(positions.expand(3, -1))
    for one, three in zip(TableRotary(SPEC, 32_000)(positions), sections, strict=True):
        assert torch.equal(one, three)
    for one, three in zip(LineRotary(SPEC)(positions), sections, strict=True):
        assert torch.equal(one, three)


def test_each_section_turns_with_its_own_axis() -> None:
    """Of eight frequencies two go by time, three by height, three by width."""
    cos, sin = SectionRotary(SPEC, (2, 3, 3), torch.float64)(torch.tensor([[5], [40], [300]]))
    turned = torch.tensor([5.0] * 2 + [40.0] * 3 + [300.0] * 3, dtype=torch.float64)
    angles = turned * frequencies(SPEC)
    assert torch.equal(cos[0], angles.cos())
    assert torch.equal(sin[0], angles.sin())
