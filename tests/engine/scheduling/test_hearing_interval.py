"""How often sessions are heard, in virtual time: a recogniser that takes given times, and people
who speak without a pause."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from headstart.engine.config import EngineConfig
from headstart.engine.scheduling.hearing_interval import (
    HearingInterval,
    IntervalRules,
    Sound,
    interval_of,
)

MS = 1_000_000
S = 1000 * MS
CHUNK_NS = 500 * MS
URGENT_NS = 1 * S  # as `engine.session.command_queue`
TOGETHER = 4  # chunks in a pass at most
OFF = IntervalRules(most_s=0.0)
LONGER = 0.35  # a chunk more in a pass, in shares of a pass over one


@dataclass
class Person:
    """Chunks come at `next_ns` and every half second after it. A turn of `turn` chunks ends with a
    final pass."""

    name: str
    next_ns: int
    turn: int = 40
    said: int = 0  # chunks of this turn
    sound: deque[Sound] = field(default_factory=deque)
    ended_ns: int | None = None  # when its turn ended, until the final pass

    def speak(self, now_ns: int) -> None:
        """Take in the chunks that have come."""
        while self.next_ns <= now_ns:
            if self.ended_ns is None:
                self.sound.append(Sound(self.next_ns, CHUNK_NS))
                self.said += 1
                if self.said >= self.turn:
                    self.ended_ns = self.next_ns
            self.next_ns += CHUNK_NS


@dataclass(frozen=True)
class Pass:
    name: str
    sound: tuple[Sound, ...]
    began_ns: int
    ended_ns: int
    level: int
    ended_turn_ns: int | None

    @property
    def waits_ms(self) -> list[float]:
        """Of each chunk, until it was heard."""
        return [(self.ended_ns - chunk.at_ns) / MS for chunk in self.sound]


class World:
    """Persons, one recogniser and the policy. `pass_ms`: a pass over one chunk, with the work that
    comes with it; `final_ms`: a final pass. Chosen as the engine does: by deadline, late chunks
    together, and with some advance for what ends a turn."""

    def __init__(
        self,
        people: Sequence[Person],
        pass_ms: float,
        rules: IntervalRules | None = None,
        final_ms: float = 120.0,
    ) -> None:
        self.people, self.policy = list(people), HearingInterval(rules)
        self.pass_ms, self.final_ms = pass_ms, final_ms
        self.now_ns = 0
        self.passes: list[Pass] = []
        self.levels = [(0, 1)]

    def run(self, until_s: float) -> None:
        while self.now_ns < until_s * S:
            for person in self.people:
                person.speak(self.now_ns)
            if not self._hear_one():
                self.now_ns += 5 * MS
            if self.policy.level != self.levels[-1][1]:
                self.levels.append((self.now_ns, self.policy.level))

    def _hear_one(self) -> bool:
        ready = [
            p for p in self.people if p.ended_ns is not None or (p.sound and not self._waits(p))
        ]
        if not ready:
            return False
        self._hear(min(ready, key=self._due_ns))
        return True

    def _waits(self, person: Person) -> bool:
        return self.policy.waits(person.name, tuple(person.sound), self.now_ns)

    def _due_ns(self, person: Person) -> int:
        due_ns = [chunk.at_ns + CHUNK_NS for chunk in person.sound]
        if person.ended_ns is not None:
            return min([person.ended_ns - URGENT_NS, *due_ns])
        return min(due_ns) + self.policy.allowance_ns(person.name, tuple(person.sound))

    def _hear(self, person: Person) -> None:
        began_ns, level, ended_ns = self.now_ns, self.policy.level, person.ended_ns
        late = ended_ns is not None or person.sound[0].at_ns + CHUNK_NS < began_ns
        count = min(TOGETHER if late else 1, len(person.sound))
        sound = tuple(person.sound.popleft() for _ in range(count))
        final = ended_ns is not None and not person.sound
        took_ms = self.final_ms if final else self.pass_ms * (1 + LONGER * (count - 1))
        took_ns = round(took_ms * MS)
        self.now_ns += took_ns
        if final:
            self.policy.forget(person.name)
            self.policy.worked(took_ns, self.now_ns)
            person.said, person.ended_ns = 0, None
        else:
            self.policy.heard(person.name, sound, took_ns, self.now_ns)
        ended_turn_ns = ended_ns if final else None
        self.passes.append(Pass(person.name, sound, began_ns, self.now_ns, level, ended_turn_ns))

    def since(self, s: float) -> list[Pass]:
        return [each for each in self.passes if each.began_ns >= s * S]


def crowd(count: int, seed: int = 0, turn: int = 40) -> list[Person]:
    """People whose chunks come at any time of half a second, somewhere in a turn."""
    dice = random.Random(seed)
    return [
        Person(f"p{n}", dice.randrange(CHUNK_NS), turn, dice.randrange(turn - 1))
        for n in range(count)
    ]


def chunk_waits_ms(passes: Sequence[Pass]) -> list[float]:
    return [ms for each in passes for ms in each.waits_ms]


def ages_ms(passes: Sequence[Pass]) -> list[float]:
    """How old the newest sound was when its words came, of passes that end no turn."""
    return [each.waits_ms[-1] for each in passes if each.ended_turn_ns is None]


def end_waits_ms(passes: Sequence[Pass]) -> list[float]:
    """Until a final pass began."""
    return [
        (each.began_ns - each.ended_turn_ns) / MS
        for each in passes
        if each.ended_turn_ns is not None
    ]


def at(values: Sequence[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(int(len(ranked) * share), len(ranked) - 1)]


SEEDS = [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("count", "pass_ms"), [(1, 400.0), (4, 100.0), (8, 50.0), (8, 56.0)])
def test_nothing_changes_while_all_are_heard_in_time(count: int, pass_ms: float, seed: int) -> None:
    """The same passes over the same sound at the same times as without the policy."""
    with_policy, without = (World(crowd(count, seed), pass_ms, rules) for rules in (None, OFF))
    for world in (with_policy, without):
        world.run(60)
    assert with_policy.levels == [(0, 1)]
    assert with_policy.passes == without.passes


@pytest.mark.parametrize("seed", SEEDS)
def test_sixteen_are_heard_in_time_at_longer_intervals(seed: int) -> None:
    """Too much for every chunk, enough for fewer passes: words are younger, and there is time
    left."""
    with_policy, without = (World(crowd(16, seed), 45.0, rules) for rules in (None, OFF))
    for world in (with_policy, without):
        world.run(60)
    new, old = with_policy.since(10), without.since(10)
    assert {each.level for each in new} <= {2, 3, 4}
    assert at(ages_ms(new), 0.5) < 0.6 * at(ages_ms(old), 0.5)
    assert at(ages_ms(new), 0.95) < at(ages_ms(old), 0.95)
    spent_s = [sum(each.ended_ns - each.began_ns for each in passes) / S for passes in (new, old)]
    assert spent_s[0] < 0.95 * spent_s[1]
    assert sum(chunk.length_ns for each in new for chunk in each.sound) >= 0.99 * sum(
        chunk.length_ns for each in old for chunk in each.sound
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pass_ms", [40.0, 45.0, 50.0])
def test_nobody_starves_and_no_sound_waits_longer_than_the_interval(
    pass_ms: float, seed: int
) -> None:
    """Each person's sound is heard in order, all of it, and everybody equally often."""
    world = World(crowd(16, seed, turn=10_000), pass_ms)
    world.run(60)
    heard: dict[str, list[Sound]] = {person.name: [] for person in world.people}
    for each in world.passes:
        heard[each.name] += each.sound
    for person in world.people:
        sound = [*heard[person.name], *person.sound]
        assert all(b.at_ns - a.at_ns == CHUNK_NS for a, b in pairwise(sound))
        assert len(sound) >= 60 * 2 - 1
    counts = Counter(each.name for each in world.since(10))
    assert max(counts.values()) <= 1.3 * min(counts.values())
    most_ms = 2000 + 500
    assert max(chunk_waits_ms(world.since(10))) < most_ms


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pass_ms", [45.0, 50.0])
def test_what_ends_a_turn_waits_for_a_pass_or_two(pass_ms: float, seed: int) -> None:
    """For the pass under way, and for other turns that ended just before."""
    world = World(crowd(16, seed), pass_ms)
    world.run(90)
    longest_ms = pass_ms * (1 + LONGER * (TOGETHER - 1))
    waits = end_waits_ms(world.since(15))
    assert len(waits) > 30
    assert max(waits) <= longest_ms + 2 * world.final_ms + 5


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_spread_over_the_interval(seed: int) -> None:
    """When everybody begins to wait for longer, not all wait for the same half second."""
    policy = HearingInterval()
    policy.level = 2
    names = [f"p{n}" for n in range(16)]
    dice = random.Random(seed)
    first_ns = {name: dice.randrange(CHUNK_NS) for name in names}
    for name in names:
        policy.heard(name, [Sound(first_ns[name], CHUNK_NS)], MS, first_ns[name] + MS)
    slots = [0, 0]
    for half, now_ns in enumerate((CHUNK_NS, 2 * CHUNK_NS)):
        for name in names:
            sound = [Sound(first_ns[name] + n * CHUNK_NS, CHUNK_NS) for n in range(1, half + 2)]
            slots[half] += not policy.waits(name, sound, now_ns + first_ns[name])
    assert slots[1] == 16
    assert 5 <= slots[0] <= 11


