"""Sampling: from logits to the next token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
    generator and draws one number per token, and of equal logits the lower token comes first. The
    repetition penalty (Keskar et al. 2019: positive logits divided, negative ones multiplied)
    covers the last `PENALTY_WINDOW_TOKENS` only; over a whole session it would suppress every
    common word.
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

    @property
    def greedy(self) -> bool:
        """Whether it takes the best token, without a random number."""
        return self.sampling.temperature == 0.0 or self.sampling.top_k == 1

    @property
    def top_k(self) -> int:
        """The most tokens that are drawn from; 0: no limit."""
        return self.sampling.top_k if self.sampling.top_k < self.vocab_size else 0

    def uniform(self) -> float:
        """The next number of its random stream, in [0, 1)."""
        return float(torch.rand((), generator=self._random, dtype=torch.float64))

    def repeated(self, context: Sequence[int]) -> list[int]:
        """The tokens of `context` that are penalised."""
        if self.sampling.repetition_penalty == 1.0:
            return []
        recent = set(context[-PENALTY_WINDOW_TOKENS:]) - self._exempt
        return [token for token in recent if token < self.vocab_size]

    def sample(self, logits: Tensor, context: Sequence[int], uniform: float | None = None) -> int:
        """The token that follows `context`, from fp32 `logits` [vocab_size], which are not changed.
        `uniform`: a number that `uniform()` gave for this token; None: it is drawn now.

        Raises `BrokenNumbers` if the greatest logit is not finite.
        """
        assert logits.shape == (self.vocab_size,)
        logits = self._penalised(logits, context)
        token = int(logits.argmax())
        best = float(logits[token])
        if not math.isfinite(best):  # argmax returns a NaN if there is one
            raise BrokenNumbers("logits", best)
        if self.greedy:
            return token
        return self._draw(logits, best, self.uniform() if uniform is None else uniform)

    def _penalised(self, logits: Tensor, context: Sequence[int]) -> Tensor:
        penalty, repeated = self.sampling.repetition_penalty, self.repeated(context)
        if not repeated:
            return logits
        places = torch.tensor(repeated)
        scores = logits[places]
        scores = torch.where(scores > 0, scores / penalty, scores * penalty)
        return logits.index_put((places,), scores)

    def _draw(self, logits: Tensor, best: float, uniform: float) -> int:
        """One token by inverse transform sampling over the most likely ones, in fp64."""

        def probabilities(chosen: Tensor) -> Tensor:
            # With the best at 0, no temperature can overflow.
            return torch.softmax((chosen.double() - best) / self.sampling.temperature, 0)

        tokens: Tensor | None = None  # all of them
        if self.top_k:
            tokens = best_tokens(logits, self.top_k)
            kept = probabilities(logits[tokens])
        else:
            kept = probabilities(logits)
            if self.sampling.top_p < 1.0:
                tokens = self._nucleus(logits, kept)
                kept = kept[tokens]
        cumulated = kept.cumsum(0)
        if self.sampling.top_p < 1.0:
            # Keep each token whose preceding mass is below top_p: at least the first.
            size = int((cumulated - kept < self.sampling.top_p).sum())
            cumulated = cumulated[:size]
        at = torch.searchsorted(cumulated, uniform * cumulated[-1], right=True)
        place = min(int(at), len(cumulated) - 1)
        return place if tokens is None else int(tokens[place])

    def _nucleus(self, logits: Tensor, probabilities: Tensor) -> Tensor:
        """The most likely tokens, best first, enough of them to hold the mass of top_p.

        Sorting a vocabulary of 150,000 takes ten times as long as finding its best few.
        """
        count = min(_NUCLEUS_GUESS, self.vocab_size)
        while True:
            tokens = best_tokens(logits, count)
            mass = float(probabilities[tokens].sum())
            if count == self.vocab_size or mass >= self.sampling.top_p:
                return tokens
            count = min(2 * count, self.vocab_size)


def best_tokens(logits: Tensor, count: int) -> Tensor:
    """The places of the `count` greatest of `logits` [vocab_size], the best first; of equal ones
    the lower first, where torch.topk leaves open which."""
    found = torch.topk(logits, min(count + 1, len(logits)))
    values, at_least = found.values, found.indices[:count]
    if count < len(logits) and values[count] == values[count - 1]:
        # More are as good as the last than were taken.
        as_good = (logits == values[count]).nonzero()[:, 0]
        at_least = torch.cat((at_least[values[:count] > values[count]], as_good))
    ascending = at_least.sort().values
    order = torch.sort(logits[ascending], descending=True, stable=True).indices
    return ascending[order[:count]]


class TokenSampler(Protocol):
    """What an answer's tokens are chosen by: a `Sampler`, or a test's."""

    def sample(self, logits: Tensor, context: Sequence[int]) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """A token to be sampled: the one behind `context`, from `logits` [vocab_size], which may lie on
    a device. `banned`: tokens that it must not be."""

    sampler: TokenSampler
    logits: Tensor
    context: Sequence[int]
    banned: frozenset[int] = frozenset()


class Sampled(Protocol):
    """What a step's logits gave."""

    def token(self, draw: Draw) -> int:
        """The token of a draw, to be asked for once. Raises `BrokenNumbers`."""
        ...

    def probabilities(self, number: int) -> Sequence[float]:
        """Of the watched tokens, by the probed row of that number."""
        ...


class StepSampler(Protocol):
    """Samples for all answers of a step."""

    ends_steps: bool
    """Whether a step is still being computed until the call returns, as on a GPU."""

    def __call__(
        self, draws: Sequence[Draw], probed: Sequence[Tensor] = (), watched: Sequence[int] = ()
    ) -> Sampled:
        """Sample each of `draws`; and from each of `probed`, rows of logits, the probabilities of
        the tokens `watched`. Called behind every step, before the next."""
        ...


class HostSampler:
    """`StepSampler` for logits on the host. Each answer's token is sampled when it is asked for, so
    the first answer does not wait for the others' tokens."""

    ends_steps = False

    def __call__(
        self, draws: Sequence[Draw], probed: Sequence[Tensor] = (), watched: Sequence[int] = ()
    ) -> Sampled:
        return OnHost(probed, watched)


@dataclass(frozen=True, slots=True)
class OnHost:
    """`Sampled`, when it is asked for."""

    probed: Sequence[Tensor]
    watched: Sequence[int]

    def token(self, draw: Draw) -> int:
        return sample(draw, draw.logits)

    def probabilities(self, number: int) -> list[float]:
        found = self.probed[number].softmax(dim=-1)[list(self.watched)].tolist()
        return [float(probability) for probability in found]


def sample(draw: Draw, logits: Tensor, uniform: float | None = None) -> int:
    """A draw's token from `logits`, which are on the host. `uniform`: as of `Sampler.sample`.

    Raises `BrokenNumbers`.
    """
    if draw.banned:
        logits = logits.clone()
        logits[list(draw.banned)] = -torch.inf
    if uniform is not None:
        assert isinstance(draw.sampler, Sampler)
        return draw.sampler.sample(logits, draw.context, uniform)
    return draw.sampler.sample(logits, draw.context)
