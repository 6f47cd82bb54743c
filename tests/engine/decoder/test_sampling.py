"""From logits to the next token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.api import Sampling
from headstart.engine.decoder.sampling import PENALTY_WINDOW_TOKENS, Sampler, SamplerFactory
from headstart.engine.errors import BadSampling, BrokenNumbers

VOCAB = 300


def plain(**settings: Any) -> Sampling:
    return Sampling(**{"repetition_penalty": 1.0, **settings})


def random_logits(seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * spread


def draw(sampling: Sampling, logits: torch.Tensor, times: int) -> list[int]:
    sampler = Sampler(sampling, VOCAB)
    return [sampler.sample(logits, []) for _ in range(times)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", 0.0),
        ("top_p", math.nan),
        ("top_p", 1.5),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.nan),
        ("repetition_penalty", math.inf),
        ("max_tokens", 0),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", ("",)),
        ("stop", ("x" * 257,)),
        ("stop", ("x",) * 17),
    ],
)
def test_a_setting_out_of_range_is_named(field: str, value: Any) -> None:
    """NaN, infinity and everything out of range: `BadSampling` carries field and value."""
    with pytest.raises(BadSampling) as caught:
        Sampler(Sampling(**{field: value}), VOCAB)
    assert caught.value.field == field
    assert f"sampling.{field}" in str(caught.value)


def test_greedy_takes_the_best_and_leaves_the_logits_alone() -> None:
    """Temperature 0 and top_k 1 are both greedy; the caller's logits do not change."""
    logits = random_logits()
    before = logits.clone()
    best = int(logits.argmax())
    assert draw(plain(), logits, 3) == [best] * 3
    assert draw(plain(temperature=1.0, top_k=1), logits, 3) == [best] * 3
    penalised = Sampler(Sampling(repetition_penalty=5.0), VOCAB)
    assert penalised.sample(logits, [best]) != best
    assert torch.equal(logits, before)


def test_the_lowest_temperature_is_greedy() -> None:
    """A temperature that any logit divided by is infinite takes the best, too, in every mode."""
    logits = random_logits()
    best = int(logits.argmax())
    for settings in ({}, {"top_k": 8}, {"top_p": 0.9}):
        assert draw(plain(temperature=5e-324, **settings), logits, 5) == [best] * 5


def test_the_same_seed_gives_the_same_tokens_whatever_else_is_drawn() -> None:
    """A sampler's random numbers are its own; another seed gives other tokens."""
    logits = random_logits()
    first = draw(plain(temperature=1.0, seed=7), logits, 20)
    torch.rand(100)
    assert draw(plain(temperature=1.0, seed=7), logits, 20) == first
    assert draw(plain(temperature=1.0, seed=8), logits, 20) != first
    unseeded = plain(temperature=1.0)
    assert draw(unseeded, logits, 20) != draw(unseeded, logits, 20)


def test_drawn_tokens_follow_their_probabilities() -> None:
    """4000 draws from four tokens: each share is within four standard deviations."""
    logits = torch.full((VOCAB,), -100.0)
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits[10:14] = probabilities.log() * 0.7  # the temperature takes it back
    drawn = torch.tensor(draw(plain(temperature=0.7, seed=1), logits, 4000))
    for token, probability in zip(range(10, 14), probabilities.tolist(), strict=True):
        share = (drawn == token).float().mean().item()
        deviation = math.sqrt(probability * (1 - probability) / 4000)
        assert abs(share - probability) < 4 * deviation


@given(st.floats(0.01, 1.0), st.integers(0, 20), st.floats(0.1, 2.0), st.integers(0, 5))
def test_top_k_and_top_p_draw_from_the_set_they_define(
    top_p: float, top_k: int, temperature: float, seed: int
) -> None:
    """Every drawn token is in the smallest set of best tokens that holds top_p, among top_k."""
    logits = random_logits(seed, spread=1.0)  # flat: the nucleus is wider than the first guess
    ranked = torch.sort(logits.double() / temperature, descending=True)
    kept = top_k or VOCAB
    probabilities = torch.softmax(ranked.values[:kept], 0)
    before = probabilities.cumsum(0) - probabilities
    size = max(1, int((before < top_p + 1e-9).sum()))
    allowed = set(ranked.indices[:size].tolist())
    sampling = plain(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    assert set(draw(sampling, logits, 5)) <= allowed


def test_the_nucleus_keeps_its_proportions() -> None:
    """What was left out is divided among all that is kept, not given to the last of them."""
    logits = torch.full((VOCAB,), -torch.inf)
    logits[3:6] = torch.tensor([0.5, 0.3, 0.2]).log()
    drawn = draw(plain(temperature=1.0, top_p=0.6, seed=1), logits, 2000)
    assert set(drawn) == {3, 4}
    assert 0.58 < drawn.count(3) / len(drawn) < 0.67  # 0.625; four deviations are 0.043


def test_what_cannot_be_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the dice show exactly 0, a token of probability 0 is passed over."""
    logits = torch.full((VOCAB,), -torch.inf)
    logits[7] = 0.0
    monkeypatch.setattr(torch, "rand", lambda *_, **options: torch.zeros((), dtype=torch.float64))
    assert draw(plain(temperature=1.0), logits, 1) == [7]


def test_a_wide_nucleus_is_drawn_from_whole() -> None:
    """Half the mass of almost equal tokens is half the vocabulary, and most of it comes up."""
    logits = torch.arange(VOCAB) * 1e-6
    drawn = set(draw(plain(temperature=1.0, top_p=0.5, seed=3), logits, 1000))
    assert min(drawn) >= VOCAB // 2 - 1
    assert len(drawn) > 0.95 * VOCAB / 2


def test_the_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    """A repeated token becomes less likely on either side of zero."""
    logits = torch.full((VOCAB,), -50.0)
    logits[3], logits[4] = 2.0, 1.5
    assert Sampler(Sampling(repetition_penalty=1.5), VOCAB).sample(logits, [3]) == 4
    logits[3], logits[4] = -1.5, -2.0
    assert Sampler(Sampling(repetition_penalty=1.5), VOCAB).sample(logits, [3]) == 4
    assert Sampler(Sampling(repetition_penalty=1.2), VOCAB).sample(logits, [3]) == 3


def test_the_penalty_forgets_and_exempts() -> None:
    """Tokens beyond the window, exempt ones and soft ones (beyond the vocabulary) go free."""
    logits = torch.zeros(VOCAB)
    logits[3], logits[4] = 2.0, 1.9
    sampling = Sampling(repetition_penalty=2.0)
    assert Sampler(sampling, VOCAB).sample(logits, [3]) == 4
    assert Sampler(sampling, VOCAB).sample(logits, [3] + [9] * PENALTY_WINDOW_TOKENS) == 3
    assert SamplerFactory(VOCAB, frozenset({3}))(sampling).sample(logits, [3, VOCAB + 1]) == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_logits_are_reported(bad: float) -> None:
    """One NaN or infinity among the logits is a named error, not a token."""
    logits = random_logits()
    logits[5] = bad
    for temperature in (0.0, 1.0):
        with pytest.raises(BrokenNumbers):
            Sampler(plain(temperature=temperature), VOCAB).sample(logits, [])
