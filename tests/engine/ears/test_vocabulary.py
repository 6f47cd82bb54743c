"""engine.ears.vocabulary: packed against exact."""

from __future__ import annotations

import torch

from engine.ears.vocabulary import ExactVocabulary, PackedVocabulary

_TOKENS, _WIDTH = 83, 64  # no multiple of a kernel's panel


def _weight() -> torch.Tensor:
    weight = torch.randn(_TOKENS, _WIDTH, generator=torch.Generator().manual_seed(0))
    weight[5] = 0.0  # an all-zero group has no scale
    return weight


def test_packed_rows_are_within_half_a_step() -> None:
    """An int8 row differs from its fp32 row by at most half a step (and the scale's fp16)."""
    weight = _weight()
    packed = PackedVocabulary(weight).embed(torch.arange(_TOKENS))
    step = weight.view(_TOKENS, -1, 32).abs().amax(dim=-1, keepdim=True) / 127
    bound = (step * 0.5 + step * 127 * 2**-11 + 1e-7).expand(-1, -1, 32).reshape(weight.shape)
    assert ((packed - weight).abs() <= bound).all()


def test_packed_logits_are_close() -> None:
    """Logits of int8 rows and activations are within 2 % of fp32's, in norm."""
    weight, hidden = _weight(), torch.randn(7, _WIDTH)
    exact = ExactVocabulary(weight).logits(hidden)
    packed = PackedVocabulary(weight).logits(hidden)
    assert (packed - exact).norm() < 0.02 * exact.norm()
    assert packed.shape == (7, _TOKENS)


def test_exact_is_the_matrix() -> None:
    """Half-precision weights are widened, nothing else."""
    weight = _weight().half()
    vocabulary = ExactVocabulary(weight)
    hidden = torch.randn(3, _WIDTH)
    assert torch.equal(vocabulary.embed(torch.tensor([4, 2])), weight[[4, 2]].float())
    torch.testing.assert_close(vocabulary.logits(hidden), hidden @ weight.float().T)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """A guess checked with others is checked as if alone."""
    vocabulary, hidden = PackedVocabulary(_weight()), torch.randn(5, _WIDTH)
    together = vocabulary.logits(hidden)
    alone = torch.cat([vocabulary.logits(hidden[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
