"""Sampling on a device: the tokens of all answers of a step, where their logits lie.

Logits of a session are 0.6 MB; what comes to the host is a token, its logit and a flag. Tokens are
those of `headstart.engine.decoder.sampling.Sampler`: the same operations in the same float types,
and the random numbers of each session's own generator, which are drawn on the host. Sums over the
vocabulary are taken in another order, which moves a token's share by some 1e-16.

Sampled on the host instead, each from its own logits: a top_k above `MOST_BEST`, a nucleus of more
tokens than that, logits in fp64, a sampler of another kind; and all where memory runs out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.decoder.sampling import (
    PENALTY_WINDOW_TOKENS,
    Draw,
    Sampled,
    Sampler,
    sample,
)
from headstart.engine.device.place import Place
from headstart.engine.device.transfer import Array, Mirror
from headstart.engine.errors import BrokenNumbers

log = logging.getLogger("headstart.engine")

MOST_BEST = 1024
"""Most tokens that are sorted; a nucleus has some tens as a rule."""
_LOW = 0xFFFF_FFFF


class Kind(IntEnum):
    """How a token is chosen, in the order of rows on the device."""

    GREEDY = 0
    BEST = 1  # drawn from the best few: by top_k, top_p or both
    ALL = 2  # drawn from the whole vocabulary


@dataclass(frozen=True, slots=True)
class Asked:
    """What is sampled on a device, in the order of `Kind`. `counts`: rows of each kind. `uniforms`:
    a number for each row that is drawn, else 0. `sorted_tokens`: how many tokens of a row of
    `Kind.BEST` are looked at."""

    draws: Sequence[Draw]
    counts: tuple[int, int, int]
    uniforms: Sequence[float]
    sorted_tokens: int

    @classmethod
    def of(cls, draws: Sequence[Draw], most_best: int) -> tuple[Asked, list[Draw]]:
        """Those for the device, and those for the host, whose random numbers are not drawn yet."""
        by_kind: tuple[list[Draw], list[Draw], list[Draw]] = ([], [], [])
        on_host = []
        sorted_tokens = 1
        for draw in draws:
            sampler = draw.sampler
            if not isinstance(sampler, Sampler) or draw.logits.dtype != torch.float32:
                on_host.append(draw)
            elif sampler.greedy:
                by_kind[Kind.GREEDY].append(draw)
            elif sampler.top_k > most_best:
                on_host.append(draw)
            elif sampler.top_k or sampler.sampling.top_p < 1.0:
                wanted = _power_of_2(sampler.top_k) if sampler.top_k else most_best
                sorted_tokens = max(sorted_tokens, min(wanted, most_best, sampler.vocab_size))
                by_kind[Kind.BEST].append(draw)
            else:
                by_kind[Kind.ALL].append(draw)
        greedy, best, everything = by_kind
        ordered = [*greedy, *best, *everything]
        uniforms = [0.0] * len(greedy) + [sampler_of(draw).uniform() for draw in best + everything]
        counts = len(greedy), len(best), len(everything)
        return cls(ordered, counts, uniforms, sorted_tokens), on_host

    @property
    def unlimited(self) -> bool:
        """Whether a row of `Kind.BEST` has no top_k, so that its shares are of all tokens."""
        greedy, best, _ = self.counts
        return any(not sampler_of(draw).top_k for draw in self.draws[greedy : greedy + best])

    def arrays(self, watched: Sequence[int]) -> dict[str, Array]:
        """All that goes to the device."""
        samplers = [sampler_of(draw) for draw in self.draws]
        rows = len(samplers)
        penalties = np.ones(rows)
        repeated = np.zeros((rows, PENALTY_WINDOW_TOKENS), np.int64)
        banned: list[int] = []
        for row, (draw, sampler) in enumerate(zip(self.draws, samplers, strict=True)):
            if tokens := sampler.repeated(draw.context):
                penalties[row] = sampler.sampling.repetition_penalty
                repeated[row] = tokens[0]  # several times over, which changes nothing
                repeated[row, : len(tokens)] = tokens
            banned += [row * sampler.vocab_size + token for token in draw.banned]
        if (penalties == 1.0).all():
            repeated = repeated[:, :0]
        settings = [sampler.sampling for sampler in samplers]
        # A top_p of 1 keeps what rounding has put behind it.
        top_p = [each.top_p if each.top_p < 1.0 else np.inf for each in settings]
        top_k = [sampler.top_k or sampler.vocab_size for sampler in samplers]
        return {
            "repeated": repeated,
            "banned": np.array(banned, np.int64),
            "watched": np.array(watched, np.int64),
            "top_k": np.array(top_k, np.int64)[:, None],
            "penalty": penalties[:, None],
            "temperature": np.array([each.temperature for each in settings])[:, None],
            "top_p": np.array(top_p)[:, None],
            "uniform": np.array(self.uniforms, np.float64)[:, None],
        }


class DeviceSampler:
    """`headstart.engine.decoder.sampling.StepSampler` for logits at `place`.

    `most_best`: most tokens of a row that are sorted.
    """

    ends_steps = True

    def __init__(self, place: Place, most_best: int = MOST_BEST) -> None:
        self._place, self._most_best = place, most_best

    def __call__(
        self, draws: Sequence[Draw], probed: Sequence[Tensor] = (), watched: Sequence[int] = ()
    ) -> Sampled:
        asked, on_host = Asked.of(draws, self._most_best)
        with self._place.current(), torch.inference_mode():
            try:
                chosen, probabilities = self._numbers(asked, probed, watched)
            except torch.OutOfMemoryError as error:
                log.warning("sampled on the host, for want of memory on a device: %s", error)
                chosen = np.full((len(asked.draws), 3), np.nan)
                chosen[:, 2] = False
                rows = [self._place.to_host(row) for row in probed]
                probabilities = np.array([row.softmax(-1)[list(watched)].numpy() for row in rows])
            return self._sampled(asked, chosen, on_host, probabilities)

    def _numbers(
        self, asked: Asked, probed: Sequence[Tensor], watched: Sequence[int]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """What `choose` gives, on the host, and [probed, watched] probabilities; by one copy each
        way. When it returns, all that was enqueued before is done."""
        if not asked.draws and not probed:
            self._place.wait()
            return np.empty((0, 3)), np.empty((0, len(watched)))
        arrays = asked.arrays(watched)
        on = Mirror(arrays, self._place.device).load(arrays)
        found = []
        if asked.draws:
            rows = torch.stack([draw.logits for draw in asked.draws])
            found.append(choose(rows, asked, on).flatten())
        if probed:
            shares = torch.stack(list(probed)).softmax(dim=-1)
            found.append(shares.index_select(1, on["watched"]).double().flatten())
        numbers = self._place.to_host(torch.cat(found)).numpy()
        cut = 3 * len(asked.draws)
        return numbers[:cut].reshape(-1, 3), numbers[cut:].reshape(len(probed), len(watched))

    def _sampled(
        self,
        asked: Asked,
        chosen: npt.NDArray[np.float64],
        on_host: Sequence[Draw],
        probabilities: npt.NDArray[np.float64],
    ) -> Sampled:
        tokens: dict[Draw, int | BrokenNumbers] = {}
        left: dict[Draw, float | None] = dict.fromkeys(on_host)
        for draw, uniform, (token, best, whole) in zip(
            asked.draws, asked.uniforms, chosen.tolist(), strict=True
        ):
            if whole and np.isfinite(best):
                tokens[draw] = int(token)
            elif whole:
                tokens[draw] = BrokenNumbers("logits", best)
            else:
                left[draw] = uniform
        # Before the next step overwrites them.
        rows = {draw: (self._place.to_host(draw.logits), uniform) for draw, uniform in left.items()}
        return OnDevice(tokens, rows, probabilities)


@dataclass(frozen=True, slots=True)
class OnDevice:
    """`headstart.engine.decoder.sampling.Sampled`. `left`: logits on the host, with their random
    numbers, where those have been drawn."""

    tokens: Mapping[Draw, int | BrokenNumbers]
    left: Mapping[Draw, tuple[Tensor, float | None]]
    shares: npt.NDArray[np.float64]

    def token(self, draw: Draw) -> int:
        token = self.tokens.get(draw)
        if isinstance(token, BrokenNumbers):
            raise token
        return sample(draw, *self.left[draw]) if token is None else token

    def probabilities(self, number: int) -> list[float]:
        return [float(share) for share in self.shares[number]]


def choose(rows: Tensor, asked: Asked, on: Mapping[str, Tensor]) -> Tensor:
    """From fp32 `rows` of logits [n, vocab_size], which are changed: fp64 [n, 3], the token, its
    row's greatest logit, and whether the token is the sampler's: 0 where a nucleus is wider than
    what was sorted. `on`: `Asked.arrays` on the device. Waits for nothing on a GPU.

    Whatever is in `rows`, no index is out of range: that would end every session on a GPU.
    """
    rows.view(-1).index_fill_(0, on["banned"], -torch.inf)
    if on["repeated"].shape[1]:
        scores, penalty = rows.gather(1, on["repeated"]), on["penalty"].to(rows.dtype)
        scores = torch.where(scores > 0, scores / penalty, scores * penalty)
        rows.scatter_(1, on["repeated"], scores)
    tokens = rows.argmax(dim=1, keepdim=True)  # of a NaN, if there is one
    best = rows.gather(1, tokens).double()
    whole = torch.ones_like(best)
    greedy, few, _ = asked.counts
    for part, draw in (
        (slice(greedy, greedy + few), _from_best),
        (slice(greedy + few, len(rows)), _from_all),
    ):
        if part.start < part.stop:
            own = {name: on[name][part] for name in ("top_k", "temperature", "top_p", "uniform")}
            tokens[part], whole[part] = draw(rows[part], best[part], asked, own)
    return torch.cat((tokens.double(), best, whole), dim=1)


def _from_best(
    rows: Tensor, best: Tensor, asked: Asked, on: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """[n, 1]: tokens drawn from the best ones, and whether these were enough of them."""
    count, vocab_size = asked.sorted_tokens, rows.shape[1]
    tokens = vocab_size - 1 - (torch.topk(_keys(rows), count, dim=1).values & _LOW)
    rank = torch.arange(count, device=rows.device)
    weights = _weights(rows.gather(1, tokens), best, on)
    weights = weights.masked_fill(rank >= on["top_k"], 0.0)
    limited = on["top_k"] < vocab_size
    total = weights.sum(dim=1, keepdim=True)
    if asked.unlimited:
        whole = _weights(rows, best, on).sum(dim=1, keepdim=True)
        total = torch.where(limited, total, whole)
    shares = weights / total
    cumulated = shares.cumsum(dim=1)
    kept = (cumulated - shares < on["top_p"]) & (rank < on["top_k"])
    last = kept.sum(dim=1, keepdim=True).clamp(min=1) - 1
    at = on["uniform"] * cumulated.gather(1, last)
    place = ((cumulated <= at) & (rank <= last)).sum(dim=1, keepdim=True)
    enough = limited | (cumulated[:, -1:] >= on["top_p"])
    if count == vocab_size:
        enough = torch.ones_like(enough)
    # A row with a NaN is whole: its best logit tells.
    broken = ~torch.isfinite(best)
    return tokens.gather(1, torch.minimum(place, last)), (enough | broken).double()


def _from_all(
    rows: Tensor, best: Tensor, asked: Asked, on: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """[n, 1]: tokens drawn from all, and ones."""
    weights = _weights(rows, best, on)
    cumulated = (weights / weights.sum(dim=1, keepdim=True)).cumsum(dim=1)
    at = on["uniform"] * cumulated[:, -1:]
    place = torch.searchsorted(cumulated, at, right=True)
    return place.clamp(max=rows.shape[1] - 1), torch.ones_like(best)


def _weights(logits: Tensor, best: Tensor, on: Mapping[str, Tensor]) -> Tensor:
    """Shares of tokens, times a constant, in fp64: the best token's is 1."""
    return ((logits.double() - best) / on["temperature"]).exp()


def _keys(logits: Tensor) -> Tensor:
    """int64 numbers in the order of fp32 `logits` [n, vocab_size]; of equal logits the lower token
    has the greater. Their low 32 bits tell the token, counted from the last."""
    bits = (logits + 0.0).view(torch.int32)  # -0 as 0
    ascending = torch.where(bits < 0, bits ^ 0x7FFF_FFFF, bits)
    from_last = torch.arange(logits.shape[1] - 1, -1, -1, device=logits.device)
    return (ascending.long() << 32) | from_last


def sampler_of(draw: Draw) -> Sampler:
    """A draw's sampler, which is one of ours."""
    assert isinstance(draw.sampler, Sampler)
    return draw.sampler


def _power_of_2(size: int) -> int:
    return 1 << (size - 1).bit_length()
