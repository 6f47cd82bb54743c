"""headstart.engine.asr.whisper.vocabulary: packed against exact."""

from __future__ import annotations

import torch

from headstart.engine.asr.whisper.packed import pack_q8_0
from headstart.engine.asr.whisper.vocabulary import (
    ExactVocabulary,
    PackedVocabulary,
    Vocabulary,
)
from tests.numerics import assert_as_near

_TOKENS, _WIDTH = 83, 64  # no multiple of a kernel's panel


def _weight() -> torch.Tensor:
    return torch.randn(_TOKENS, _WIDTH, generator=torch.Generator().manual_seed(0))


def test_exact_is_the_matrix() -> None:
    """Half-precision weights are widened, nothing else."""
    weight = _weight().half()
    vocabulary = ExactVocabulary(weight)
    hidden = torch.randn(3, _WIDTH)
    assert torch.equal(vocabulary.embed(torch.tensor([4, 2])), weight[[4, 2]].float())
    exact = hidden.double() @ weight.double().T
    assert_as_near(vocabulary.logits(hidden), hidden @ weight.float().T, exact)


def test_a_head_of_its_own() -> None:
    """An untied head gives the logits; rows still are the embedding's."""
    weight, head, hidden = _weight(), -_weight(), torch.randn(3, _WIDTH)
    pairs: list[tuple[Vocabulary, Vocabulary]] = [
        (ExactVocabulary(weight), ExactVocabulary(weight, head)),
        (
            PackedVocabulary(pack_q8_0(weight)),
            PackedVocabulary(pack_q8_0(weight), pack_q8_0(head)),
        ),
    ]
    for tied, untied in pairs:
        assert torch.equal(untied.embed(torch.tensor([3])), tied.embed(torch.tensor([3])))
        assert torch.equal(untied.logits(hidden), -tied.logits(hidden))


def test_packed_is_close() -> None:
    """Rows and logits are within 2 % of fp32's, in norm."""
    weight, hidden = _weight(), torch.randn(7, _WIDTH)
    exact, packed = ExactVocabulary(weight), PackedVocabulary(pack_q8_0(weight))
    tokens = torch.tensor([0, 82, 5, 5])
    rows = exact.embed(tokens)
    assert (packed.embed(tokens) - rows).norm() < 0.02 * rows.norm()
    logits = exact.logits(hidden)
    assert (packed.logits(hidden) - logits).norm() < 0.02 * logits.norm()