def loaded(level: int) -> HearingInterval:
    """A policy whose sessions p and q have been heard once, at that level."""
    policy = HearingInterval()
    for name in ("p", "q"):
        policy.level = level
        policy.heard(name, [Sound(0, CHUNK_NS)], 50 * MS, 100 * MS)
    return policy


def test_a_first_pass_waits_for_nothing() -> None:
    """Of a new turn too: who interrupts is heard at once."""
    policy = loaded(4)
    new = [Sound(10 * CHUNK_NS, CHUNK_NS)]
    assert not policy.waits("r", new, new[0].at_ns)
    one = [Sound(CHUNK_NS, CHUNK_NS)]
    assert any(policy.waits(name, one, CHUNK_NS) for name in ("p", "q"))
    for name in ("p", "q"):
        policy.forget(name)
        assert not policy.waits(name, one, CHUNK_NS)
        assert policy.allowance_ns(name, one) == 0


def test_sound_that_stops_coming_is_heard() -> None:
    """No more of it comes, and nothing says that it has ended."""
    policy = loaded(4)
    for name in ("p", "q"):
        sound = [Sound(CHUNK_NS, CHUNK_NS)]
        assert not policy.waits(name, sound, CHUNK_NS + 4 * CHUNK_NS)


@pytest.mark.parametrize(
    ("length_ms", "most"), [(200, 800), (500, 2000), (1000, 2000), (2000, 2000)]
)
def test_the_interval_is_bounded(length_ms: int, most: int) -> None:
    """By sound and by chunks, whatever a chunk's length."""
    policy = HearingInterval()
    policy.level = 4
    length_ns = length_ms * MS
    policy.heard("p", [Sound(0, length_ns)], 50 * MS, 100 * MS)
    assert policy.interval_ms == most
    sound: list[Sound] = []
    while len(sound) < 20:
        sound.append(Sound((len(sound) + 1) * length_ns, length_ns))
        if not policy.waits("p", sound, sound[-1].at_ns):
            break
    assert len(sound) * length_ms <= most


