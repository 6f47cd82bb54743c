"""What is asked of a recording, what becomes known of it, and who is told meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from dataclasses import dataclass, field
from pathlib import Path

from headstart.client_key import NO_KEY
from headstart.gateway.video.file_sampling import FilePolicy
from headstart.talk.connection.session import Event
from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.frame_choice import DEFAULT_POLICY, PICTURES
from headstart.talk.long_file.notes import Digest, Note
from headstart.talk.long_file.parts import OVERLAP_S, PART_S, Plan
from headstart.talk.long_file.retried_session import RETRY_FOR_S
from headstart.talk.media.losses import Loss

ROOM_CHARS = 6000
"""How much of the notes is read for one answer: some 1,500 tokens."""


@dataclass(frozen=True)
class AnalysisOptions:
    """`pictures`: of a part, on average; `sampler`: how they are chosen; `paced`: no faster than a
    person would watch; `see`, `hear`: whether its pictures and its sound count; `room_chars`: as
    `ROOM_CHARS`."""

    questions: tuple[str, ...] = ()
    from_s: float = 0.0
    to_s: float | None = None
    part_s: float = PART_S
    overlap_s: float = OVERLAP_S
    pictures: int = PICTURES
    sampler: FilePolicy = DEFAULT_POLICY
    see: bool = True
    hear: bool = True
    paced: bool = False
    model: str | None = None
    api_key: str = NO_KEY
    room_chars: int = ROOM_CHARS
    retry_for_s: float = RETRY_FOR_S


@dataclass
class Answer:
    """`read`: the ranges, in s, of the notes or lines that were read in detail."""

    question: str
    text: str
    status: str
    read: list[tuple[float, float]]
    took_s: float
    usage: Event | None = None
    error: str | None = None

    def to_wire(self) -> Event:
        return {
            "question": self.question,
            "answer": self.text,
            "status": self.status,
            "error": self.error,
            "read": [[round(a, 2), round(b, 2)] for a, b in self.read],
            "took_s": round(self.took_s, 2),
            "usage": self.usage,
        }


@dataclass
class Report:
    """Everything that is known in the end. `stopped`: by the user, before the end; `error`: why it
    ended before, if the server went away."""

    info: FileInfo
    plan: Plan
    notes: list[Note] = field(default_factory=list)
    digests: list[Digest] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    stopped: bool = False
    error: str | None = None
    model: str | None = None
    took_s: float = 0.0

    @property
    def seen_to_s(self) -> float:
        """Up to where the recording is known."""
        return self.notes[-1].part.end_s if self.notes else self.plan.start_s

    @property
    def is_whole(self) -> bool:
        return not self.stopped and self.error is None

    def to_wire(self) -> Event:
        looked_s = self.seen_to_s - self.plan.start_s
        return {
            "type": "result",
            **self.info.to_wire(),
            "from_s": round(self.plan.start_s, 3),
            "to_s": round(self.plan.end_s, 3),
            "seen_to_s": round(self.seen_to_s, 3),
            "complete": self.is_whole,
            "answer": self.answers[0].text if self.answers else None,
            "answers": [answer.to_wire() for answer in self.answers],
            "parts": [note.to_wire() for note in self.notes],
            "digests": [vars(digest) for digest in self.digests],
            "lost": [loss.to_wire() for loss in self.losses],
            "remarks": [*self.info.remarks, *self.remarks],
            "error": self.error,
            "model": self.model,
            "wall_s": round(self.took_s, 2),
            "speed": round(looked_s / self.took_s, 3) if self.took_s else None,
            "client_peak_bytes": peak_bytes(),
        }


class AnalysisObserver:
    """Is notified of what happens; the base class does nothing."""

    def planned(self, info: FileInfo, plan: Plan) -> None:
        """The file is good, and nothing has been sent yet."""

    def doing(self, what: str, index: int) -> None:
        """`what` ("reads", "hears", "looks at") happens to part number `index`."""

    def noted(self, note: Note, report: Report) -> None:
        """One more part is known."""

    def damaged(self, loss: Loss) -> None:
        """Something of the file cannot be decoded."""

    def remark(self, sentence: str) -> None:
        """Something that the user should know."""

    def away(self, for_s: float | None) -> None:
        """The server is away, and tried again for `for_s`; None: it is back."""

    def answering(self, question: str) -> None:
        """All is known that will be."""

    def answered(self, answer: Answer) -> None:
        """One question is answered."""


@dataclass
class Stop:
    """How often the user has asked to stop: once, and what is known is used; twice, or while
    questions are answered, and nothing more is asked."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()


def peak_bytes() -> int:
    """Of this process. Not `getrusage`, which counts what its parent had before it started."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
