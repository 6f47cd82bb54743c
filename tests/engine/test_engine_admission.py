"""Random sessions on a cache that is far too small for them: nobody reads what is not theirs, no
block is lost, every answer that was asked for ends, and nobody stands in the others' way."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headstart.engine import api
from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.admission import NS_PER_S, AdmissionRules
from headstart.engine.scheduling.runner import StepResult
from headstart.engine.scheduling.scheduler import Plan, Work
from tests.engine.commands import GREEDY, user_item
from tests.engine.fakes import WORD_SAMPLES, Bench, FakeRunner

SIZE = 16
BLOCKS = 20
HOST_BLOCKS = 12
NAMES = ("ann", "bob", "cyd", "dan", "eve")
NAMED_ERRORS = {"cache_full", "unknown_session", "answer_running", "context_full"}
MOST_BEATS = 20_000

who = st.sampled_from(NAMES)


class Memory:
    """Instead of K and V, each slot holds the tokens that they are computed from."""

    bytes_per_token = narrow_bytes_per_token = 100

    def __init__(self) -> None:
        self.slots = [0] * (BLOCKS * SIZE)

    def save_block(self, block: int, num_tokens: int) -> Any:
        return self.slots[block * SIZE : block * SIZE + num_tokens]

    def load_block(self, block: int, saved: Any) -> None:
        self.slots[block * SIZE : block * SIZE + len(saved)] = saved

    def write(self, work: Work) -> None:
        stream, start = work.stream, work.stream.kv_len
        end = start + work.num_scheduled_tokens
        for place, meaning in enumerate(_meanings(stream, end)[start:], start):
            self.slots[_slot(stream, place)] = meaning

    def check(self, stream: Stream) -> None:
        for place, meaning in enumerate(_meanings(stream, stream.kv_len)):
            assert self.slots[_slot(stream, place)] == meaning


def _slot(stream: Stream, place: int) -> int:
    return stream.table.blocks[place // SIZE] * SIZE + place % SIZE


def _chain(before: int, token: int | bytes) -> int:
    return hash((before, token))


def _meanings(stream: Stream, end: int) -> list[int]:
    """For each of the first tokens a number that stands for all tokens up to it; soft ones count
    by what they look like, for their ids differ."""
    soft = stream.soft
    ids = (t if t < stream.vocab_size else soft.digest(t) for t in stream.tokens[:end])
    return list(accumulate(ids, _chain, initial=0))[1:]


class RememberingRunner(FakeRunner):
    """Reads what it is about to use, and writes what it computes."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(lambda asked: asked[:25])
        self.memory = memory

    def step(self, plan: Plan) -> StepResult:
        granted, refused = [], {}
        for work in plan.works:
            self.memory.check(work.stream)
            try:
                copy = work.stream.reserve(work.num_scheduled_tokens)
            except CacheFull as full:
                refused[work.stream] = full
                continue
            if copy is not None:
                self.memory.load_block(copy.target, self.memory.save_block(copy.source, SIZE))
            self.memory.write(work)
            granted.append(work)
        result = super().step(Plan(tuple(granted)))
        result.refused.update(refused)
        return result

    def move(self, move: KvMove) -> None:
        raise AssertionError("nobody is so long here that something has to be forgotten")


def small_bench(memory: Memory) -> Bench:
    """Room for some 380 tokens in the pool and half as many in host memory."""
    return Bench(
        "tell me more of this now please",
        blocks=BLOCKS,
        host_blocks=HOST_BLOCKS,
        rules=AdmissionRules(idle_after_s=1.0, turn_tokens=32),
        memory=memory,
        runner=RememberingRunner(memory),
        max_cached=4,
    )