def test_a_person_alone_is_heard_every_chunk() -> None:
    """On a processor that is too slow for one it would only be later."""
    world = World(crowd(1), 700.0)
    world.run(60)
    assert world.levels == [(0, 1)]


def test_a_burst_changes_nothing() -> None:
    """Half a second of late passes among many that are in time."""
    policy = HearingInterval()
    for n in range(200):
        at_ns = n * 62 * MS
        delay_ns = 600 * MS if 100 <= n < 108 else 100 * MS
        policy.heard(f"p{n % 8}", [Sound(at_ns, CHUNK_NS)], 40 * MS, at_ns + delay_ns)
        assert policy.level == 1


def test_it_goes_back_when_people_leave_and_tries_ever_more_seldom() -> None:
    """With fewer people every chunk is heard again. Where a lower level fails, the tries get
    rare."""
    world = World(crowd(16, 1), 45.0)
    world.run(30)
    assert world.policy.level > 1
    del world.people[6:]
    world.run(60)
    assert world.policy.level == 1
    edge = World(crowd(10, 0), 50.0)
    edge.run(300)
    falls = [after < before for (_, before), (_, after) in pairwise(edge.levels)]
    assert sum(falls) <= 20


def test_after_a_silence_every_chunk_is_heard() -> None:
    """What was known of the load is old."""
    policy = loaded(3)
    late = [Sound(100 * CHUNK_NS, CHUNK_NS)]
    policy.heard("p", late, 50 * MS, late[0].at_ns + 60 * MS)
    assert policy.level == 1
    assert policy.interval_ms == 500


def test_a_file_faster_than_real_time_is_no_load() -> None:
    """Its chunks are late by design."""
    policy = HearingInterval()
    for n in range(100):
        sound = [Sound(0, CHUNK_NS), Sound(MS, CHUNK_NS)]
        policy.heard(f"p{n % 2}", sound, 40 * MS, 2 * S + n * 40 * MS)
    assert policy.level == 1


def test_the_setting_bounds_it_and_turns_it_off() -> None:
    """`hearing_interval_s` 0: every chunk, however late."""
    for longest_s, highest in ((0.0, 1), (1.0, 2)):
        policy = interval_of(EngineConfig(hearing_interval_s=longest_s))
        for n in range(2000):
            at_ns = n * 30 * MS
            policy.heard(f"p{n % 16}", [Sound(at_ns, CHUNK_NS)], 60 * MS, at_ns + 2 * S)
        assert policy.level == highest
