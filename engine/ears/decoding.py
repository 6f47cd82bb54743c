"""Greedy decoding of one encoded sound, with guards.

The tokens that must come (`forced`) and those that will likely come (`draft`: the last hypothesis)
run in one pass. The draft is kept as far as it is what greedy decoding would have said, so the
result is that of plain greedy decoding, only sooner: a weight-bound step per *new* token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import torch
from torch import Tensor

from engine.ears.hypothesis import loop_start
from engine.ears.settings import Extras
from engine.ears.tokens import WhisperTokens
from engine.ears.whisper import POSITIONS_PER_SECOND
from engine.ears.whisper_decoder import CrossCache, TextCache, WhisperDecoder


class Ending(StrEnum):
    """Why decoding stopped."""

    END = "end"  # the model said so
    LOOP = "loop"  # it began to repeat itself; the repeats are cut off
    LIMIT = "limit"  # it said more than a person can in the time


@dataclass(frozen=True)
class Task:
    """One decoding. `opening` steers the model and ends where words begin; `limit`: the most
    tokens after it; `positions`: of the sound, without the silence behind it."""

    opening: tuple[int, ...]
    forced: tuple[int, ...]
    draft: tuple[int, ...]
    limit: int
    positions: int


@dataclass(frozen=True)
class Decoded:
    """What follows the forced tokens.

    `logprobs` and `places_s` (where in the sound it was heard): of each token, the latter with the
    forced tokens first, and empty when the model has no alignment heads. `end_logprob`: of the end
    token, 0 when a guard stopped. `no_speech`: the model's own belief that there is none, where
    nothing was forced, else 0.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    places_s: tuple[float, ...]
    end_logprob: float
    no_speech: float
    ending: Ending
    passes: int

    @property
    def mean_logprob(self) -> float:
        """Per token, the end included, as the authors count it."""
        return (sum(self.logprobs) + self.end_logprob) / (len(self.logprobs) + 1)


@dataclass(frozen=True)
class _Choice:
    token: int
    logprob: float
    place_s: float | None


@dataclass
class _Run:
    """What one decoding has so far; `places_s` starts with the forced tokens."""

    task: Task
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    places_s: list[float] = field(default_factory=list)
    no_speech: float = 0.0
    passes: int = 0

    def result(self, ending: Ending, keep: int, end_logprob: float = 0.0) -> Decoded:
        placed = len(self.task.forced) + keep if self.places_s else 0
        return Decoded(
            tokens=tuple(self.tokens[:keep]),
            logprobs=tuple(self.logprobs[:keep]),
            places_s=tuple(self.places_s[:placed]),
            end_logprob=end_logprob,
            no_speech=self.no_speech,
            ending=ending,
            passes=self.passes,
        )

    def accept(self, choices: Iterable[_Choice], end: int) -> Decoded | None:
        """Take tokens as long as they agree with the draft; the result when one of them ends it."""
        task = self.task
        for choice in choices:
            if choice.token == end:
                return self.result(Ending.END, len(self.tokens), choice.logprob)
            self.tokens.append(choice.token)
            self.logprobs.append(choice.logprob)
            if choice.place_s is not None:
                self.places_s.append(choice.place_s)
            start = loop_start((*task.forced, *self.tokens), self.places_s)
            if start is not None:
                return self.result(Ending.LOOP, max(start - len(task.forced), 0))
            if len(task.forced) + len(self.tokens) > task.limit:
                return self.result(Ending.LIMIT, max(task.limit - len(task.forced), 0))
            at = len(self.tokens) - 1
            if at < len(task.draft) and task.draft[at] != choice.token:
                break  # what was run after it is of no use
        return None


class GreedyDecoder:
    """Greedy search over one decoder; keeps no state between calls."""

    def __init__(self, decoder: WhisperDecoder, tokens: WhisperTokens, extras: Extras) -> None:
        self._decoder = decoder
        self._special = tokens.specials
        self._watched = extras.alignment_heads
        blocked = torch.zeros(decoder.settings.vocabulary)
        blocked[list(extras.suppress)] = -torch.inf
        # Timestamps follow the last special token; we ask for text without them.
        blocked[self._special.no_timestamps :] = -torch.inf
        self._blocked = blocked
        # The authors forbid an immediate end too; an honest "nothing was said" is welcome here.
        first = [token for token in extras.suppress_first if token != self._special.end]
        self._blocked_first = blocked.clone()
        self._blocked_first[first] = -torch.inf
        # Sound that stops early is easily written without capitals, and then without full stops.
        self._blocked_opening = self._blocked_first.clone()
        self._blocked_opening[list(tokens.lower_case())] = -torch.inf

    def decode(self, sound: CrossCache, task: Task) -> Decoded:
        """Greedy tokens after `task.forced`; the text positions bound the length too."""
        cache = TextCache(self._decoder.settings)
        room = max(cache.capacity - len(task.opening) - len(task.forced) - 1, 0)
        task = replace(task, draft=task.draft[:room], limit=min(task.limit, room))
        given = torch.tensor((*task.opening, *task.forced, *task.draft))
        hidden, attention = self._decoder(given, cache, sound, self._watched)
        words_at = len(task.opening) - 1  # this row chooses the first word's token
        first = words_at + len(task.forced)
        run = _Run(task, passes=1)
        if self._watched:
            run.places_s = _places_s(attention[:, words_at:first], task.positions)
        if not task.forced:
            run.no_speech = self._no_speech(hidden[task.opening.index(self._special.start)])
        blocked = self._blocked
        if not task.forced:
            follows_on = task.opening[0] == self._special.previous
            blocked = self._blocked_first if follows_on else self._blocked_opening
        choices = self._choose(hidden[first:], attention[:, first:], task.positions, blocked)
        while (done := run.accept(choices, self._special.end)) is None:
            cache.cut(first + len(run.tokens))
            last = torch.tensor(run.tokens[-1:])
            hidden, attention = self._decoder(last, cache, sound, self._watched)
            run.passes += 1
            choices = self._choose(hidden, attention, task.positions, self._blocked)
        return done

    def _choose(
        self, rows: Tensor, attention: Tensor, positions: int, blocked_first: Tensor
    ) -> list[_Choice]:
        """The best token for each row [n, D]; `blocked_first` is for the first row."""
        logits = self._decoder.vocabulary.logits(rows)
        logits[0] += blocked_first
        logits[1:] += self._blocked
        best = logits.max(dim=-1)
        scores = best.values - logits.logsumexp(dim=-1)
        places: list[float | None] = [None] * len(rows)
        if self._watched:
            places[:] = _places_s(attention, positions)
        triples = zip(best.indices.tolist(), scores.tolist(), places, strict=True)
        return [_Choice(*triple) for triple in triples]

    def _no_speech(self, row: Tensor) -> float:
        logits = self._decoder.vocabulary.logits(row[None])[0]
        return float(logits.softmax(dim=-1)[self._special.no_speech])


def _places_s(attention: Tensor, positions: int) -> list[float]:
    """Where each row [heads, n, T] looks most, silence behind the sound left out."""
    best = attention[:, :, :positions].mean(dim=0).argmax(dim=-1)
    return [position / POSITIONS_PER_SECOND for position in best.tolist()]
