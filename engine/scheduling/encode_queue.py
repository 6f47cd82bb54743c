"""Which pictures are encoded next. No I/O, no clock, no torch.

Pictures wait here, and the commands behind them in their own sessions; all other sessions go on.
They are taken by deadline, in batches:

- A batch takes pictures of one level of detail only (those that the encoder can stack), the most
  urgent picture's, and at most `budget_tokens` of them. So an encoder's working memory is bounded
  by one batch, or by one picture that is larger than the budget, which is encoded alone.
- `together` bounds their number. It follows the time that batches take, if there is a target.
- No owner starves: a deadline counts from when the picture came, at most `max_wait_ms` later, and
  owners take turns. An owner's next picture counts from when its last one was taken, so whoever
  sends a thousand at once does not go before one that sends one later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from headstart.engine.scheduling.batch_size import BatchSize

NS_PER_MS = 1_000_000
Picture = TypeVar("Picture")


@dataclass(frozen=True, slots=True)
class EncodeJob(Generic[Picture]):
    """One picture of `owner`, which will be `tokens` long. `level`: its level of detail."""

    picture: Picture
    owner: str
    tokens: int
    level: Hashable
    due_ns: int
    number: int  # in order of arrival


@dataclass(frozen=True, slots=True)
class _Turn:
    """When an owner's last picture was taken, and the number of that batch."""

    at_ns: int
    batch: int


class EncodeQueue(Generic[Picture]):
    """The pictures that wait, at most `limit` of each owner: `push` refuses those beyond it."""

    def __init__(
        self, budget_tokens: int, together: BatchSize, limit: int = 256, max_wait_ms: int = 2_000
    ) -> None:
        assert budget_tokens > 0
        self.budget_tokens, self.together, self.limit = budget_tokens, together, limit
        self._max_wait_ns = max_wait_ms * NS_PER_MS
        self._jobs: list[EncodeJob[Picture]] = []
        self._numbers = count()
        self._batches = count()
        self._turns: dict[str, _Turn] = {}  # of the owners that wait

    def __len__(self) -> int:
        return len(self._jobs)

    def push(
        self,
        picture: Picture,
        owner: str,
        *,
        tokens: int,
        level: Hashable,
        due_ns: int,
        now_ns: int,
    ) -> bool:
        """Queue a picture. False if its owner has too many already: whoever asked encodes it
        without help, or asks again."""
        if sum(job.owner == owner for job in self._jobs) >= self.limit:
            return False
        due_ns = min(max(due_ns, now_ns), now_ns + self._max_wait_ns)
        job = EncodeJob(picture, owner, tokens, level, due_ns, next(self._numbers))
        self._jobs.append(job)
        return True

    def take(self, now_ns: int) -> list[Picture]:
        """The next batch; empty if nothing waits."""
        if not self._jobs:
            return []
        ranked = self._ranked()
        batch, room = [ranked[0]], self.budget_tokens - ranked[0].tokens
        for job in ranked[1:]:
            if len(batch) >= self.together.size:
                break
            if job.level == batch[0].level and job.tokens <= room:
                batch.append(job)
                room -= job.tokens
        taken = {job.number for job in batch}
        self._jobs = [job for job in self._jobs if job.number not in taken]
        turn, waiting = _Turn(now_ns, next(self._batches)), {job.owner for job in self._jobs}
        self._turns.update((job.owner, turn) for job in batch)
        self._turns = {owner: turn for owner, turn in self._turns.items() if owner in waiting}
        return [job.picture for job in batch]

    def _ranked(self) -> list[EncodeJob[Picture]]:
        """All jobs: the most urgent one of each owner, then the second ones, and so on."""
        ranked: list[tuple[int, int, int, int, EncodeJob[Picture]]] = []
        before: Counter[str] = Counter()
        for job in sorted(self._jobs, key=lambda job: (job.due_ns, job.number)):
            last = self._turns.get(job.owner, _Turn(job.due_ns, -1))
            due_ns = max(job.due_ns, last.at_ns)
            ranked.append((before[job.owner], due_ns, last.batch, job.number, job))
            before[job.owner] += 1
        return [job for *_, job in sorted(ranked, key=lambda rank: rank[:-1])]

    def remove(self, picture: Picture) -> bool:
        """Remove one picture. False: it does not wait."""
        left = [job for job in self._jobs if job.picture is not picture]
        gone, self._jobs = len(self._jobs) - len(left), left
        return gone > 0

    def forget(self, owner: str) -> list[Picture]:
        """Remove and return the pictures of `owner`."""
        gone = [job.picture for job in self._jobs if job.owner == owner]
        self._jobs = [job for job in self._jobs if job.owner != owner]
        self._turns.pop(owner, None)
        return gone

    def clear(self) -> list[Picture]:
        """Remove and return all pictures."""
        gone = [job.picture for job in self._jobs]
        self._jobs.clear()
        return gone
