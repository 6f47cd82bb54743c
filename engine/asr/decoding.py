"""Greedy decoding of one encoded sound, with guards.

The tokens that must come (`forced`) and those that will likely come (`draft`: the last hypothesis)
run in one pass. The draft is kept as far as it is what greedy decoding would have said, so the
result is that of plain greedy decoding, only sooner: a weight-bound step per *new* token. Behind a
difference the draft is taken up again where it goes on as the text does (`likely_next`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from itertools import takewhile

import torch
from torch import Tensor

from headstart.engine.asr.runaway import loop_start
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import CrossCache, Text, TextCache
from headstart.engine.asr.whisper.decoder import WhisperDecoder
from headstart.engine.asr.whisper.encoder import POSITIONS_PER_SECOND
from headstart.engine.asr.whisper.pieces import Pieces, drain
from headstart.engine.asr.whisper.settings import Extras

GUESSED_TOKENS = 12
"""Run at once behind a difference from the draft: more rows cost, and fewer of them come true."""

MANY_ROWS = 24
"""From so many on, choosing their tokens is a piece of work of its own."""


class Ending(StrEnum):
    """Why decoding stopped."""

    END = "end"  # the model said so
    LOOP = "loop"  # it repeated itself and would not have ended; the repeats are cut off
    LIMIT = "limit"  # it said more than a person can in the time


@dataclass(frozen=True)
class Task:
    """One decoding. `opening` steers the model and ends where words begin; `limit`: the most
    tokens after it; `positions`: of the sound, without the silence behind it; `frozen`: of these,
    not to be encoded anew; `capital`: whether text begins with one where nothing goes before;
    `end_first`: whether the end may come at once, behind the forced tokens; `patient`: whether a
    phrase said again is a loop only when `limit` is reached, for the sound is heard as a whole."""

    opening: tuple[int, ...]
    forced: tuple[int, ...]
    draft: tuple[int, ...]
    limit: int
    positions: int
    frozen: int = 0
    capital: bool = True
    end_first: bool = True
    patient: bool = False


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


@dataclass
class Memory:
    """Rows of one text that are in its cache: `tokens` and, of each, the place in the sound where
    the next token was heard (`places_s`, empty without alignment heads).

    The first `settled` rows are used again by the next decoding: what they listened to is frozen.
    A row from before that knows only a beginning of the sound, and misleads whoever reads on behind
    it: "the capital of", made when "France" had not been said, had it heard as "friends".
    """

    cache: TextCache
    tokens: list[int] = field(default_factory=list)
    places_s: list[float] = field(default_factory=list)
    settled: int = 0

    def copy(self) -> Memory:
        return Memory(self.cache.copy(), list(self.tokens), list(self.places_s), self.settled)

    def cut(self, rows: int) -> None:
        """Forget all rows from `rows` on."""
        self.cache.cut(rows)
        del self.tokens[rows:]
        del self.places_s[rows:]
        self.settled = min(self.settled, rows)

    def settle(self, first: int, end: int, frozen_s: float) -> None:
        """Note which rows are done with: of those from `first` on, that choose the forced words up
        to row `end`, all before the first that looked behind `frozen_s`; then the opening too."""
        places_s = self.places_s[first:end]
        done = sum(1 for _ in takewhile(lambda place_s: place_s < frozen_s, places_s))
        if done:
            self.settled = max(self.settled, first + done)

    def keep(self, given: Sequence[int], at_most: int) -> int:
        """Cut back to what it shares with `given`; how many rows that is."""
        pairs = zip(self.tokens[:at_most], given, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.cut(kept)
        return kept


@dataclass(frozen=True)
class Job:
    """One of several decodings that are made together."""

    sound: CrossCache
    task: Task
    memory: Memory


@dataclass(frozen=True)
class _Choice:
    token: int
    logprob: float
    place_s: float | None


@dataclass
class _Run:
    """What one decoding has so far; `places_s` starts with the forced tokens. `first`: the row that
    chooses the first new token. `guess`: tokens run in this pass that are not chosen yet."""

    job: Job
    task: Task
    first: int
    guess: tuple[int, ...] = ()
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    places_s: list[float] = field(default_factory=list)
    no_speech: float = 0.0
    passes: int = 0
    done: Decoded | None = None

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
        """Take tokens as long as they agree with the guess; the result when one of them ends it."""
        task = self.task
        for at, choice in enumerate(choices):
            if choice.token == end:
                return self.result(Ending.END, len(self.tokens), choice.logprob)
            self.tokens.append(choice.token)
            self.logprobs.append(choice.logprob)
            if choice.place_s is not None:
                self.places_s.append(choice.place_s)
            is_full = len(task.forced) + len(self.tokens) > task.limit
            start = None
            if is_full or not task.patient:
                places_s = () if task.patient else self.places_s
                start = loop_start((*task.forced, *self.tokens), places_s)
            if start is not None:
                return self.result(Ending.LOOP, max(start - len(task.forced), 0))
            if is_full:
                return self.result(Ending.LIMIT, max(task.limit - len(task.forced), 0))
            if at < len(self.guess) and self.guess[at] != choice.token:
                break  # what was run after it is of no use
        return None


def likely_next(
    tokens: Sequence[int], draft: Sequence[int], at_most: int = GUESSED_TOKENS
) -> tuple[int, ...]:
    """What likely follows `tokens`: how the draft goes on behind the same two tokens, or the same
    one, nearest to here; else how these went on themselves where they said the same two before."""
    for known, width in ((draft, 2), (draft, 1), (tokens[:-1], 2)):
        end = tuple(tokens[-width:])
        if len(end) < width:
            continue
        behind = range(width, len(known) + 1)
        places = [i for i in behind if tuple(known[i - width : i]) == end]
        if places:
            at = min(places, key=lambda place: (abs(place - len(tokens)), -place))
            return tuple(known[at : at + at_most])
    return ()


class _Blocked(IntEnum):
    """Which tokens may not come next: rows of the table that is added to logits."""

    ALWAYS = 0
    WITH_END = 1  # nor may the end
    AT_FIRST = 2
    AT_OPENING = 3  # nor a small letter


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
        end = blocked.clone()
        end[self._special.end] = -torch.inf
        # The authors forbid an immediate end too; an honest "nothing was said" is welcome here.
        first = blocked.clone()
        first[[t for t in extras.suppress_first if t != self._special.end]] = -torch.inf
        # Sound that stops early is easily written without capitals, and then without full stops.
        opening = first.clone()
        opening[list(tokens.lower_case())] = -torch.inf
        self._blocked = decoder.vocabulary.table(torch.stack((blocked, end, first, opening)))

    def memory(self) -> Memory:
        """Of a text that has not begun."""
        return Memory(self._decoder.text_cache())

    def decode(self, sound: CrossCache, task: Task, memory: Memory | None = None) -> Decoded:
        """Greedy tokens after `task.forced`; the text positions bound the length too."""
        return self.decode_many([Job(sound, task, memory or self.memory())])[0]

    def decode_many(self, jobs: Sequence[Job]) -> list[Decoded]:
        """Several decodings in step: each pass runs the next tokens of all that are not done."""
        return drain(self.decode_in_pieces(jobs))

    def decode_in_pieces(self, jobs: Sequence[Job]) -> Pieces[list[Decoded]]:
        """`decode_many`, pass by pass; one of many rows in two pieces."""
        runs = [self._begin(job) for job in jobs]
        while active := [run for run in runs if run.done is None]:
            if active[0].passes:
                yield
            yield from self._pass(active)
        return [run.done for run in runs if run.done is not None]

    def _begin(self, job: Job) -> _Run:
        task = job.task
        room = max(job.memory.cache.capacity - len(task.opening) - len(task.forced) - 1, 0)
        task = replace(task, draft=task.draft[:room], limit=min(task.limit, room))
        return _Run(job, task, first=len(task.opening) - 1 + len(task.forced))

    def _pass(self, runs: Sequence[_Run]) -> Pieces[None]:
        """One pass of the decoder over the next rows of all `runs`."""
        given = [self._next_rows(run) for run in runs]
        texts = [
            Text(torch.tensor(rows), run.job.memory.cache, run.job.sound, self._watched)
            for run, rows in zip(runs, given, strict=True)
        ]
        beginning = [run for run in runs if run.passes == 0 and not run.task.forced]
        # The belief that nobody speaks, asked without what was said before: that colours it.
        asides = [
            Text(torch.tensor([self._special.start]), self.memory().cache, run.job.sound)
            for run in beginning
        ]
        hidden = self._decoder.read([*texts, *asides])
        if beginning:
            silent = self._decoder.vocabulary.probability(
                torch.cat(hidden[len(texts) :]), self._special.no_speech
            )
            for run, probability in zip(beginning, silent, strict=True):
                run.no_speech = probability
        places_s = _places_s(texts, [run.task.positions for run in runs])
        asked = []
        for run, rows, placed_s, out in zip(runs, given, places_s, hidden, strict=False):
            memory = run.job.memory
            before = len(memory.tokens)
            memory.tokens += rows
            memory.places_s += placed_s
            if run.passes == 0:
                opened = len(run.task.opening) - 1
                run.places_s = memory.places_s[opened : run.first]
                memory.settle(opened, run.first, run.task.frozen / POSITIONS_PER_SECOND)
            start = max(run.first + len(run.tokens) - before, 0)
            asked.append(out[start:])
            run.passes += 1
        if sum(map(len, asked)) >= MANY_ROWS:
            yield
        chosen = self._choose(runs, asked)
        for run, choices in zip(runs, chosen, strict=True):
            run.done = run.accept(choices, self._special.end)

    def _next_rows(self, run: _Run) -> list[int]:
        """Tokens to run next: at first all that is given and not remembered, then the newest and
        what is likely to follow."""
        memory, task = run.job.memory, run.task
        if run.passes:
            memory.cut(run.first + len(run.tokens))
            room = task.limit - len(task.forced) - len(run.tokens)
            run.guess = likely_next(run.tokens, task.draft)[: max(room, 0)]
            return [*run.tokens[-1:], *run.guess]
        run.guess = task.draft
        given = (*task.opening, *task.forced, *task.draft)
        # The row that chooses the first new word is run anew, and all that are not settled.
        kept = memory.keep(given, at_most=min(run.first, memory.settled) if task.forced else 0)
        return list(given[kept:])

    def _choose(self, runs: Sequence[_Run], asked: Sequence[Tensor]) -> list[list[_Choice]]:
        """The best token for each row [n, D] of each run."""
        every = [
            blocked
            for run, rows in zip(runs, asked, strict=True)
            for blocked in (self._blocked_at(run), *[_Blocked.ALWAYS] * (len(rows) - 1))
        ]
        hidden = asked[0] if len(asked) == 1 else torch.cat(list(asked))
        best, scores = self._decoder.vocabulary.best(hidden, self._blocked, every)
        chosen, start = [], 0
        for run, rows in zip(runs, asked, strict=True):
            end = start + len(rows)
            places: list[float | None] = [None] * len(rows)
            if self._watched:
                places[:] = run.job.memory.places_s[-len(rows) :]
            triples = zip(best[start:end], scores[start:end], places, strict=True)
            chosen.append([_Choice(*triple) for triple in triples])
            start = end
        return chosen

    def _blocked_at(self, run: _Run) -> _Blocked:
        """What may not come next."""
        if run.task.forced or run.tokens:
            may_end = run.tokens or run.task.end_first
            return _Blocked.ALWAYS if may_end else _Blocked.WITH_END
        follows_on = run.task.opening[0] == self._special.previous
        free = follows_on or not run.task.capital
        return _Blocked.AT_FIRST if free else _Blocked.AT_OPENING


def _places_s(texts: Sequence[Text], positions: Sequence[int]) -> list[list[float]]:
    """Where in its sound each row of each text looks most, in seconds, the silence behind so many
    positions left out; of texts without watched heads nothing."""
    looked = [
        text.looked(n) if text.watched else None for text, n in zip(texts, positions, strict=True)
    ]
    best = [each.argmax(dim=-1) for each in looked if each is not None]
    found = iter(torch.cat(best).tolist() if best else ())
    return [
        [next(found) / POSITIONS_PER_SECOND for _ in range(0 if each is None else len(each))]
        for each in looked
    ]
