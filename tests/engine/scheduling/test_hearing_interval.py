"""How often sessions are heard, in virtual time: a recogniser that takes given times, and people
who speak without a pause."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from headstart.engine.scheduling.hearing_interval import HearingInterval, IntervalRules, Sound

MS = 1_000_000
from headstart.engine.session.command_queue import URGENT_NS
CHUNK_NS = 500 * MS
OFF = IntervalRules(most_s=0.0)
LONGER = 0.35  # a chunk more in a pass, in shares of a pass over one


@dataclass
class Person:
    """Chunks come at `first_ns` and every `CHUNK_NS` after it, from `begins_ns` to `ends_ns`. A
    turn of `turn` chunks ends with a final pass."""

    name: str
    first_ns: int
    turn: int = 40
    begins_ns: int = 0
    ends_ns: int = 1 << 62
    sound: deque[Sound] = field(default_factory=deque)
    said: int = 0  # chunks of this turn
    ended_ns: int | None = None  # when its turn ended, until the final pass

    def speak(self, now_ns: int) -> None:
        """Take in the chunks that have come."""
        while self.first_ns <= now_ns and self.ended_ns is None:
            if self.begins_ns <= self.first_ns < self.ends_ns:
                self.sound.append(Sound(self.first_ns, CHUNK_NS))
                self.said += 1
                if self.said == self.turn:
                    self.ended_ns = self.first_ns
            self.first_ns += CHUNK_NS


@dataclass(frozen=True)
class Pass:
    name: str
    sound: tuple[Sound, ...]
    began_ns: int
    ended_ns: int
    level: int
    final: bool

    @property
    def waits_ms(self) -> list[float]:
        """Of each chunk, until it was heard."""
        return [(self.ended_ns - chunk.at_ns) / MS for chunk in self.sound]


class World:
    """Persons, one recogniser and the policy. `pass_ms`: a pass over one chunk, with the work that
    comes with it; `final_ms`: a final pass."""

    def __init__(
        self,
        people: list[Person],
        rules: IntervalRules | None = None,
        pass_ms: float = 50.0,
        final_ms: float = 120.0,
    ) -> None:
        self.people, self.policy = people, HearingInterval(rules)
        self.pass_ms, self.final_ms = pass_ms, final_ms
        self.now_ns = 0
        self.ends = []
        self.passes: list[Pass] = []
        self.levels: list[tuple[int, int]] = [(0, 1)]

    def run(self, until_s: float) -> None:
        while self.now_ns < until_s * 1000 * MS:
            for person in self.people:
                person.speak(self.now_ns)
            if not self._hear_one():
                self.now_ns += 5 * MS
            if self.policy.level != self.levels[-1][1]:
                self.levels.append((self.now_ns, self.policy.level))

    def _hear_one(self) -> bool:
        """As the engine does: ends first, then by deadline, late chunks together."""
        policy = self.policy
        ready = [p for p in self.people if p.ended_ns is not None or p.sound and not self._waits(p)]
        if not ready:
            return False
        first = min(ready, key=self._due_ns)
        if first.ended_ns is not None:
            self._hear(first, 4, final=True)
            return True
        late = first.sound[0].at_ns + CHUNK_NS < self.now_ns
        self._hear(first, 4 if late else 1, final=False)
        return True

    def _due_ns(self, p: Person) -> int:
        first = p.sound[0].at_ns + CHUNK_NS if p.sound else 1<<62
        if p.ended_ns is not None:
            return min(p.ended_ns - URGENT_NS, first)
        return first + self.policy.allowance_ns(p.name, tuple(p.sound))

    def _waits(self, person: Person) -> bool:
        return self.policy.waits(person.name, tuple(person.sound), self.now_ns)

    def _hear(self, person: Person, most: int, *, final: bool) -> None:
        sound = tuple(person.sound.popleft() for _ in range(min(most, len(person.sound))))
        began_ns, level = self.now_ns, self.policy.level
        took_ms = self.final_ms if final else self.pass_ms * (1 + LONGER * (len(sound) - 1))
        self.now_ns += round(took_ms * MS)
        if final:
            self.ends.append((began_ns-person.ended_ns)/MS)
            self.policy.forget(person.name)
            self.policy.worked(round(took_ms * MS), self.now_ns)
            person.sound.clear()
            person.said, person.ended_ns = 0, None
        else:
            self.policy.heard(person.name, sound, round(took_ms * MS), self.now_ns)
        self.passes.append(Pass(person.name, sound, began_ns, self.now_ns, level, final))

    def since(self, s: float) -> list[Pass]:
        return [each for each in self.passes if each.began_ns >= s * 1000 * MS]


def crowd(count: int, seed: int = 0, turn: int = 40) -> list[Person]:
    """People who begin at any time of a chunk, somewhere in a turn."""
    dice = random.Random(seed)
    return [
        Person(f"p{n}", dice.randrange(CHUNK_NS), turn, said=dice.randrange(turn - 1))
        for n in range(count)
    ]


def at(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(int(len(ranked) * share), len(ranked) - 1)]


def waits_ms(passes: list[Pass]) -> list[float]:
    return [ms for each in passes for ms in each.waits_ms]

if __name__ == "__main__":
    for count in (8, 9, 10, 12, 16, 20):
        for cost in (45.0, 50.0,60.0):
            for rules in (OFF, None):
                w = World(crowd(count), rules, cost)
                w.run(120)
                p = w.since(20)
                ends=w.ends[len(w.ends)//5:]
                newest=[e.waits_ms[-1] for e in p if not e.final]
                busy=sum(e.ended_ns-e.began_ns for e in p)/100e9
                x=waits_ms([e for e in p if not e.final])
                print(count,cost,"off" if rules else "on ", "busy %.2f"%busy,"chunk",[round(at(x,q)) for q in (.5,.95,.99,1)],"newest",[round(at(newest,q)) for q in (.5,.95,.99)],"end",[round(at(ends,q)) for q in (.5,.95,1)], [(round(t/1e9,1),l) for t,l in w.levels][:12])
