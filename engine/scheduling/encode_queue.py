"""Which pictures are encoded next. No I/O, no clock, no torch.

Pictures wait here, and the commands behind them in their own sessions; all other sessions go on.
They are taken by deadline, in batches:

- A batch takes pictures of one level of detail only (those that the encoder can stack), the most
  urgent picture's, and at most `budget_tokens` of them. So an encoder's working memory is bounded
  by one batch, or by one picture that is larger than the budget, which is encoded alone.
- `together` bounds their number. It follows the time that batches take, if there is a target.
- No owner starves: a deadline counts from when the picture came, at most `max_wait_ms` later. Of
  equal deadlines, owners take turns.
"""

from __future__ import annotations

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
    round: int  # how many pictures its owner had taken or waiting before it


class EncodeQueue(Generic[Picture]):
    """The pictures that wait, at most `limit`: `push` refuses those beyond it."""

    def __init__(
        self, budget_tokens: int, together: BatchSize, limit: int = 256, max_wait_ms: int = 2_000
    ) -> None:
        assert budget_tokens > 0
        self.budget_tokens, self.together, self.limit = budget_tokens, together, limit
        self._max_wait_ns = max_wait_ms * NS_PER_MS
        self._jobs: list[EncodeJob[Picture]] = []
        self._numbers = count()

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
        """Queue a picture. False if the queue is full: whoever asked encodes it without help."""
        if len(self._jobs) >= self.limit:
            return False
        due_ns = min(max(due_ns, now_ns), now_ns + self._max_wait_ns)
        turn = sum(job.owner == owner for job in self._jobs)
        job = EncodeJob(picture, owner, tokens, level, due_ns, next(self._numbers), turn)
        self._jobs.append(job)
        return True

    def take(self) -> list[Picture]:
        """The next batch; empty if nothing waits."""
        if not self._jobs:
            return []
        ranked = sorted(self._jobs, key=lambda job: (job.due_ns, job.round, job.number))
        batch, room = [ranked[0]], self.budget_tokens - ranked[0].tokens
        for job in ranked[1:]:
            if len(batch) >= self.together.size:
                break
            if job.level == batch[0].level and job.tokens <= room:
                batch.append(job)
                room -= job.tokens
        self._jobs = [job for job in self._jobs if job not in batch]
        return [job.picture for job in batch]

    def forget(self, owner: str) -> list[Picture]:
        """Remove and return the pictures of `owner`."""
        gone = [job.picture for job in self._jobs if job.owner == owner]
        self._jobs = [job for job in self._jobs if job.owner != owner]
        return gone

    def clear(self) -> list[Picture]:
        """Remove and return all pictures."""
        gone = [job.picture for job in self._jobs]
        self._jobs.clear()
        return gone
