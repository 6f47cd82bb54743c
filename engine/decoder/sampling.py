"""Sampling: from logits to the next token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.engine.api import Sampling
from headstart.engine.errors import BadSampling, BrokenNumbers

MAX_TEMPERATURE = 2.0
MAX_REPETITION_PENALTY = 10.0
MAX_SEED = 2**63 - 1
MAX_STOP_STRINGS = 16
MAX_STOP_LETTERS = 256
PENALTY_WINDOW_TOKENS = 64
# First guess of the number of tokens that hold the top-p mass; doubled until it is enough.
_NUCLEUS_GUESS = 64


def check_sampling(sampling: Sampling) -> None:
    """Raises `BadSampling` naming the first setting that is out of range (NaN always is)."""
    ranges = (
        ("temperature", 0.0 <= sampling.temperature <= MAX_TEMPERATURE, f"0 to {MAX_TEMPERATURE}"),
        ("top_p", 0.0 < sampling.top_p <= 1.0, "above 0, at most 1"),
        ("top_k", sampling.top_k >= 0, "0 (no limit) or more"),
        (
            "repetition_penalty",
            0.0 < sampling.repetition_penalty <= MAX_REPETITION_PENALTY,
            f"above 0, at most {MAX_REPETITION_PENALTY}",
        ),
        ("max_tokens", sampling.max_tokens >= 1, "at least 1"),
        ("max_sentences", sampling.max_sentences >= 0, "0 (no limit) or more"),
        ("seed", sampling.seed is None or 0 <= sampling.seed <= MAX_SEED, f"0 to {MAX_SEED}"),
        (
            "stop",
            len(sampling.stop) <= MAX_STOP_STRINGS
            and all(0 < len(stop) <= MAX_STOP_LETTERS for stop in sampling.stop),
            f"at most {MAX_STOP_STRINGS} strings of 1 to {MAX_STOP_LETTERS} letters",
        ),
    )
    for name, good, expected in ranges:
        if not good:
            raise BadSampling(name, expected, getattr(sampling, name))


@dataclass(frozen=True, slots=True)
class SamplerFactory:
    """Makes samplers for one vocabulary. `exempt`: tokens that are never penalised for repetition,
    such as the end-of-turn token, which is in every prompt."""

    vocab_size: int
    exempt: frozenset[int] = frozenset()

    def __call__(self, sampling: Sampling) -> Sampler:
        """Raises `BadSampling`."""
        return Sampler(sampling, self.vocab_size, self.exempt)


class Sampler:
    """Chooses the tokens of one answer. Raises `BadSampling` for settings out of range.

    The same logits, contexts and `seed` give the same tokens: each sampler has its own random
    generator and draws one number per token. The repetition penalty (Keskar et al. 2019: positive
    logits divided, negative ones multiplied) covers the last `PENALTY_WINDOW_TOKENS` only; over a
    whole session it would suppress every common word.
    """

    def __init__(
        self, sampling: Sampling, vocab_size: int, exempt: frozenset[int] = frozenset()
    ) -> None:
        check_sampling(sampling)
        self.sampling = sampling
        self.vocab_size = vocab_size
        self._exempt = exempt
        self._random = torch.Generator()
        if sampling.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(sampling.seed)

    def sample(self, logits: Tensor, context: Sequence[int]) -> int:
        """The token that follows `context`, from fp32 `logits` [vocab_size], which are not changed.

        Raises `BrokenNumbers` if the greatest logit is not finite.
        """
        assert logits.shape == (self.vocab_size,)
        logits = self._penalised(logits, context)
        token = int(logits.argmax())
        best = float(logits[token])
        if not math.isfinite(best):  # argmax returns a NaN if there is one
            raise BrokenNumbers("logits", best)
        greedy = self.sampling.temperature == 0.0 or self.sampling.top_k == 1
        return token if greedy else self._draw(logits)

    def _penalised(self, logits: Tensor, context: Sequence[int]) -> Tensor:
        penalty = self.sampling.repetition_penalty
        recent = set(context[-PENALTY_WINDOW_TOKENS:]) - self._exempt
        seen = [token for token in recent if token < self.vocab_size]
        if penalty == 1.0 or not seen:
            return logits
        places = torch.tensor(seen)
        scores = logits[places]
        scores = torch.where(scores > 0, scores / penalty, scores * penalty)
        return logits.index_put((places,), scores)

    def _draw(self, logits: Tensor) -> int:
        """One token by inverse transform sampling over the most likely ones, in fp64."""
        # With the best at 0, no temperature can overflow.
        scores = logits.double()
        scores = (scores - scores.max()) / self.sampling.temperature
        if 0 < self.sampling.top_k < self.vocab_size:
            scores, tokens = torch.topk(scores, self.sampling.top_k)
            probabilities = torch.softmax(scores, 0)
        else:
            probabilities, tokens = self._nucleus(torch.softmax(scores, 0))
        cumulated = probabilities.cumsum(0)
        if self.sampling.top_p < 1.0:
            # Keep each token whose preceding mass is below top_p: at least the first.
            kept = int((cumulated - probabilities < self.sampling.top_p).sum())
            cumulated = cumulated[:kept]
        dice = torch.rand((), generator=self._random, dtype=torch.float64) * cumulated[-1]
        place = int(torch.searchsorted(cumulated, dice, right=True))
        return int(tokens[min(place, len(cumulated) - 1)])

    def _nucleus(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """The most likely tokens, best first, enough of them to hold the mass of top_p.

        Sorting a vocabulary of 150,000 takes ten times as long as finding its best few.
        """
        if self.sampling.top_p == 1.0:
            return probabilities, torch.arange(self.vocab_size)
        count = min(_NUCLEUS_GUESS, self.vocab_size)
        while True:
            best, tokens = torch.topk(probabilities, count)
            if count == self.vocab_size or float(best.sum()) >= self.sampling.top_p:
                return best, tokens
            count = min(2 * count, self.vocab_size)
