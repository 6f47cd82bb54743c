"""The simulated world: people, gateway, placement and nodes, as events in virtual time.

    arrive ─▶ place ─▶ turn: chunks, pauses, endpoint ─▶ answer ─▶ heard ─▶ next turn, or leave
                │                                          │
                └─ refused: again after `retry_after_ms`   └─ its node dies: cut, or sent again

Every turn that begins is answered, refused or cut; `World.run` goes on after the last second until
that is so. Whatever is drawn for a person comes from a generator of their own, so that all policies
meet the same people.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from headstart.benchmarks.inputs.turn_taking import Turn, draw_session_s, draw_turn
from headstart.benchmarks.simulation.node import NS_PER_MS, Node, Owner
from headstart.benchmarks.simulation.person import Person, Tally
from headstart.benchmarks.simulation.policies import placer_of
from headstart.benchmarks.simulation.setup import Setup
from headstart.benchmarks.simulation.streams import SimStream
from headstart.engine import api, placement
from headstart.engine.errors import NoRoom

NS_PER_S = 1_000_000_000
CHUNK_MS = 500
HUSH_MS = 200  # of silence, after which an answer is prepared
ENDPOINT_MS = 500  # of silence, after which the turn is over
GATEWAY_MS = 3.0  # from the engine's token to the client's socket, and the sound's way in
DETECT_MS = 200  # until the loss of a node is noticed: a closed connection
SPECULATED_TOKENS = 24  # an engine of ours prepares no more before the endpoint
SPOKEN_TOKENS_PER_S = 3.25  # of an answer's sound
RETRIES = 3  # of a session that was refused, before it stays away for a while
AWAY_S = 30.0
REPORT_S = 1.0  # between two reports of a node's load
_PCM = bytes(2 * api.SAMPLE_RATE_HZ * CHUNK_MS // 1000)


def len_of(stream: SimStream) -> int:
    """Tokens of a stream, pending ones included."""
    return stream.kv_len + stream.pending


class World:
    """One run: `run`, then read `tally`, `nodes` and `placer`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now_ns = 0
        self.tally = Tally()
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._end_ns = round(setup.seconds * NS_PER_S)
        self._numbers = 0
        self.people: dict[str, Person] = {}
        kind = setup.kind
        self.nodes = {
            f"node-{n}": Node(f"node-{n}", kind, setup.ears, self, self._later, self._end_ns)
            for n in range(setup.nodes)
        }
        capacity = kind.capacity if setup.policy.admission else None
        sizes = [placement.Node(name, capacity) for name in self.nodes]
        self.placer = placer_of(setup.policy, sizes)

    # --- time ------------------------------------------------------------------------------------

    def _later(self, delay_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        at_ns = self.now_ns + delay_ns
        heapq.heappush(self._events, (at_ns, self._sequence, call, (at_ns, *arguments)))

    def _in_ms(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._later(max(round(delay_ms * NS_PER_MS), 0), call, *arguments)

    def run(self) -> None:
        """Let everything happen; afterwards no turn is open."""
        setup = self.setup
        chance = Random(f"{setup.seed}:arrivals")
        for seat in range(setup.sessions):
            self._in_ms(chance.uniform(0, 1_000), self._arrive, seat, 0, True)
        for failure in setup.failures:
            name = f"node-{failure.node}"
            self._in_ms(failure.from_s * 1000, self._die, name)
            self._in_ms(failure.to_s * 1000, self._rise, name)
        for straggler in setup.stragglers:
            node = self.nodes[f"node-{straggler.node}"]
            self._in_ms(straggler.from_s * 1000, self._slow_down, node, straggler.times)
            self._in_ms(straggler.to_s * 1000, self._slow_down, node, 1.0)
        if setup.policy.placement == "rendezvous":
            self._in_ms(REPORT_S * 1000, self._report)
        while self._events:
            self.now_ns, _, call, arguments = heapq.heappop(self._events)
            call(*arguments)
        for person in self.people.values():
            self.tally.session_s += (self._end_ns - person.since_ns) / NS_PER_S

    @property
    def _over(self) -> bool:
        return self.now_ns >= self._end_ns

    # --- sessions --------------------------------------------------------------------------------

    def _awake(self, seat: int) -> bool:
        """Whether this one of all people is there at this hour."""
        if not self.setup.diurnal:
            return True
        share = 0.6 - 0.4 * math.cos(2 * math.pi * self.now_ns / self._end_ns)
        return seat < share * self.setup.sessions

    def _arrive(self, now_ns: int, seat: int, tries: int, at_start: bool) -> None:
        if self._over:
            return
        if not self._awake(seat):
            self._in_ms(5_000, self._arrive, seat, 0, False)
            return
        self._numbers += 1
        people = self.setup.people
        chance = Random(f"{self.setup.seed}:{seat}:{self._numbers if not at_start else 0}")
        person = Person(seat, self._numbers, chance, people)
        length_s = draw_session_s(people, chance)
        if at_start:  # in the middle of its conversation, warm where it lands
            share = chance.random()
            history_s = min(length_s * share, 1_200.0)
            room = people.window_tokens - people.system_tokens
            if people.listens_to_answers:
                person.context += min(round(history_s * 3), room // 2)
            length_s *= 1 - share
        self.tally.arrivals += self._counting
        wait_ms = self._settle(person, warm=at_start)
        if wait_ms is not None:
            self.tally.arrivals_refused += self._counting
            away = tries + 1 >= RETRIES
            wait_ms = AWAY_S * 1000 if away else wait_ms
            self._in_ms(wait_ms, self._arrive, seat, 0 if away else tries + 1, False)
            return
        self.people[person.name] = person
        self.tally.sessions += 1
        person.since_ns = now_ns
        person.leaves_ns = now_ns + round(length_s * NS_PER_S)
        first_s = chance.uniform(0, 15) if at_start else chance.uniform(0.5, 3)
        self._in_ms(first_s * 1000, self._begin, person)

    @property
    def _counting(self) -> bool:
        return self.now_ns >= self.setup.warm_up_s * NS_PER_S

    def _settle(self, person: Person, *, warm: bool = False) -> float | None:
        """Have the person's session on a node. Returns ms to wait if there is no room."""
        if not self.setup.policy.pins:
            self.placer.release(person.name, self.now_ns)
        found = self.placer.place(person.name, self.now_ns)
        if isinstance(found, placement.Refusal):
            return float(found.retry_after_ms)
        node = self.nodes[found.node]
        if node is person.node and person.stream is not None:
            return None
        if person.node is not None:
            if person.stream is not None:
                person.node.drop(person.stream)
            if self.setup.policy.pins:
                self.tally.moved += node is not person.node
                person.cold = True
                person.node.close(person)
        shared = self.setup.people.system_tokens
        try:
            person.stream = node.open(person, person.context, shared, self.now_ns, warm=warm)
        except NoRoom as no_room:
            self.placer.release(person.name, self.now_ns)
            person.node = person.stream = None
            return no_room.retry_after_s * 1000
        person.node = node
        return None

    def _leave(self, person: Person) -> None:
        self.placer.release(person.name, self.now_ns)
        for node in self.nodes.values() if not self.setup.policy.pins else [person.node]:
            if node is not None:
                node.close(person)
        del self.people[person.name]
        ended_ns = min(self.now_ns, self._end_ns)
        self.tally.session_s += max(ended_ns - person.since_ns, 0) / NS_PER_S
        self._in_ms(person.chance.expovariate(1 / 3_000), self._arrive, person.seat, 0, False)

    # --- a turn's speech -------------------------------------------------------------------------

    def _begin(self, now_ns: int, person: Person) -> None:
        if self._over:
            return
        if now_ns >= person.leaves_ns or not self._awake(person.seat):
            self._leave(person)
            return
        person.cold = False
        person.counts, person.open = self._counting, True
        self.tally.begun += person.counts
        person.turn_number += 1
        wait_ms = self._settle(person)
        if wait_ms is not None:
            self._refuse_turn(person, wait_ms)
            return
        people = self.setup.people
        person.turn = turn = draw_turn(people, person.chance)
        person.speech_s, person.words_done = turn.speech_s, 0.0
        person.preparing, person.drawn, person.first_ns = False, 0, 0
        if person.context > people.window_tokens:  # the oldest turns are forgotten
            person.version += 1
            person.context -= (person.context - people.system_tokens) // 2
        self._speak(person, turn)

    def _refuse_turn(self, person: Person, wait_ms: float) -> None:
        """No node has room for this turn; the person tries again."""
        self.tally.refused += person.counts and person.open
        person.open, person.turn = False, None
        self._in_ms(wait_ms, self._begin, person)

    def _speak(self, person: Person, turn: Turn) -> None:
        """Schedule all that the gateway will notice of this turn's sound."""
        number = person.turn_number
        pauses_s = sum(length for _, length in turn.pauses)
        whole_ms = (turn.speech_s + pauses_s) * 1000
        person.ended_ns = self.now_ns + round(whole_ms * NS_PER_MS)
        person.endpoint_ns = person.ended_ns + ENDPOINT_MS * NS_PER_MS
        if self.setup.kind.ears_here:
            chunks = int(whole_ms // CHUNK_MS)
            for chunk in range(1, chunks + 1):
                self._in_ms(chunk * CHUNK_MS, self._chunk, person, number)
        else:
            self.tally.ears_s += whole_ms / CHUNK_MS * self.setup.ears.chunk_ms / 1000
        if not self.setup.kind.ears_here and self.setup.policy.ahead:
            # Words that fill a block of the server's cache are sent when they are known.
            every_s = self.setup.kind.ahead / self.setup.people.tokens_per_s
            for block in range(1, int(turn.speech_s / every_s) + 1):
                spoken_s = block * every_s
                before_s = sum(length for at_s, length in turn.pauses if at_s < spoken_s)
                known_ms = (spoken_s + before_s) * 1000 + self.setup.ears.chunk_ms
                self._in_ms(known_ms, self._words, person, number, spoken_s)
        if self.setup.policy.ahead:
            before_s = 0.0
            for at_s, length_s in turn.pauses:
                begins_ms = (at_s + before_s) * 1000
                before_s += length_s
                if length_s * 1000 > HUSH_MS:
                    self._in_ms(begins_ms + HUSH_MS, self._hush, person, number, at_s)
                    self._in_ms(begins_ms + length_s * 1000, self._resume, person, number)
            self._in_ms(whole_ms + HUSH_MS, self._hush, person, number, turn.speech_s)
        self._later(person.endpoint_ns - self.now_ns, self._endpoint, person, number)

    def _stale(self, person: Person, number: int) -> bool:
        """Whether an event belongs to a turn that is over, or waits for a node."""
        return person.turn_number != number or person.turn is None or person.stream is None

    def _chunk(self, now_ns: int, person: Person, number: int) -> None:
        if not self._stale(person, number):
            assert person.node is not None
            audio = api.Audio(person.name, api.TurnRef(number), 0, _PCM, now_ns)
            person.node.tell(person, audio, now_ns)

    def heard(self, owner: Owner, chunks: int, now_ns: int) -> None:
        """An engine of ours has recognised chunks: their words are to be prefilled."""
        person = self.people[owner.name]
        self.tally.ears_s += self.setup.ears.chunk_ms / 1000
        if person.turn is not None and self.setup.policy.ahead and not person.preparing:
            spoken_s = person.words_done + chunks * CHUNK_MS / 1000
            self._words(now_ns, person, person.turn_number, min(spoken_s, person.speech_s))

    def _words(self, now_ns: int, person: Person, number: int, spoken_s: float) -> None:
        """The words of the first `spoken_s` seconds are known."""
        if self._stale(person, number) or spoken_s <= person.words_done or person.preparing:
            return
        assert person.node is not None
        assert person.stream is not None
        person.words_done = spoken_s
        length = person.context + round(spoken_s * self.setup.people.tokens_per_s)
        ahead = self.setup.kind.ahead
        self._ask(person, length - length % ahead)
        if person.stream.pending:
            due_ns = now_ns + CHUNK_MS * NS_PER_MS
            person.node.want(person, person.stream, due_ns, False, now_ns)

    def _ask(self, person: Person, length: int) -> None:
        assert person.node is not None
        assert person.stream is not None
        shared = self.setup.people.system_tokens
        person.node.ask(person.stream, length, person.version, shared)

    # --- pauses and the endpoint -----------------------------------------------------------------

    def _hush(self, now_ns: int, person: Person, number: int, spoken_s: float) -> None:
        """Silence of 200 ms: have the final words, and begin an answer."""
        if self._stale(person, number):
            return
        assert person.node is not None
        if self.setup.kind.ears_here:
            person.speech_s = spoken_s
            hush = api.Hush(person.name, api.TurnRef(number), 0)
            person.node.tell(person, hush, now_ns)
        else:
            self._in_ms(
                self.setup.ears.final_pass_ms(spoken_s), self._prepare, person, number, spoken_s
            )

    def commanded(self, owner: Owner, command: api.Command, now_ns: int) -> None:
        """An engine of ours carries out a command."""
        person = self.people[owner.name]
        if isinstance(command, api.Hush):
            self._prepare(now_ns, person, command.ref.turn, person.speech_s)
        elif isinstance(command, api.Resume):
            self._unprepare(person)

    def failed(self, owner: Owner, now_ns: int) -> None:
        """An engine of ours has no room for the turn's tokens."""
        person = self.people[owner.name]
        if person.turn is None or person.stream is None:
            return
        self._stop_answer(person, ok=None)
        assert person.node is not None
        person.node.cut(person.stream, min(person.context, len_of(person.stream)))
        self._refuse_turn(person, 2_000.0)

    def _prepare(self, now_ns: int, person: Person, number: int, spoken_s: float) -> None:
        """Compute an answer to what was said."""
        if self._stale(person, number) or person.preparing:
            return
        assert person.node is not None
        assert person.stream is not None
        assert person.turn is not None
        if now_ns < person.ended_ns and self._resumed_since(person, spoken_s, now_ns):
            return  # speech went on while the words were being recognised
        people = self.setup.people
        self.tally.ears_s += self.setup.ears.final_pass_ms(spoken_s) / 1000
        person.preparing, person.words_done = True, spoken_s
        said = round(spoken_s * people.tokens_per_s)
        self._ask(person, person.context + said + people.opening_tokens)
        self.placer.begin(person.node.name)
        person.in_flight = True
        person.node.waiting_first += 1
        assert person.stream.pending > 0
        person.node.want(person, person.stream, now_ns, True, now_ns)

    def _resumed_since(self, person: Person, spoken_s: float, now_ns: int) -> bool:
        """Whether the pause behind `spoken_s` is over."""
        assert person.turn is not None
        before_s = 0.0
        began_ns = person.ended_ns - round(
            (person.turn.speech_s + sum(length for _, length in person.turn.pauses)) * NS_PER_S
        )
        for at_s, length_s in person.turn.pauses:
            if at_s == spoken_s:
                return now_ns >= began_ns + round((at_s + before_s + length_s) * NS_PER_S)
            before_s += length_s
        return False

    def _resume(self, now_ns: int, person: Person, number: int) -> None:
        """Speech goes on: the prepared answer is dropped."""
        if self._stale(person, number):
            return
        assert person.node is not None
        if self.setup.kind.ears_here:
            person.node.tell(person, api.Resume(person.name, api.TurnRef(number)), now_ns)
        else:
            self._unprepare(person)

    def _unprepare(self, person: Person) -> None:
        if not person.preparing:
            return
        self._stop_answer(person, ok=None)
        said = round(person.words_done * self.setup.people.tokens_per_s)
        assert person.node is not None
        assert person.stream is not None
        person.node.cut(person.stream, person.context + said)
        person.preparing, person.drawn, person.first_ns = False, 0, 0

    def _stop_answer(self, person: Person, *, ok: bool | None) -> None:
        """The answer's work is over, done or not."""
        if not person.in_flight or person.node is None:
            return
        person.in_flight = False
        if person.stream is not None:
            person.node.drop(person.stream)
        if person.first_ns == 0:
            person.node.waiting_first -= 1
        self._lost(self.placer.finish(person.node.name, self.now_ns, ok=ok))

    def _endpoint(self, now_ns: int, person: Person, number: int) -> None:
        """Silence of 500 ms: the turn is over, and its answer may be sent."""
        if self._stale(person, number):
            return
        assert person.turn is not None
        assert person.node is not None
        spoken_s = person.turn.speech_s
        if self.setup.kind.ears_here:
            person.speech_s = spoken_s
            if not self.setup.policy.ahead:
                person.node.tell(person, api.Hush(person.name, api.TurnRef(number), 0), now_ns)
            if person.node is not None and person.first_ns:
                self._show(now_ns, person)
        elif not person.preparing and not self.setup.policy.ahead:
            self._in_ms(
                self.setup.ears.final_pass_ms(spoken_s), self._prepare, person, number, spoken_s
            )
        elif person.first_ns:
            self._show(now_ns, person)

    # --- answers ---------------------------------------------------------------------------------

    def worked(self, owner: Owner, count: int, done: bool, now_ns: int) -> None:
        """A step computed tokens of a session."""
        person = self.people[owner.name]
        assert person.node is not None
        assert person.stream is not None
        if not done:
            return
        if not person.preparing:
            person.node.drop(person.stream)
            return
        assert person.turn is not None
        person.drawn += 1
        if person.first_ns == 0:
            person.first_ns = now_ns
            person.node.waiting_first -= 1
            if now_ns >= person.endpoint_ns:
                self._show(now_ns, person)
        if person.drawn >= person.turn.answer_tokens:
            person.node.drop(person.stream)
            self._answered(now_ns, person)
            return
        waits = self.setup.kind.ears_here and now_ns < person.endpoint_ns
        if waits and person.drawn >= SPECULATED_TOKENS:
            person.node.drop(person.stream)  # goes on at the endpoint
            wait_ns = person.endpoint_ns - now_ns
            self._later(wait_ns, self._go_on, person, person.turn_number)
            return
        self._next_token(person)

    def _next_token(self, person: Person) -> None:
        said = round(person.words_done * self.setup.people.tokens_per_s)
        length = person.context + said + self.setup.people.opening_tokens + person.drawn
        self._ask(person, length)

    def _go_on(self, now_ns: int, person: Person, number: int) -> None:
        if self._stale(person, number) or not person.preparing:
            return
        assert person.node is not None
        assert person.stream is not None
        self._next_token(person)
        person.node.want(person, person.stream, now_ns, True, now_ns)

    def _show(self, now_ns: int, person: Person) -> None:
        """The first token leaves for the client."""
        if not (person.counts and person.open):
            return
        person.open = False
        waited_ms = (now_ns - person.ended_ns) / NS_PER_MS + GATEWAY_MS
        self.tally.answered += 1
        self.tally.first_token_ms.append(waited_ms)
        if person.cold:
            self.tally.cold_first_token_ms.append(waited_ms)

    def _answered(self, now_ns: int, person: Person) -> None:
        """All tokens of the answer are there. The next turn begins when it has been heard."""
        assert person.turn is not None
        turn, people = person.turn, self.setup.people
        self._stop_answer(person, ok=True)
        shown_ns = max(person.first_ns, person.endpoint_ns)
        said = round(turn.speech_s * people.tokens_per_s)
        heard_s = turn.answer_tokens / SPOKEN_TOKENS_PER_S if people.listens_to_answers else 0.0
        tokens = turn.answer_tokens
        think_s = turn.think_s
        if turn.barge_in is not None:
            heard_s *= turn.barge_in
            tokens = round(tokens * turn.barge_in)  # the rest is cut from the history
            think_s = 0.0
        self.tally.needed_tokens += said + people.opening_tokens
        person.context += said + people.opening_tokens + tokens
        if person.node is not None and person.stream is not None:
            person.node.cut(person.stream, person.context)
        heard_from_ns = shown_ns if people.listens_to_answers else person.ended_ns
        over_ns = heard_from_ns + round((heard_s + think_s) * NS_PER_S)
        over_ns = max(over_ns, now_ns, person.endpoint_ns)
        self._later(over_ns - now_ns, self._next_turn, person, person.turn_number)

    def _next_turn(self, now_ns: int, person: Person, number: int) -> None:
        if person.turn_number == number and person.turn is not None:
            person.turn = None
            self._begin(now_ns, person)

    # --- nodes -----------------------------------------------------------------------------------

    def _report(self, now_ns: int) -> None:
        """What servers say of their queues."""
        for name, node in self.nodes.items():
            if node.alive:
                self.placer.report(name, placement.Load(waiting=node.waiting_first), now_ns)
        if not self._over:
            self._in_ms(REPORT_S * 1000, self._report)

    def _slow_down(self, now_ns: int, node: Node, times: float) -> None:
        node.slow = times

    def _die(self, now_ns: int, name: str) -> None:
        self.nodes[name].die()
        self._in_ms(DETECT_MS, self._notice, name)

    def _notice(self, now_ns: int, name: str) -> None:
        """The connection to a node has closed."""
        node = self.nodes[name]
        for person in [p for p in self.people.values() if p.node is node and p.in_flight]:
            person.in_flight = False
            self.placer.finish(name, now_ns, ok=False)
        self._lost(self.placer.fail(name, now_ns))
        for person in [p for p in self.people.values() if p.node is node]:
            self._strand(now_ns, person)

    def _lost(self, sessions: Sequence[str]) -> None:
        """Sessions whose node failed too often; here only `_notice` has any."""
        for name in sessions:
            person = self.people.get(name)
            if person is not None:
                self._strand(self.now_ns, person)

    def _strand(self, now_ns: int, person: Person) -> None:
        """A person's node is gone: an answer that was being heard is cut; a turn of which nothing
        was sent yet goes on elsewhere, with a cold prefix."""
        if person.stream is None:
            return
        person.stream = None
        if person.turn is None:
            return  # the next turn is placed when it begins
        shown = person.first_ns != 0 and now_ns >= person.endpoint_ns
        whole = person.drawn >= person.turn.answer_tokens
        if shown and whole:
            return  # all its text is with the client already
        number = person.turn_number
        if shown:
            self._abandon(now_ns, person, number)
            return
        person.preparing, person.drawn, person.first_ns = False, 0, 0
        spoken_s, person.words_done = person.words_done, 0.0
        wait_ms = self._settle(person)
        if wait_ms is not None:
            self._refuse_turn(person, wait_ms)
            return
        if now_ns >= person.ended_ns:
            self._in_ms(0, self._prepare, person, number, person.turn.speech_s)
        elif self.setup.policy.ahead:
            self._words(now_ns, person, number, max(spoken_s, 0.1))

    def _abandon(self, now_ns: int, person: Person, number: int) -> None:
        """The answer ends in the middle; the person asks again."""
        assert person.turn is not None
        self.tally.cut += person.counts
        self.tally.answered -= person.counts  # it was counted when its first token left
        said = round(person.turn.speech_s * self.setup.people.tokens_per_s)
        person.context += said + person.drawn
        person.turn = None
        self._in_ms(2_000, self._begin, person)

    def _rise(self, now_ns: int, name: str) -> None:
        """The node is there again; the next probe finds it."""
        self.nodes[name].rise()
        self._probe(now_ns, name)

    def _probe(self, now_ns: int, name: str) -> None:
        if self.placer.probe(name, now_ns):
            self.placer.recover(name, now_ns)
        elif not self._over:
            self._in_ms(500, self._probe, name)