class Crowd(RuleBasedStateMachine):
    """Five people on one small engine."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.bench = small_bench(self.memory)
        self.asked: set[tuple[str, int]] = set()
        self.turn = 0

        for name in NAMES:
            self.tell(api.Open(name, "Be brief."))

    def tell(self, command: api.Command) -> None:
        self.bench.tell(command)

    @rule(name=who, instructions=st.sampled_from(["Be brief.", "Be long. " * 6]))
    def arrive(self, name: str, instructions: str) -> None:
        if name not in self.bench.engine.sessions:
            self.tell(api.Open(name, instructions))

    @rule(name=who, really=st.integers(0, 3))
    def leave(self, name: str, really: int) -> None:
        if really:
            return
        self.tell(api.Close(name))
        self.asked = {asked for asked in self.asked if asked[0] != name}

    @rule(name=who, words=st.integers(0, 6), hushes=st.booleans(), ends=st.booleans())
    def speak(self, name: str, words: int, hushes: bool, ends: bool) -> None:
        self.turn += 1
        ref = api.TurnRef(self.turn)
        self.tell(api.BeginSpeech(name, ref, f"u{self.turn}", 0))
        for n in range(words):
            pcm = bytes(2 * WORD_SAMPLES)
            self.tell(api.Audio(name, ref, n * WORD_SAMPLES, pcm, self.bench.now_ns))
        if hushes:
            self.tell(api.Hush(name, ref, 0, speculate=GREEDY))
        if ends:
            self.tell(api.EndSpeech(name, ref, 0))
            self.answer(name, aside=False)

    @rule(name=who, shade=st.integers(0, 3))
    def see(self, name: str, shade: int) -> None:
        self.tell(api.Frame(name, 0, api.Image(1, 1, bytes((shade, 0, 0)))))

    @rule(name=who, length=st.sampled_from([5, 60, 120]))
    def write(self, name: str, length: int) -> None:
        self.turn += 1
        self.tell(api.AddItem(name, user_item(f"u{self.turn}", "x" * length)))

    @rule(name=who, length=st.sampled_from([15, 45]), pause_s=st.sampled_from([0.0, 1.5]))
    def converse(self, name: str, length: int, pause_s: float) -> None:
        self.wait(pause_s)
        self.write(name, length)
        self.answer(name, aside=False)
        self.work(200)

    @rule(name=who, aside=st.booleans())
    def answer(self, name: str, aside: bool) -> None:
        self.turn += 1
        items = (user_item("i", "apart from that"),) if aside else None
        self.tell(api.Respond(name, self.turn, f"a{self.turn}", GREEDY, items=items))
        self.asked.add((name, self.turn))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name, generation = data.draw(st.sampled_from(sorted(self.asked)))
        self.tell(api.Cancel(name, generation))

    @rule(seconds=st.sampled_from([0.1, 0.6, 3.0]))
    def wait(self, seconds: float) -> None:
        self.bench.now_ns += int(seconds * NS_PER_S)
        self.bench.engine.relieve_pressure()

    @rule(beats=st.sampled_from([1, 7, 200]))
    def work(self, beats: int) -> None:
        for _ in range(beats):
            if not self.bench.engine.step():
                break

    @invariant()
    def the_books_are_exact(self) -> None:
        self.bench.engine.check_accounting()
        for session in self.bench.engine.sessions.values():
            for stream in [session.stream, *(a.stream for a in session.side_answers)]:
                if not stream.offload_slot.offloaded:
                    self.memory.check(stream)

    def teardown(self) -> None:
        """Every answer ends, in words or in a named error, and once."""
        beats = 0
        while self.bench.engine.step():
            beats += 1
            assert beats < MOST_BEATS, "it never comes to rest"
        ends = [e for e in self.bench.events if isinstance(e, api.Finished)]
        ended = [(end.session, end.generation) for end in ends]
        assert len(set(ended)) == len(ended), "an answer ended twice"
        assert self.asked <= set(ended), "an answer never ended"
        for end in ends:
            assert (end.reason is api.FinishReason.FAILED) == bool(end.code)
            assert end.code in NAMED_ERRORS | {""}
        self.bench.engine.check_accounting()
        self.bench.engine.close()
        assert self.bench.pool.used_blocks == 0
        assert self.bench.admission.host.used_bytes == 0


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_session_that_does_not_fit_does_not_stop_others() -> None:
    """One session asks again and again for more than there is; each time it is told so, and the
    others' answers come in as many beats as without it."""
    beats = []
    for with_whale in (False, True):
        bench = small_bench(Memory())
        for name in ("ann", "bob"):
            bench.open(name, "Hi")
        if with_whale:
            bench.open("whale", "Hi")
            bench.tell(api.AddItem("whale", user_item("w", "y" * 600)))
            bench.run()
        count = 0
        for n in range(1, 4):
            if with_whale:
                bench.tell(api.Respond("whale", 100 + n, "w", GREEDY))
            for name in ("ann", "bob"):
                bench.tell(api.AddItem(name, user_item(f"{name}{n}", "how do you do")))
                bench.tell(api.Respond(name, 10 * n + (name == "bob"), "a", GREEDY))
            while bench.engine.step():
                count += 1
            assert all(bench.finished(10 * n + i).code == "" for i in (0, 1))
            if with_whale:
                assert bench.finished(100 + n).code == "cache_full"
        beats.append(count)
    assert beats[1] <= beats[0] + 3 * 8
